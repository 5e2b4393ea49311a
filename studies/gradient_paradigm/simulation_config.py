"""Settings of the simulations."""

from dataclasses import dataclass

from multitask.runtime.options import check_range


@dataclass(frozen=True)
class SimulationConfig:
    """Simulated embeddings of the gradient study (arXiv 2402.18281, section 3.1).

    The defaults of what the paper simulates, down to the deviations, are the paper's.
    """

    grid: int = 100
    """Values of the mean angle of positives, and of negatives, in each map."""
    batches: int = 1000
    """Simulated batches for each value."""
    batch_size: int = 128
    """An anchor's positive and its negatives."""
    positive_deviation: float = 0.05
    """Standard deviation of the angle between an anchor and its positive, in radians."""
    negative_deviation: float = 0.10
    """The same for negatives."""
    trials: int = 1000
    """Random configurations of each batch size and dimension on which conjectures are checked."""
    training_trials: int = 200
    """The same for the conjecture that is about training; each is trained with and without every dissipation."""
    steps: int = 50
    """Gradient steps of such a training."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_range(self, 10, ("grid",))
        check_range(self, 2, ("batch_size",))
        check_range(self, 1, ("batches", "trials", "training_trials", "steps"))
        check_range(self, 0, ("positive_deviation", "negative_deviation", "seed"))

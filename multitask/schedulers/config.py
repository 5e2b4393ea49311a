"""Parameters of single schedulers."""

from dataclasses import dataclass
from typing import Literal, Protocol

from multitask.runtime.options import check_range


@dataclass(frozen=True)
class SchedulerConfig:
    """Parameters of single schedulers."""

    sampling_alpha: float = 1.0
    """proportional draws tasks by their size to this power; 0 draws all alike."""
    reduction: Literal["sum", "mean"] = "sum"
    """Aggregators that add up gradients (pcgrad, gradvac, graddrop, config, nash_mtl, fairgrad): the sum as in their
    papers, or divided by the number of tasks, on the scale of average."""
    cagrad_c: float = 0.5
    """cagrad: how far the update may be from the average gradient, in units of its norm; 0 is average."""
    gradvac_beta: float = 0.01
    """gradvac: how fast the cosines that it aims at follow those that it sees."""
    fairgrad_alpha: float = 1.0
    """fairgrad: which fairness; 1 is proportional, towards infinity max-min."""

    def __post_init__(self) -> None:
        check_range(self, 0, ("sampling_alpha", "cagrad_c"))
        check_range(self, 0.01, ("fairgrad_alpha",))
        check_range(self, 0, ("gradvac_beta",), most=1)


class ScheduledTraining(Protocol):
    """What a scheduler reads of a training's configuration; `FinetuneConfig` has it."""

    @property
    def scheduler(self) -> str:
        """The scheduler's name."""

    @property
    def scheduling(self) -> SchedulerConfig:
        """Parameters of single schedulers."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that are trained."""

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weight of each task's loss, in the order of the tasks; None: all 1."""

    @property
    def epochs(self) -> int:
        """Number of epochs."""

    @property
    def epoch_size(self) -> int | None:
        """Examples of each task in an epoch; None: as the scheduler decides."""

    @property
    def batch_size(self) -> int:
        """Examples of a task in a batch."""

    @property
    def seed(self) -> int:
        """Of random draws."""

"""Several fine-tuned models made one."""

from dataclasses import dataclass
from typing import Literal

from multitask.runtime.options import check_range

Kept = Literal["leading", "all"]


@dataclass(frozen=True)
class EnsembleConfig:
    """How fine-tuned models are combined."""

    method: Literal["best_per_task", "average", "greedy", "soup", "greedy_soup"] = "best_per_task"
    """The best member on each task's dev set (the report); the `average` of all members' probabilities or similarities,
    or of those that a `greedy` selection takes for each task, some several times; or one model with the mean of all
    members' weights, a `soup`, or of those that do not lower its dev score."""
    rounds: int = 20
    """How many members the greedy selection takes, with repetition; it keeps the best of its rounds."""

    def __post_init__(self) -> None:
        check_range(self, 1, ("rounds",))

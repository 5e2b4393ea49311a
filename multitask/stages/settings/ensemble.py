"""Several fine-tuned models combined into one: settings and registration."""

from typing import Literal

from minbert.errors import InputError
from minbert.settings import Count, Share, settings
from multitask.stages.registry import SCORING, Stage, register

SOUPS = ("soup", "greedy_soup")


@settings
class EnsembleConfig:
    """How fine-tuned models are combined."""

    method: Literal["best_per_task", "average", "greedy", "soup", "greedy_soup"] = "best_per_task"
    """`best_per_task` takes the member with the best dev score of each task (the report); `average` averages the
    probabilities or similarities of all members; `greedy` averages members that are selected for each task, some
    several times; `soup` is one model with the mean of all members' weights; `greedy_soup` leaves out members that
    lower its dev score."""
    rounds: Count = 20
    """How many members the greedy selection takes, some several times. It keeps the best of its rounds."""
    kept: Literal["leading", "all"] = "leading"
    """Take each run's `leading` model, or `all` that it keeps (best overall and best on each task)."""
    keep_start: Share = 0.0
    """For soups: mix this share of the start weights into the encoder (LM-Cocktail, arXiv 2311.13534), so that it keeps
    more of what it could do before, e.g. 0.3. The heads stay those of the soup. A soup may have one member."""

    def __post_init__(self) -> None:
        if self.keep_start and self.method not in SOUPS:
            raise InputError(f"keep_start is for the methods {' and '.join(SOUPS)}, not for {self.method}")


STAGE = register(
    Stage(
        "ensemble",
        EnsembleConfig,
        "multitask.stages.ensemble:combine",
        "multitask.stages.reads:of_predictions",
        "Combine fine-tuned models into one; its folder has the course's prediction files.",
        version=3,
        with_seed=None,
        inputs=(),
        computing=SCORING,
        summary="multitask.stages.ensemble:summary",
        common=("method", "rounds", "kept", "keep_start"),
        scores=True,
        gpu_share=0.5,
    )
)

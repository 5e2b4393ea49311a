"""Several fine-tuned models combined into one: settings and registration."""

from typing import Literal

from minbert.settings import Count, settings
from multitask.stages.registry import SCORING, Stage, register


@settings
class EnsembleConfig:
    """How fine-tuned models are combined."""

    method: Literal["best_per_task", "average", "greedy", "soup", "greedy_soup"] = "best_per_task"
    """`best_per_task` takes the member with the best dev score of each task (the report); `average` averages the
    probabilities or similarities of all members; `greedy` averages members that are selected for each task, some
    several times; `soup` is one model with the mean of all members' weights; `greedy_soup` leaves out members that
    lower its dev score."""
    rounds: Count = 20
    """How many members the greedy selection takes, with repetition. It keeps the best of its rounds."""

    kept: Literal["leading", "all"] = "leading"
    """Take each run's `leading` model, or `all` that it keeps (best overall and best on each task)."""


STAGE = register(
    Stage(
        "ensemble",
        EnsembleConfig,
        "multitask.stages.ensemble:combine",
        "multitask.stages.reads:of_predictions",
        "Combine fine-tuned models into one that predicts better; its folder has the course's prediction files.",
        version=3,
        with_seed=None,
        inputs=(),
        computing=SCORING,
        summary="multitask.stages.ensemble:summary",
        common=("method", "rounds", "kept"),
        scores=True,
        gpu_share=0.5,
    )
)

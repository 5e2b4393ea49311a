"""Several fine-tuned models combined into one: settings and registration. `combining.py` combines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from minbert.settings import Count, settings
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.options import RunOptions
from multitask.stages.registry import Stage, register

Kept = Literal["leading", "all"]


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


def _run(models: Sequence[Weights], data: Path, config: EnsembleConfig, options: RunOptions) -> Artefact:
    """Combine fine-tuned models; the artefact has their dev scores and the course's prediction files."""
    from multitask.stages.ensemble.combining import ensemble

    return ensemble([Path(model.name) for model in models], data, config, options)


STAGE = register(
    Stage(
        "ensemble",
        EnsembleConfig,
        _run,
        version=2,
        with_seed=None,
        inputs=(),
        command=False,
        scores=True,
        gpu_share=0.5,
    )
)

"""Scores of a model on the dev sets and on SentEval's tasks: settings and registration."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.settings import settings
from multitask.stages.registry import SCORING, Stage, register


@settings
class EvaluateConfig:
    """What a run's leading model, or a checkpoint, is scored on."""

    split: Literal["dev"] = "dev"


@settings
class SuitesConfig:
    """Which of SentEval's tasks a model's frozen embeddings are scored on."""

    suites: tuple[Literal["sts", "transfer", "retrieval"], ...] = ("sts", "transfer", "retrieval")
    """The suites."""
    limit: Annotated[int, Field(ge=100)] | None = None
    """Score at most this many pairs of each similarity task and queries of each retrieval task; let each transfer task
    train on and score about this many rows. They are the same rows every time."""
    geometry: bool = False
    """Also measure alignment, uniformity and so on of the embeddings of the STS Benchmark's scored sentences."""


ON_DEV = register(
    Stage(
        "evaluate",
        EvaluateConfig,
        "multitask.stages.evaluate:score_dev_sets",
        "multitask.stages.reads:of_evaluate",
        "Score a run's best model, or a checkpoint, on the dev sets.",
        version=5,
        with_seed=None,
        computing=SCORING,
        command=False,
        scores=True,
        gpu_share=0.5,
    )
)
ON_SUITES = register(
    Stage(
        "suites",
        SuitesConfig,
        "multitask.stages.evaluate:score_suites",
        "multitask.stages.reads:of_suites",
        "Score a model's frozen embeddings on SentEval's tasks.",
        version=6,
        with_seed=None,
        computing=SCORING,
        command=False,
        check="multitask.stages.evaluate:check_suites",
        scores=True,
        gpu_share=0.5,
    )
)

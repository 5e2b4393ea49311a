"""Scores of a model on the dev sets and on SentEval's tasks: settings and registration. `scoring.py` scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import settings
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.options import RunOptions
from multitask.stages.registry import Stage, register


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


def suite_files(config: SuitesConfig) -> list[str]:
    """The files that the suites are read from, within SentEval's data folder."""
    from multitask.evaluation.suite_sets import SETS

    return [file for suite in config.suites for entry in SETS[suite] for file in entry.files]


def _check_suites(config: SuitesConfig, folder: Path) -> None:
    from multitask.evaluation.suite_sets import SETS, missing_files

    for suite in config.suites:
        if len(missing_files(SETS[suite], folder)) == len(SETS[suite]):
            raise InputError(f"{folder}: has no data set of {suite}; pass SentEval's data folder with --suites-data")


def _run_evaluation(models: Sequence[Weights], data: Path, config: EvaluateConfig, options: RunOptions) -> Artefact:
    """Score a run's best model, or a checkpoint, on the dev sets."""
    from multitask.stages.evaluate.scoring import evaluate_on_dev

    return evaluate_on_dev(models[0], data, config, options)


def _run_suites(models: Sequence[Weights], data: Path, config: SuitesConfig, options: RunOptions) -> Artefact:
    """Score a model's frozen embeddings on SentEval's tasks."""
    from multitask.stages.evaluate.scoring import evaluate_suites

    return evaluate_suites(models[0], data, config, options)


ON_DEV = register(
    Stage(
        "evaluate",
        EvaluateConfig,
        _run_evaluation,
        version=5,
        with_seed=None,
        command=False,
        scores=True,
        gpu_share=0.5,
    )
)
ON_SUITES = register(
    Stage(
        "suites",
        SuitesConfig,
        _run_suites,
        version=5,
        with_seed=None,
        command=False,
        files=suite_files,
        check=_check_suites,
        scores=True,
        gpu_share=0.5,
    )
)

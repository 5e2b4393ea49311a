"""Score a model's frozen embeddings on SentEval's tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from multitask.base.keys import hash_of_file
from multitask.base.runs import Weights
from multitask.data.messages import read_or_refuse
from multitask.evaluation.suite_sets import SETS, missing_files
from multitask.evaluation.suites import SUITES, evaluate_suites
from multitask.evaluation.task_scores import write_evaluation
from multitask.models.sentence_encoder import load_encoder
from multitask.stages.run_stage import OpenRun
from multitask.stages.settings_without_training import SuitesConfig


def reads(config: SuitesConfig, data: Path) -> dict[str, Any]:
    """The files of the suites' tasks, as far as they are there."""
    paths = [path for suite in config.suites for entry in SETS[suite] for path in entry.paths(data) if path.is_file()]
    return {"files": {path.relative_to(data).as_posix(): read_or_refuse(path, hash_of_file) for path in paths}}


def compute(models: Sequence[Weights], folder: Path, config: SuitesConfig, run: OpenRun) -> None:
    """Score frozen embeddings into a run's folder."""
    [model], options = models, run.options
    encoder = load_encoder(model.name, model.revision, device=options.device, precision=options.precision)
    results = evaluate_suites(config.suites, encoder, model.name, folder, config.limit, config.geometry)
    tasks = {name: task for result in results.values() for name, task in result.tasks.items()}
    mains = {name: main for suite, result in results.items() for name in result.tasks if (main := SUITES[suite].main)}
    more: dict[str, Any] = {
        "unknown": next(iter(results.values())).unknown,
        "pooling": encoder.settings["pooling"],
        "missing": {name: path for result in results.values() for name, path in result.missing.items()},
    }
    if found := [result.geometry for result in results.values() if result.geometry is not None]:
        more["geometry"] = found[0]
    answers = {name: task_answers for result in results.values() for name, task_answers in result.answers.items()}
    write_evaluation(run.folder, tasks, mains, answers, more)


def check(config: SuitesConfig, folder: Path) -> None:
    """Raise InputError if a suite has no data set in the folder."""
    for suite in config.suites:
        if len(missing_files(SETS[suite], folder)) == len(SETS[suite]):
            raise InputError(f"{folder}: has no data set of {suite}; pass SentEval's data folder with --suites-data")

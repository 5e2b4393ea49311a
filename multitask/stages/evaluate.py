"""Score a model and keep every prediction, as input for tables, figures and tests."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_file, read_json, write_json
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples
from multitask.data.labelled_data import LabelledData
from multitask.evaluation.embedding_cache import embed
from multitask.evaluation.embedding_geometry import DIGITS, Geometry, geometry
from multitask.evaluation.embedding_suites import SUITES, measure_task, read_sets
from multitask.evaluation.senteval_files import SimilarityData
from multitask.evaluation.suite_sets import SETS, missing_files
from multitask.evaluation.task_predictions import Estimates, estimate, load_split
from multitask.evaluation.task_scores import labels_of, overlap, score
from multitask.models.multitask_model import load_model, tasks_to_score
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import Artefact, Weights, is_run, locate_model
from multitask.runtime.options import RunOptions
from multitask.stages.reads import rows_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings.evaluate import ON_DEV, ON_SUITES, EvaluateConfig, SuitesConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import Cosine
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Task

GEOMETRY_OF: Final = ("sts", "STSBenchmark")
"""The suite and the task whose embeddings' geometry `SuitesConfig.geometry` asks for."""


def evaluate_on_dev(model: str | Weights, data: Path, config: EvaluateConfig, options: RunOptions) -> Artefact:
    """Score a model on the dev sets; an encoder without heads, only on pair tasks.

    The artefact holds evaluation.json (overall score, each task's main score and its name, all metrics, how much of
    each task the model was trained on, and the geometry of its embeddings of the similarity dev set, if the data has
    one) and predictions.npz (`{task}_predictions` and `{task}_labels`, each [rows] or [rows, labels] in file order; for
    average precision, the predictions are probabilities).

    Args:
        model: a completed run, whose best model is scored, or a checkpoint.
        data: the folder with the data.
        config: what it is scored on.
        options: device, precision, and where to write.

    Raises:
        InputError: no such model, a missing or malformed dev file, or one that differs from those that selected the
            run's best model.
    """
    return run_stage(ON_DEV, [model], data, config, options)


def score_dev_sets(models: Sequence[Weights], data: Path, _config: EvaluateConfig, run: OpenRun) -> None:
    """Score into a run's folder."""
    [model], runtime = models, run.runtime
    folder = locate_model(model.name, model.revision)
    loaded = load_model(folder, load_tasks(data)).to(runtime.device)
    dev = load_split(loaded, data, "dev")
    _check_selected_on(model, data, dev)
    pairs = similarity_dev_set(data)
    loaded.tasks = tasks_to_score(loaded, folder)
    examples = {name: split.examples for name, split in dev.items()}
    seen = TrainedOn.of_folder(folder, model.name)
    embedded = {} if pairs is None else {"geometry": _geometry(folder, pairs, run.options)}
    write_evaluation(run.folder, loaded.tasks, estimate(loaded, dev, runtime), examples, seen, embedded)


def _check_selected_on(model: Weights, data: Path, dev: Mapping[str, LabelledData]) -> None:
    """Raise InputError if a dev set differs from the one that selected a run's best model."""
    inputs = read_json(Path(model.name) / "inputs.json") if is_run(model.name) else {}
    present = rows_of(load_tasks(data).values(), "dev")
    for name, fingerprint in inputs.get("dev", {}).items():
        if name in dev and present.get(name) != fingerprint:
            raise InputError(f"{dev[name].examples.source}: not the file that {model} was selected on")


def similarity_dev_set(data: Path) -> Examples | None:
    """The dev set of the course's task similarity.

    None if the data declares another task or none, lacks the file, or has a single sentence.
    """
    task = load_tasks(data).get("similarity")
    if not isinstance(task, Cosine) or not task.has_positives or task.dev is None:
        return None
    path = task.source("dev").path
    if path is None or not path.is_file():
        return None
    pairs = load_rows(task, "dev")
    return pairs if len({text for column in pairs.sentences for text in column}) > 1 else None  # nothing is spread


def _geometry(model: Path, pairs: Examples, options: RunOptions) -> dict[str, Any]:
    """The geometry of a model's embeddings of some pairs, as JSON types, without the bands of similarity."""
    encoder = SentenceEncoder.load(model, device=options.device, precision=options.precision)
    first, second = (list(column) for column in pairs.sentences)
    gold = labels_of(pairs).astype(np.float64)
    data = SimilarityData((first, second), gold, np.full(len(gold), "dev"))
    return _numbers(geometry(data, embed(encoder, [*first, *second], cache=None)))


def _numbers(found: Geometry) -> dict[str, Any]:
    """Numbers without the bands."""
    values = {name: value for name, value in asdict(found).items() if name != "bands"}
    return {name: None if value is None else round(value, DIGITS) for name, value in values.items()}


def write_evaluation(
    folder: Path,
    tasks: Mapping[str, Task],
    estimates: Estimates,
    examples: Mapping[str, Examples],
    trained_on: TrainedOn,
    beside: Mapping[str, Any],
) -> None:
    """Score estimates; write predictions.npz, and evaluation.json with the entries `beside`."""
    scores = score(tasks, estimates, examples)
    answers = {}
    for name, values in estimates.items():
        ranks = tasks[name].metric == "average_precision"
        answers[name] = labels_of(examples[name]), values if ranks else tasks[name].decide(values)
    parts = overlap(tasks, estimates, examples, trained_on).items()
    evaluation = {
        "overall": scores.overall,
        "scores": scores.tasks,
        "measures": {name: tasks[name].metric for name in scores.tasks},
        "metrics": scores.metrics,
        "overlap": {name: task.summary(itemgetter(tasks[name].metric)) for name, task in parts},
        "unknown": trained_on.unknown,
        **beside,
    }
    _write(folder, answers, evaluation)


def evaluate_suites(model: str | Weights, folder: Path, config: SuitesConfig, options: RunOptions) -> Artefact:
    """Score a model's frozen embeddings on SentEval's tasks.

    The artefact has the same files as that of `evaluate_on_dev`, with the scores that the papers' tables report. It
    also lists the tasks whose files are missing, and on request the geometry of the STS Benchmark's embeddings.

    Args:
        model: a completed training or pruning run, or a checkpoint.
        folder: SentEval's data folder.
        config: which suites, and how many of their rows.
        options: device, precision, and where to write.

    Raises:
        InputError: no such model, a file is malformed, or all sets of a suite are missing.
    """
    return run_stage(ON_SUITES, [model], folder, config, options)


def score_suites(models: Sequence[Weights], folder: Path, config: SuitesConfig, run: OpenRun) -> None:
    """Score frozen embeddings into a run's folder."""
    [model], options = models, run.options
    found = {suite: read_sets(suite, folder) for suite in config.suites}
    place = locate_model(model.name, model.revision)
    data = {
        (suite, task): content if config.limit is None else content.sampled(config.limit)
        for suite, (tasks, _) in found.items()
        for task, content in tasks.items()
    }
    encoder = SentenceEncoder.load(place, device=options.device, precision=options.precision)
    sentences = (text for content in data.values() for text in content.sentences)
    table = embed(encoder, sentences, cache=None)
    seen = TrainedOn.of_folder(place, model.name)
    answers, tasks = {}, {}
    for (suite, task), content in data.items():
        outcome, result = measure_task(suite, task, content, table, seen, seed=0)
        main = SUITES[suite].main
        assert main is not None, "suites of tasks have a main number"
        assert outcome.answers is not None, "and answers"
        answers[task] = outcome.answers
        tasks[task] = {
            "scores": main(result.scores),
            "measures": SUITES[suite].unit,
            "metrics": asdict(result.scores),
            "overlap": result.summary(main),
        }
    evaluation = {
        "overall": float(np.mean([of["scores"] for of in tasks.values()])),
        **{kind: {task: of[kind] for task, of in tasks.items()} for kind in next(iter(tasks.values()))},
        "missing": {task: path for _, missing in found.values() for task, path in missing.items()},
        "unknown": seen.unknown,
        "pooling": encoder.pooling,
    }
    if config.geometry and (pairs := data.get(GEOMETRY_OF)) is not None:
        evaluation["geometry"] = _numbers(geometry(pairs, table))
    _write(run.folder, answers, evaluation)


def _write(
    folder: Path, answers: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], evaluation: Mapping[str, Any]
) -> None:
    """Write evaluation.json and predictions.npz of each task's labels and predictions, [rows, ...] each."""
    arrays: dict[str, Any] = {}
    for name, (labels, predictions) in answers.items():
        arrays |= {f"{name}_labels": labels, f"{name}_predictions": predictions}
    with atomic_file(folder / "predictions.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    write_json(folder / "evaluation.json", evaluation)


def check_suites(config: SuitesConfig, folder: Path) -> None:
    """Raise InputError if a suite has no data set in the folder."""
    for suite in config.suites:
        if len(missing_files(SETS[suite], folder)) == len(SETS[suite]):
            raise InputError(f"{folder}: has no data set of {suite}; pass SentEval's data folder with --suites-data")

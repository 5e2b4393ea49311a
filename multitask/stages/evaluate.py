"""Score a model and keep every prediction, as input for tables, figures and tests."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base.device import Runtime
from multitask.base.runs import Weights, is_run, locate_model
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples, drawn_rows
from multitask.evaluation.embeddings import EmbeddingTable, geometry
from multitask.evaluation.task_scores import TaskEvaluation
from multitask.models.estimates import estimate, load_split, with_files_of
from multitask.models.multitask_model import MultitaskModel, load_model, tasks_to_score
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.reads import changed_file, declared, rows_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings_without_training import ON_DEV, EvaluateConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import Classification, Cosine
from multitask.tasks.read_examples import load_rows
from multitask.tasks.scores import most_accurate_threshold

evaluate_on_dev = partial(run_stage, ON_DEV)
"""Score a run's best model, or a checkpoint, on the dev sets; an encoder without heads, only on pair tasks.

The artefact holds evaluation.json (overall score, each task's main score and its name, all metrics, how much of each
task the model was trained on, and the geometry of its embeddings of the similarity dev set, if the data has one) and
predictions.npz (`{task}_predictions` and `{task}_labels`, each [rows] or [rows, labels] in file order; for average
precision, the predictions are probabilities). Dev files that differ from those that selected the run's best model are
refused.
"""


THRESHOLD_ROWS = 4_000
"""Training rows on which a threshold is chosen."""
AT_THRESHOLD = "accuracy_at_threshold"


def reads(config: EvaluateConfig, data: Path) -> dict[str, Any]:
    """The dev sets of all tasks that are declared; which of them a model has is not known before it is loaded.

    Training rows decide thresholds and, for an encoder without heads, what pairs of tasks do not declare.
    """
    tasks = load_tasks(data)
    trained = [task for name, task in tasks.items() if name in config.thresholds or (task.pair and not task.complete)]
    training = rows_of(trained, "train")
    return {"tasks": declared(tasks.values()), "dev": rows_of(tasks.values(), "dev")} | (
        {"training": training} if training else {}
    )


def compute(models: Sequence[Weights], data: Path, config: EvaluateConfig, run: OpenRun) -> None:
    """Score into a run's folder."""
    [model], runtime = models, run.runtime
    folder = locate_model(model.name, model.revision)
    loaded = load_model(folder, load_tasks(data)).on(runtime)
    dev = load_split(loaded, data, "dev")
    _check_selected_on(model, data)
    similar = similarity_dev_set(data)
    loaded.tasks = tasks_to_score(loaded, folder)
    embedded = {} if similar is None else {"geometry": _geometry(folder, *similar, runtime)}
    estimates, examples = estimate(loaded, dev), {name: rows.examples for name, rows in dev.items()}
    trained_on = TrainedOn.of_folder(folder, model.name)
    evaluation = TaskEvaluation.of(loaded.tasks, estimates, examples, trained_on)
    for name in config.thresholds:
        threshold = _best_threshold(loaded, name, data)
        right = (estimates[name] > threshold) == (examples[name].gold > 0)
        found = evaluation.overlap[name]
        scores = {**found.scores, "threshold": threshold, AT_THRESHOLD: float(right.mean())}
        evaluation = replace(evaluation, overlap={**evaluation.overlap, name: replace(found, scores=scores)})
    evaluation.write(run.folder, embedded)


def _best_threshold(model: MultitaskModel, task: str, data: Path) -> float:
    """The threshold of a classification of two classes that is best on some training rows."""
    scored = model.tasks.get(task)
    if not isinstance(scored, Classification) or not scored.log_odds:
        raise InputError(f"thresholds: {task} is no task of this model with the probability of one class alone")
    rows = load_rows(with_files_of(scored, load_tasks(data)[task]), "train")
    rows = rows.take(drawn_rows(len(rows), THRESHOLD_ROWS))
    estimates = estimate(model, {task: model.tokenised(task, rows)})[task]
    return most_accurate_threshold(estimates, rows.gold > 0)


def _check_selected_on(model: Weights, data: Path) -> None:
    """Raise InputError if a dev set differs from the one that selected a run's best model."""
    inputs = read_json(Path(model.name) / "inputs.json") if is_run(model.name) else {}
    if file := changed_file(inputs, data, ["dev"]):
        raise InputError(f"{file}: not the dev set on which the best state of {model} was chosen")


def similarity_dev_set(data: Path) -> tuple[Cosine, Examples] | None:
    """The first task of the kind `cosine`, and the pairs of its dev set.

    None if the data declares none, lacks the file, or has a single sentence.
    """
    task = next((task for task in load_tasks(data).values() if isinstance(task, Cosine)), None)
    path = task.files.dev.path if task and task.files.dev else None
    if task is None or path is None or not path.is_file():
        return None
    pairs = load_rows(task, "dev")
    if len({text for column in pairs.sentences for text in column}) == 1:
        return None  # nothing is spread
    return task, pairs


def _geometry(model: Path, task: Cosine, pairs: Examples, runtime: Runtime) -> dict[str, Any]:
    """The geometry of a model's embeddings of some pairs, as JSON types."""
    encoder = SentenceEncoder.read_as_stored(model).on(runtime, keep_layers=False)
    first, second = map(list, pairs.texts)
    table = EmbeddingTable.of(encoder, [*first, *second], pairs.long)
    encoder.counts.warn(f"{pairs.source}, for the geometry")
    return geometry((first, second), task.mean_the_same(pairs.gold), table)

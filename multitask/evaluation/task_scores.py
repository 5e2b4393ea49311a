"""Scores of estimates on the tasks' data sets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import atomic_file, write_json
from multitask.base import logger
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples, LabelledData
from multitask.data.tables import FRAME, is_frame, table_of
from multitask.evaluation.statistics import DevAnswers
from multitask.evaluation.training_overlap import Main, ScoresWithOverlap
from multitask.models.estimates import Estimates, estimate
from multitask.models.multitask_model import MultitaskModel, tasks_for
from multitask.tasks.kinds import Classification
from multitask.tasks.labels import Labelled, without_rows
from multitask.tasks.read_examples import examples_of
from multitask.tasks.scores import LOWER_IS_BETTER, Metric
from multitask.tasks.task import Task

if TYPE_CHECKING:
    import pandas


NOTHING_KNOWN = TrainedOn()


@dataclass(frozen=True)
class MultitaskScores:
    """All metrics of several tasks, and which of them is each task's own score."""

    metrics: dict[str, dict[str, Any]]
    measures: dict[str, Metric]

    @property
    def tasks(self) -> dict[str, float]:
        """Each task's own score."""
        return {name: float(found[self.measures[name]]) for name, found in self.metrics.items()}

    @property
    def selecting(self) -> dict[str, float]:
        """The scores that models may be selected on."""
        return {name: score for name, score in self.tasks.items() if self.measures[name] not in LOWER_IS_BETTER}

    @property
    def overall(self) -> float:
        """Mean of the tasks' own scores, which the course's leaderboard shows; NaN if one of them is undefined.

        It leaves out scores where lower is better.
        """
        return _mean(self.selecting.values())


def _mean(scores: Iterable[float]) -> float:
    found = list(scores)
    return float(np.mean(found)) if found else math.nan


def score_tasks(tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples]) -> MultitaskScores:
    """Scores of the tasks' estimates on labelled examples."""
    metrics = {name: tasks[name].metrics(values, examples[name].gold) for name, values in estimates.items()}
    return MultitaskScores(metrics, {name: tasks[name].metric for name in metrics})


@dataclass(frozen=True)
class TaskEvaluation:
    """What is known of estimates on labelled rows."""

    tasks: Mapping[str, Task]
    examples: Mapping[str, Examples]  # the labelled rows of each task
    estimates: Estimates  # of these rows
    scores: MultitaskScores  # of these estimates
    # how many of each task's rows the model was trained on, and its metrics with and without them
    overlap: dict[str, ScoresWithOverlap]
    unknown: tuple[str, ...]  # a line for each part of the training data whose contents are not recorded

    @classmethod
    def of(
        cls, tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples], trained_on: TrainedOn
    ) -> "TaskEvaluation":
        """Score estimates of labelled examples by a model that was trained on `trained_on`."""

        def overlap(name: str, values: NDArray[Any]) -> ScoresWithOverlap:
            labels = examples[name].gold
            _warn_of_new_rows(tasks[name], examples[name], trained_on)
            return ScoresWithOverlap.of(
                lambda rows: tasks[name].metrics(values[rows], labels[rows]), examples[name].sentences, trained_on
            )

        parts = {name: overlap(name, values) for name, values in estimates.items()}
        metrics = {name: dict(part.scores) for name, part in parts.items()}
        scores = MultitaskScores(metrics, {name: tasks[name].metric for name in metrics})
        return cls(tasks, examples, estimates, scores, parts, trained_on.unknown)

    @property
    def answers(self) -> dict[str, DevAnswers]:
        """The answers to each task's rows."""
        found = {}
        for name, values in self.estimates.items():
            task, labels = self.tasks[name], self.examples[name].gold
            classes = len(task.labels) if isinstance(task, Classification) else None
            predictions = values if task.metric == "average_precision" else task.decide(values)
            found[name] = DevAnswers(labels, predictions, task.metric, classes, self.scores.tasks[name])
        return found

    def write(self, folder: Path, more: Mapping[str, Any]) -> None:
        """Write evaluation.json with `more` entries, and predictions.npz, as `write_evaluation` describes."""
        answers = {name: (found.labels, found.predictions) for name, found in self.answers.items()}
        mains = {name: (self.tasks[name].metric, itemgetter(self.tasks[name].metric)) for name in self.overlap}
        write_evaluation(folder, self.overlap, mains, answers, {"unknown": self.unknown, **more})


def _warn_of_new_rows(task: Task, examples: Examples, trained_on: TrainedOn) -> None:
    """Log which labels the rows that a model was not trained on lack, if all labelled rows have them.

    Without it, the lower macro F1 of these rows looks as if the model remembered the others.
    """
    if not isinstance(task, Labelled):
        return
    new = ~trained_on.rows_seen(examples.sentences)
    if new.sum() < 2:  # which are not scored
        return
    lines = without_rows(task, examples.gold[new])
    if lines != without_rows(task, examples.gold):
        rows = f"{new.sum():,} rows not trained on"
        logger.warning("%s: %s: of the %s, %s", task.name, examples.source, rows, *lines)


def evaluate(
    model: MultitaskModel,
    rows: "Mapping[str, LabelledData] | pandas.DataFrame",
    trained_on: TrainedOn = NOTHING_KNOWN,
    tasks: Sequence[str] | None = None,
) -> TaskEvaluation:
    """Evaluate a model on labelled rows of its tasks. The model must be in eval mode.

    Args:
        model: the model.
        rows: of each task; or a data frame with the columns that the tasks declare.
        trained_on: what the model was trained on; by default no overlap with it is looked for.
        tasks: of a data frame, the tasks to evaluate; by default all tasks of the model.

    Raises:
        InputError: some outputs are not finite, or the data frame lacks a column or has values that are not legal.
    """
    if is_frame(rows):
        of_model = {name: model.tasks[name] for name in tasks_for(model, None, tasks)}
        named = {name: replace(task, files=replace(task.files, id=None)) for name, task in of_model.items()}
        of_task = {n: replace(table_of(rows), format=task.file_format.of_form(".parquet")) for n, task in named.items()}
        read = {name: examples_of(task, of_task[name], FRAME, labelled=True) for name, task in named.items()}
        rows = {name: model.tokenised(name, found) for name, found in read.items()}
    examples = {name: data.examples for name, data in rows.items()}
    return TaskEvaluation.of(model.tasks, estimate(model, rows), examples, trained_on)


def write_evaluation(
    folder: Path,
    tasks: Mapping[str, ScoresWithOverlap],
    mains: Mapping[str, Main],
    answers: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    more: Mapping[str, Any],
) -> None:
    """Write evaluation.json, and each task's labels and predictions, [rows, ...] each, as predictions.npz.

    The arrays are called `{task}_labels` and `{task}_predictions`; `more` are further entries of evaluation.json.
    """
    arrays: dict[str, Any] = {}
    for name, (labels, predictions) in answers.items():
        arrays |= {f"{name}_labels": labels, f"{name}_predictions": predictions}
    with atomic_file(folder / "predictions.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    scores = {name: float(select(tasks[name].scores)) for name, (_, select) in mains.items()}
    measures = {name: metric for name, (metric, _) in mains.items()}
    evaluation = {
        "overall": _mean(scores[name] for name, measure in measures.items() if measure not in LOWER_IS_BETTER),
        "scores": scores,
        "measures": measures,
        "metrics": {name: task.scores for name, task in tasks.items()},
        "overlap": {name: task.summary(mains[name][1]) for name, task in tasks.items()},
        **more,
    }
    write_json(folder / "evaluation.json", evaluation)

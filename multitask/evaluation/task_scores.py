"""A model's estimates on the tasks' data sets, and the course's prediction files."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_file, write_json, write_text
from multitask.base.device import Runtime
from multitask.base.progress import OnRows, RowsDone, untold
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples, LabelledData
from multitask.data.read_tables import FRAME, table_of
from multitask.evaluation.statistics import Answers
from multitask.evaluation.training_overlap import Main, ScoresWithOverlap
from multitask.models.multitask_model import MultitaskModel, outputs, tasks_for
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import Classification, MultiLabel
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import examples_of, load_rows
from multitask.tasks.scores import LOWER_IS_BETTER, Metric
from multitask.tasks.task import Split, Task

Estimates = Mapping[str, NDArray[np.float64]]
"""For each task the values that `Task.estimate` gives, [rows, ...] in file order."""
OF_THE_MODEL = ("name", "metric", "weight", "prediction_file", "prediction_column")
"""Fields of a task that do not say where and how its files are read."""


def load_split(
    model: MultitaskModel,
    data: Path,
    split: Split,
    tasks: Sequence[str] | None = None,
    labelled: bool | None = None,
) -> dict[str, LabelledData]:
    """The data of a split, tokenised as the model reads it, for `tasks` or for all tasks that the model has a head for.

    Args:
        model: with its own declarations of the tasks.
        data: a tasks file, or the folder of the course's files.
        split: name of the split.
        tasks: names of tasks.
        labelled: whether to read labels; by default of all but the test rows.

    Raises:
        InputError: a missing or malformed file, or a model whose tasks differ from the tasks of `data`.
    """
    found, names = load_tasks(data), tasks or tuple(model.tasks)
    if undeclared := [name for name in names if name not in found]:
        raise InputError(
            f'{data}: the model\'s task "{undeclared[0]}" is not declared there, only {", ".join(found)}; give the '
            "tasks file that the model was trained with (--tasks-file)"
        )
    examples = {name: load_rows(located(model.tasks[name], found[name]), split, labelled) for name in names}
    return {name: tokenised(model, name, rows) for name, rows in examples.items()}


def located(task: Task, declared: Task) -> Task:
    """A model's task with the files of a declaration. Raises InputError if the two are different tasks."""
    if type(task) is not type(declared):
        raise declared.problem(f"kind is {declared.kind}; the model was trained for {task.kind}")
    where = [field.name for field in fields(Task) if field.name not in OF_THE_MODEL]
    if isinstance(task, Labelled) and isinstance(declared, Labelled):
        if declared.names not in ((), task.names):
            raise declared.problem(f"labels are {', '.join(declared.names)}; the model has {', '.join(task.names)}")
        where += ["aliases", "labels"] if declared.labels else ["aliases"]  # which may be declared as numbers
    return replace(task, **{name: getattr(declared, name) for name in where})


def tokenised(model: MultitaskModel, task: str, examples: Examples) -> LabelledData:
    """Examples of a task, tokenised as the model reads them."""
    return LabelledData.tokenised(examples, model.tokenizer, model.max_length, model.reads_jointly(task))


def estimate(
    model: MultitaskModel, data: Mapping[str, LabelledData], runtime: Runtime
) -> dict[str, NDArray[np.float64]]:
    """A model's estimates for all rows, in file order. The model must be in eval mode.

    Shows how many rows are done. Raises InputError if some outputs are not finite.
    """
    with RowsDone(sum(map(len, data.values()))) as shown:
        raw = {name: raw_outputs(model, name, rows, runtime, shown.add) for name, rows in data.items()}
    return {name: model.tasks[name].estimate(values) for name, values in raw.items()}


def raw_outputs(
    model: MultitaskModel, task: str, data: LabelledData, runtime: Runtime, on_rows: OnRows = untold
) -> NDArray[np.float32]:
    """The outputs of a task's head for all rows, in file order."""
    return outputs(model, [task], data.lengths, data.sequences, runtime, on_rows)[task]


def tune(
    model: MultitaskModel, dev: Mapping[str, LabelledData], calibrate: bool, runtime: Runtime
) -> dict[str, NDArray[np.float64]]:
    """Store in a model, in eval mode, what its tasks choose on their labelled dev sets; returns its estimates.

    These are thresholds and, if `calibrate`, temperatures. Raises InputError if some outputs are not finite.
    """
    estimates = {}
    for name, rows in dev.items():
        labels = rows.examples.gold
        raw = raw_outputs(model, name, rows, runtime)
        task = model.tasks[name].calibrated(raw, labels) if calibrate else model.tasks[name]
        estimates[name] = task.estimate(raw)
        model.tasks[name] = task.tuned(estimates[name], labels)
    return estimates


def write_predictions(
    tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples], split: Split, folder: Path
) -> list[Path]:
    """Write prediction files of the rows in file order: of the course's tasks with lines `id , value`, others as csv.

    Of a task without ids, a row's id is its number in its file, as errors name it. Returns the files:
    `{sst,para,sts,cfimdb}-{dev,test}-output.csv` of the course's tasks; of other tasks the task's name is the first
    part.
    """
    paths = []
    for name, values in estimates.items():
        task, rows = tasks[name], examples[name]
        assert rows.numbers is not None, "rows of files have numbers"
        ids = rows.ids or map(str, rows.numbers)
        answers = zip(ids, written(task, task.decide(values)), strict=True)
        if task.prediction_file is None:
            text = pandas.DataFrame(answers, columns=["id", task.prediction_column or name]).to_csv(index=False)
        else:
            header = f"id \t {task.prediction_column or name} \n"
            text = header + "".join(f"{i} , {value} \n" for i, value in answers)
        paths.append(folder / f"{task.prediction_file or name}-{split}-output.csv")
        write_text(paths[-1], text)
    return paths


def written(task: Task, labels: NDArray[Any]) -> list[Any]:
    """Labels or decisions, as files show them: names of classes, names of labels in one text, or numbers."""
    if isinstance(task, MultiLabel):
        return ["|".join(compress(task.names, row)) for row in labels]
    if isinstance(task, Classification):
        return [task.names[int(label)] for label in labels]
    return [float(str(label)) for label in labels]  # the shortest decimals: 9.8, where fp32 has 9.80000019


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


def score(tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples]) -> MultitaskScores:
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
            return ScoresWithOverlap.of(
                lambda rows: tasks[name].metrics(values[rows], labels[rows]), examples[name].sentences, trained_on
            )

        parts = {name: overlap(name, values) for name, values in estimates.items()}
        metrics = {name: dict(part.scores) for name, part in parts.items()}
        scores = MultitaskScores(metrics, {name: tasks[name].metric for name in metrics})
        return cls(tasks, examples, estimates, scores, parts, trained_on.unknown)

    @property
    def answers(self) -> dict[str, Answers]:
        """The answers to each task's rows."""
        found = {}
        for name, values in self.estimates.items():
            task, labels = self.tasks[name], self.examples[name].gold
            classes = len(task.labels) if isinstance(task, Classification) else None
            predictions = values if task.metric == "average_precision" else task.decide(values)
            found[name] = Answers(labels, predictions, task.metric, classes, self.scores.tasks[name])
        return found

    def write(self, folder: Path, more: Mapping[str, Any]) -> None:
        """Write evaluation.json with `more` entries, and predictions.npz, as `write_evaluation` describes."""
        answers = {name: (found.labels, found.predictions) for name, found in self.answers.items()}
        mains = {name: (self.tasks[name].metric, itemgetter(self.tasks[name].metric)) for name in self.overlap}
        write_evaluation(folder, self.overlap, mains, answers, {"unknown": self.unknown, **more})


def evaluate(
    model: MultitaskModel,
    rows: Mapping[str, LabelledData] | pandas.DataFrame,
    trained_on: TrainedOn = NOTHING_KNOWN,
    runtime: Runtime | None = None,
    tasks: Sequence[str] | None = None,
) -> TaskEvaluation:
    """Evaluate a model on labelled rows of its tasks. The model must be in eval mode.

    Args:
        model: the model.
        rows: of each task; or a data frame with the columns that the tasks declare.
        trained_on: what the model was trained on; by default no overlap with it is looked for.
        runtime: device and precision; by default the model's own.
        tasks: of a data frame, the tasks to evaluate; by default all tasks of the model.

    Raises:
        InputError: some outputs are not finite, or the data frame lacks a column or has values that are not legal.
    """
    if isinstance(rows, pandas.DataFrame):
        named = {name: model.tasks[name] for name in tasks_for(model, None, tasks)}
        of_task = {n: replace(table_of(rows), format=task.file_format.of_form(".parquet")) for n, task in named.items()}
        read = {name: examples_of(task, of_task[name], FRAME, labelled=True) for name, task in named.items()}
        rows = {name: tokenised(model, name, found) for name, found in read.items()}
    examples = {name: data.examples for name, data in rows.items()}
    return TaskEvaluation.of(model.tasks, estimate(model, rows, runtime or model.runtime), examples, trained_on)


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

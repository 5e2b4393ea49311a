"""Scores of a model's predictions on the tasks' data sets, also without the rows that it was trained on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples
from multitask.evaluation.task_predictions import Estimates
from multitask.evaluation.training_overlap import ScoresWithOverlap, SeenRows, scores_with_overlap
from multitask.tasks.task import Task, selecting


@dataclass(frozen=True)
class MultitaskScores:
    """All metrics of several tasks, and each task's own score."""

    metrics: dict[str, dict[str, Any]]
    tasks: dict[str, float]
    selecting: dict[str, float]  # those that models may be selected on

    @property
    def overall(self) -> float:
        """Mean of the tasks' own scores, which the course's leaderboard shows; NaN if one of them is undefined.

        Scores of which lower ones are better are left out.
        """
        return float(np.mean(list(self.selecting.values()))) if self.selecting else math.nan


def score(tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples]) -> MultitaskScores:
    """Scores of the tasks' estimates on labelled examples."""
    metrics = {name: tasks[name].metrics(values, labels_of(examples[name])) for name, values in estimates.items()}
    scores = {name: float(found[tasks[name].metric]) for name, found in metrics.items()}
    return MultitaskScores(metrics, scores, selecting(tasks, scores))


def labels_of(examples: Examples) -> NDArray[np.float32]:
    """The labels of examples that have them."""
    assert examples.labels is not None, "labelled splits have labels"
    return examples.labels


def overlap(
    tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples], trained_on: TrainedOn
) -> dict[str, ScoresWithOverlap[dict[str, Any]]]:
    """How many of each task's labelled rows a model was trained on, and the metrics with and without these rows."""

    def result(name: str, values: NDArray[Any]) -> ScoresWithOverlap[dict[str, Any]]:
        labels, columns = labels_of(examples[name]), examples[name].sentences
        return scores_with_overlap(
            lambda rows: tasks[name].metrics(values[rows], labels[rows]), columns, SeenRows.of(trained_on, columns)
        )

    return {name: result(name, values) for name, values in estimates.items()}

"""Scores of a model's predictions on the tasks' data sets, also without the rows that it was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multitask.data.contamination import TrainedOn
from multitask.data.labelled_data import LabelledData
from multitask.data.read_task_files import Examples
from multitask.evaluation.task_predictions import predict
from multitask.evaluation.training_overlap import ScoresWithOverlap, SeenRows, scores_with_overlap
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import Runtime
from multitask.tasks.all_tasks import TASKS


@dataclass(frozen=True)
class MultitaskScores:
    """All metrics of several tasks, and each task's own score."""

    metrics: dict[str, dict[str, Any]]
    tasks: dict[str, float]

    @property
    def overall(self) -> float:
        """Mean of the tasks' own scores, which the course's leaderboard shows."""
        return float(np.mean(list(self.tasks.values())))


def score(predictions: Mapping[str, NDArray[Any]], examples: Mapping[str, Examples]) -> MultitaskScores:
    """Scores of the tasks' predictions, [rows] in file order, on labelled examples."""
    metrics = {}
    for name, values in predictions.items():
        labels = examples[name].labels
        assert labels is not None, "labelled splits have labels"
        metrics[name] = TASKS[name].kind.metrics(values, labels)
    return MultitaskScores(metrics, {name: metrics[name][TASKS[name].kind.metric] for name in metrics})


def overlap(
    predictions: Mapping[str, NDArray[Any]], examples: Mapping[str, Examples], trained_on: TrainedOn
) -> dict[str, ScoresWithOverlap[dict[str, Any]]]:
    """How many of each task's labelled rows a model was trained on, and the metrics with and without these rows."""

    def result(name: str, values: NDArray[Any]) -> ScoresWithOverlap[dict[str, Any]]:
        labels, columns = examples[name].labels, examples[name].sentences
        assert labels is not None, "labelled splits have labels"
        return scores_with_overlap(
            lambda rows: TASKS[name].kind.metrics(values[rows], labels[rows]), columns, SeenRows.of(trained_on, columns)
        )

    return {name: result(name, values) for name, values in predictions.items()}


def evaluate(model: MultitaskModel, data: Mapping[str, LabelledData], runtime: Runtime) -> MultitaskScores:
    """Scores of a model in eval mode on labelled data."""
    return score(predict(model, data, runtime), {name: split.examples for name, split in data.items()})

"""Scores with their intervals over resampled dev rows: of an evaluation, or of a training that kept its estimates."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import read_arrays, read_json
from multitask.evaluation.kept_estimates import kept_estimates
from multitask.evaluation.resampled_scores import resampled_scores
from multitask.evaluation.statistics import Uncertain
from multitask.evaluation.task_predictions import load_examples
from multitask.models.model_folder import read_description
from multitask.models.multitask_model import stored_tasks
from multitask.runtime.random_streams import generator
from multitask.tasks.metrics import LOWER_IS_BETTER, Metric


@dataclass(frozen=True)
class Answers:
    """A task's labels and predictions, as `resampled_scores` takes them, and their score."""

    score: float
    labels: NDArray[Any]
    predictions: NDArray[Any]
    metric: Metric
    classes: int | None

    def resampled(self, task: str) -> NDArray[np.float64]:
        """The scores on resampled rows, [samples]: the same rows as in a report."""
        draws = generator(0, "resampled examples", task)
        return resampled_scores(self.labels, self.predictions[None], self.metric, draws, classes=self.classes)[:, 0]


def answers_of_evaluation(folder: Path) -> dict[str, Answers]:
    """The answers that the stage `evaluate`, or `ensemble`, wrote into a folder."""
    found = read_json(folder / "evaluation.json", dict)
    arrays = read_arrays(folder / "predictions.npz")
    return {
        name: Answers(
            score,
            arrays[f"{name}_labels"],
            arrays[f"{name}_predictions"],
            found["measures"][name],
            len(found["metrics"][name].get("confusion", ())) or None,
        )
        for name, score in found["scores"].items()
    }


def answers_of_training(model: Path, data: Path, computing: Mapping[str, Any]) -> dict[str, Answers]:
    """The answers of a model that a training kept, if their rows are still the dev sets of the data.

    `computing` is what `Runtime.describe` gave in training. Raises InputError if a file of the data is gone.
    """
    description = read_description(model)
    if description is None:
        return {}
    tasks = stored_tasks(model, description)
    rows = load_examples(tasks, data, "dev")
    found = {}
    for name, values in kept_estimates(model, rows, computing).items():
        task, labels = tasks[name], rows[name].gold
        predictions = values if task.metric == "average_precision" else task.decide(values)
        classes = task.outputs if task.kind == "classification" else None
        found[name] = Answers(task.score(values, labels), labels, predictions, task.metric, classes)
    return found


def scores_with_intervals(answers: Mapping[str, Answers]) -> dict[str, tuple[float, float, float]]:
    """Each score and the mean of those where higher is better, `overall`, with the bounds of its 95% interval."""
    draws = {name: (of.score, of.resampled(name)) for name, of in answers.items()}
    meant = [draws[name] for name, of in answers.items() if of.metric not in LOWER_IS_BETTER]
    if meant:
        scores, resampled = zip(*meant, strict=True)
        draws = {"overall": (float(np.mean(scores)), np.mean(resampled, axis=0)), **draws}
    return {name: (score, *Uncertain(score, values).interval()) for name, (score, values) in draws.items()}

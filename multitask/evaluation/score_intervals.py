"""A model's answers on a labelled set, and the interval of its score over resampled rows. Imports no torch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multitask.evaluation.resampled_scores import resampled_scores
from multitask.evaluation.statistics import Uncertain, Values
from multitask.runtime.random_streams import generator
from multitask.tasks.metrics import LOWER_IS_BETTER, Metric


class Answers(NamedTuple):
    """A model's answers to a task's rows, as `resampled_scores` takes them."""

    labels: NDArray[Any]  # [rows] or [rows, labels], in file order
    predictions: NDArray[Any]  # of the same shape
    metric: Metric
    classes: int | None  # of a classification
    score: float


def draws_of(task: str) -> np.random.Generator:
    """Draws a task's resampled rows, the same ones for all models and wherever they are shown."""
    return generator(0, "resampled examples", task)


def scores_with_intervals(answers: Mapping[str, Answers]) -> dict[str, Uncertain]:
    """Each task's score, and the mean of those where higher is better, `overall`, over resampled rows."""
    found: dict[str, tuple[float, Values]] = {}
    for task, (labels, predictions, metric, classes, score) in answers.items():
        drawn = resampled_scores(labels, predictions[None], metric, draws_of(task), classes=classes)
        found[task] = score, drawn[:, 0]
    if meant := [found[task] for task, of in answers.items() if of.metric not in LOWER_IS_BETTER]:
        scores, drawn_scores = zip(*meant, strict=True)
        found = {"overall": (float(np.mean(scores)), np.mean(drawn_scores, axis=0)), **found}
    return {name: Uncertain(score, values) for name, (score, values) in found.items()}

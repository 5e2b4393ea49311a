"""Scores of several models on resampled examples, computed for all models and many resamples at once.

A resample is a weight for each example: how often it was drawn, as a share of all draws. Imports no torch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multitask.evaluation.statistics import ROUNDING, SAMPLES, Values
from multitask.tasks.metrics import Metric, rounding

CHUNK = 200_000  # number of weights that are computed at once, so that they fit into the processor's cache


def resampled_scores(
    labels: NDArray[Any],
    predictions: NDArray[Any],
    metric: Metric,
    draws: np.random.Generator,
    samples: int = SAMPLES,
    classes: int | None = None,
) -> Values:
    """Scores of all models on resampled examples; all models are scored on the same resamples.

    Scores are those of `multitask.tasks.metrics`. On a resample where a score is undefined, it is NaN.

    Args:
        labels: [examples], or [examples, labels] of several labels a row.
        predictions: [models, *shape of labels], in the labels' units; of average precision, probabilities; of nDCG,
            that of each query.
        metric: kind of score.
        draws: draws the examples. The draws depend only on it and on the number of examples.
        samples: number of resamples, each with as many examples as there are.
        classes: number of classes of a classification, for macro F1; None: those that occur.

    Returns:
        [samples, models].
    """
    score = SCORES[metric, labels.ndim]
    if metric in ("macro_f1", "matthews") and labels.ndim == 1:
        score = partial(score, classes=classes or int(max(labels.max(), predictions.max())) + 1)
    size, parts = len(labels), []
    for start in range(0, samples, max(1, CHUNK // size)):
        rows = min(max(1, CHUNK // size), samples - start)
        drawn = draws.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)
        parts.append(score(counts / size, labels, predictions))
    return np.concatenate(parts)


def _accuracy(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    right = predictions == labels
    return weights @ (right if labels.ndim == 1 else right.all(axis=2)).T.astype(np.float64)


def _class_f1(weights: Values, labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> Values:
    gold = _class_weights(weights, labels, classes)
    scores = []
    for model in predictions:
        hits = _class_weights(weights, labels, classes, model == labels)
        scores.append(_f1(hits, gold + _class_weights(weights, model, classes)).mean(axis=1))
    return np.stack(scores, axis=1)


def _matthews(weights: Values, labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> Values:
    gold = _class_weights(weights, labels, classes)
    right = _accuracy(weights, labels, predictions)
    scores = np.empty_like(right)
    for place, model in enumerate(predictions):
        predicted = _class_weights(weights, model, classes)
        spread = (1 - (gold**2).sum(axis=1)) * (1 - (predicted**2).sum(axis=1))
        excess = right[:, place] - (gold * predicted).sum(axis=1)
        scores[:, place] = excess / np.sqrt(np.where(spread > ROUNDING, spread, np.nan))
    return scores


def _class_weights(
    weights: Values, numbers: NDArray[Any], classes: int, counted: NDArray[np.bool_] | None = None
) -> Values:
    """The weight of the examples of each class, [samples, classes]; only of `counted` ones."""
    size = len(numbers)
    ones = np.ones(size) if counted is None else counted.astype(np.float64)
    indicator = csr_array((ones, (np.arange(size), numbers.astype(np.int64))), shape=(size, classes))
    return np.asarray(weights @ indicator)


def _label_f1(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    gold = labels.astype(np.float64)
    scores = [_f1(weights @ (model * gold), weights @ (model + gold)).mean(axis=1) for model in predictions]
    return np.stack(scores, axis=1)


def _average_precision(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    """Mean over the labels that occur in a resample."""
    gold = labels > 0.5
    occurs = (weights @ gold.astype(np.float64)) > 0  # [samples, labels]
    scores = []
    for model in predictions:
        columns = [_label_precision(weights, *column) for column in zip(gold.T, model.T, strict=True)]
        scores.append(np.sum(columns, axis=0) / np.where(occurs.any(axis=1), occurs.sum(axis=1), np.nan))
    return np.stack(scores, axis=1)


def _label_precision(weights: Values, gold: NDArray[np.bool_], scores: NDArray[Any]) -> Values:
    """Average precision of one label, [samples]: the sum over thresholds of precision times the gain in recall."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # equal scores have one threshold
    ranked = weights[:, order]
    found = np.cumsum(ranked, axis=1)[:, last]
    hits = np.cumsum(ranked * gold[order], axis=1)[:, last]
    gains = np.diff(hits, axis=1, prepend=0.0)
    return _ratio((gains * _ratio(hits, found)).sum(axis=1), hits[:, -1])


def _absolute_error(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    return weights @ np.abs(predictions.astype(np.float64) - labels).T


def _kappa(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    middle = labels.mean(dtype=np.float64)
    x, y = labels - middle, predictions - middle
    by_chance = (weights @ x**2)[:, None] + weights @ (y**2).T - 2 * (weights @ x)[:, None] * (weights @ y.T)
    error = weights @ ((predictions.astype(np.float64) - labels) ** 2).T
    return 1 - error / np.where(by_chance > ROUNDING, by_chance, np.nan)


def _root_of_squared_error(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    return np.sqrt(weights @ ((predictions.astype(np.float64) - labels) ** 2).T)


def _f1(hits: Values, counts: Values) -> Values:
    """F1 from true positives, and predicted plus gold ones."""
    return _ratio(2 * hits, counts)


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Values:
    """Element by element; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


def _correlation(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    x, mean_x, variance_x = _moments(weights, labels[None])
    y, mean_y, variance_y = _moments(weights, predictions)
    return (weights @ (x * y).T - mean_x * mean_y) / np.sqrt(variance_x * variance_y)


def _rank_correlation(weights: Values, labels: NDArray[Any], predictions: NDArray[Any]) -> Values:
    """Spearman correlation. Ranks are computed within the resampled examples, so they depend on the weights."""
    x = _weighted_ranks(weights, labels)
    variance_x = np.einsum("sn,sn,sn->s", weights, x, x)
    scores = np.zeros((len(weights), len(predictions)))
    for place, model in enumerate(predictions):
        y = _weighted_ranks(weights, model)
        weighted = weights * y
        variance = variance_x * np.einsum("sn,sn->s", weighted, y)
        scores[:, place] = np.einsum("sn,sn->s", weighted, x) / np.sqrt(np.where(variance > 0, variance, np.nan))
    vary = [np.isfinite(_moments(weights, values)[2]) for values in (labels[None], predictions)]
    return np.where(vary[0] & vary[1], scores, np.nan)


def _weighted_ranks(weights: Values, values: NDArray[Any]) -> Values:
    """Mean rank of each example among the weighted examples, [samples, examples], as a share of all, minus one half."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    totals = weights[:, np.argsort(values, kind="stable")]
    if len(sizes) < len(values):  # ties: sum their weights
        totals = np.add.reduceat(totals, np.cumsum(sizes) - sizes, axis=1)
    ranks = np.cumsum(totals, axis=1) - totals / 2 - 0.5
    return np.asarray(ranks[:, group])


def _moments(weights: Values, values: NDArray[Any]) -> tuple[Values, Values, Values]:
    """Values [models, examples] less their mean, so that moments lose no digits; mean and variance [samples, models].

    The variance is NaN if it may be that of rounding: values that differ by w at most have a variance of w² / 4 at most
    (Popoviciu).
    """
    centred = values - values.mean(axis=1, keepdims=True, dtype=np.float64)
    mean = weights @ centred.T
    variance = weights @ (centred**2).T - mean**2
    return centred, mean, np.where(variance > rounding(values) ** 2 / 4, variance, np.nan)


Score = Callable[..., Values]
"""From weights [samples, examples], labels and all models' predictions to scores [samples, models]."""
SCORES: dict[tuple[Metric, int], Score] = {
    ("accuracy", 1): _accuracy,
    ("macro_f1", 1): _class_f1,
    ("matthews", 1): _matthews,
    ("mae", 1): _absolute_error,
    ("kappa", 1): _kappa,
    ("pearson", 1): _correlation,
    ("spearman", 1): _rank_correlation,
    ("rmse", 1): _root_of_squared_error,
    ("ndcg", 1): lambda weights, labels, predictions: weights @ predictions.T,
    ("accuracy", 2): _accuracy,
    ("macro_f1", 2): _label_f1,
    ("average_precision", 2): _average_precision,
}
"""How a metric is computed from weighted examples, whose labels have one dimension or two."""

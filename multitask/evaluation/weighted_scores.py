"""The scores of `multitask.tasks.scores` on weighted examples, for all samples of a bootstrap at once.

Every function maps weights [samples, examples], which sum to 1 in each sample, labels, and all models' predictions to
scores [samples, models].
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multitask.tasks.scores import Metric, rounding

Floats = NDArray[np.float64]
LEAST_SPREAD = 1e-12  # smaller variances of numbers of size 1 count as zero


def _accuracy(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    right = predictions == labels
    return weights @ (right if labels.ndim == 1 else right.all(axis=2)).T.astype(np.float64)


def _class_f1(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> Floats:
    gold, occurs = _class_weights(weights, labels, classes), np.isin(np.arange(classes), labels)
    scores = []
    for model in predictions:
        hits = _class_weights(weights, labels, classes, model == labels)
        scores.append(_macro_f1(hits, gold + _class_weights(weights, model, classes), occurs))
    return np.stack(scores, axis=1)


def _matthews(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> Floats:
    gold = _class_weights(weights, labels, classes)
    right = _accuracy(weights, labels, predictions)
    scores = np.empty_like(right)
    for place, model in enumerate(predictions):
        predicted = _class_weights(weights, model, classes)
        spread = (1 - (gold**2).sum(axis=1)) * (1 - (predicted**2).sum(axis=1))
        excess = right[:, place] - (gold * predicted).sum(axis=1)
        scores[:, place] = excess / np.sqrt(np.where(spread > LEAST_SPREAD, spread, np.nan))
    return scores


def _class_weights(
    weights: Floats, numbers: NDArray[Any], classes: int, counted: NDArray[np.bool_] | None = None
) -> Floats:
    """The weight of the examples of each class, [samples, classes]; only of `counted` ones."""
    size = len(numbers)
    ones = np.ones(size) if counted is None else counted.astype(np.float64)
    indicator = csr_array((ones, (np.arange(size), numbers.astype(np.int64))), shape=(size, classes))
    return np.asarray(weights @ indicator)


def _label_f1(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    gold, occurs = labels.astype(np.float64), labels.max(axis=0) > 0
    scores = [_macro_f1(weights @ (model * gold), weights @ (model + gold), occurs) for model in predictions]
    return np.stack(scores, axis=1)


def _average_precision(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    """Mean over the labels that some, and not all, rows of a resample have."""
    gold = labels > 0.5
    varies = (weights @ gold.astype(np.float64) > 0) & (weights @ (~gold).astype(np.float64) > 0)  # [samples, labels]
    counts = np.where(varies.any(axis=1), varies.sum(axis=1), np.nan)
    scores = []
    for model in predictions:
        columns = [_label_precision(weights, *column) for column in zip(gold.T, model.T, strict=True)]
        scores.append((np.stack(columns, axis=1) * varies).sum(axis=1) / counts)
    return np.stack(scores, axis=1)


def _label_precision(weights: Floats, gold: NDArray[np.bool_], scores: NDArray[Any]) -> Floats:
    """Average precision of one label, [samples]: the sum over thresholds of precision times the gain in recall."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # equal scores have one threshold
    ranked = weights[:, order]
    found = np.cumsum(ranked, axis=1)[:, last]
    hits = np.cumsum(ranked * gold[order], axis=1)[:, last]
    gains = np.diff(hits, axis=1, prepend=0.0)
    return _ratio((gains * _ratio(hits, found)).sum(axis=1), hits[:, -1])


def _absolute_error(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    return weights @ np.abs(predictions.astype(np.float64) - labels).T


def _kappa(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    middle = labels.mean(dtype=np.float64)
    x, y = labels - middle, predictions - middle
    by_chance = (weights @ x**2)[:, None] + weights @ (y**2).T - 2 * (weights @ x)[:, None] * (weights @ y.T)
    error = weights @ ((predictions.astype(np.float64) - labels) ** 2).T
    varies = weights @ x**2 - (weights @ x) ** 2 > LEAST_SPREAD
    return 1 - error / np.where(varies[:, None], by_chance, np.nan)


def _root_of_squared_error(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    return np.sqrt(weights @ ((predictions.astype(np.float64) - labels) ** 2).T)


def _macro_f1(hits: Floats, counts: Floats, occurs: NDArray[np.bool_]) -> Floats:
    """Mean F1, [samples], from true positives, and predicted plus gold ones, [samples, classes].

    In the whole set, a class that no row has counts as 0. One that `occurs` there, [classes], is left out of a resample
    in which it neither occurs nor is predicted: it would lower the score by being rare, however good the model is.
    """
    counted = ((counts > 0) | ~occurs).sum(axis=1)
    return np.asarray(_ratio(2 * hits, counts).sum(axis=1) / np.where(counted, counted, np.nan))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """Element by element; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


def _correlation(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    x, mean_x, variance_x = _moments(weights, labels[None])
    y, mean_y, variance_y = _moments(weights, predictions)
    return (weights @ (x * y).T - mean_x * mean_y) / np.sqrt(variance_x * variance_y)


def _rank_correlation(weights: Floats, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
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


def _weighted_ranks(weights: Floats, values: NDArray[Any]) -> Floats:
    """Mean rank of each example among the weighted examples, [samples, examples], as a share of all, minus one half."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    totals = weights[:, np.argsort(values, kind="stable")]
    if len(sizes) < len(values):  # ties: sum their weights
        totals = np.add.reduceat(totals, np.cumsum(sizes) - sizes, axis=1)
    ranks = np.cumsum(totals, axis=1) - totals / 2 - 0.5
    return np.asarray(ranks[:, group])


def _moments(weights: Floats, values: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """Values [models, examples] less their mean, so that moments lose no digits; mean and variance [samples, models].

    The variance is NaN if it may be that of rounding: values that differ by w at most have a variance of w² / 4 at most
    (Popoviciu).
    """
    centred = values - values.mean(axis=1, keepdims=True, dtype=np.float64)
    mean = weights @ centred.T
    variance = weights @ (centred**2).T - mean**2
    return centred, mean, np.where(variance > rounding(values) ** 2 / 4, variance, np.nan)


SCORE_FUNCTIONS: dict[tuple[Metric, int], Callable[..., Floats]] = {
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

"""Losses that tasks are trained with, and metrics that they are scored by."""

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Σ w l / Σ w of losses [rows] with the rows' weights, scalar; 0 if all weights are 0."""
    if weights is None:
        return losses.mean()
    return (weights * losses).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def focus(log_likelihood: Tensor, gamma: float) -> Tensor:
    """(1 - p)^γ, the factor by which focal loss lowers the cross-entropy of gold labels with probability p; any shape.

    Source: Lin et al. 2017, "Focal Loss for Dense Object Detection", arXiv 1708.02002, equation 4.
    """
    missed = -torch.expm1(log_likelihood)
    return missed.clamp(min=torch.finfo(missed.dtype).tiny) ** gamma  # at 0, powers below 1 have no gradient


def distance_loss(log_probabilities: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """-Σ_j log(1 - p_j) d(y, j)^α, where d is the number of classes between y and j; [rows, classes] -> [rows].

    Source: Castagnos et al. 2022, "A Simple Log-based Loss Function for Ordinal Text Classification", COLING 2022,
    OLL-α.
    """
    top = log_probabilities.argmax(dim=1, keepdim=True)
    others = log_probabilities.scatter(1, top, -torch.inf)
    # 1 - p rounds to 0 where p is close to 1: there, the other classes are added up.
    log_missed = torch.log1p(-others.exp()).scatter(1, top, others.logsumexp(dim=1, keepdim=True))
    classes = torch.arange(log_probabilities.shape[1], device=labels.device)
    distances = (classes - labels[:, None]).abs().to(log_probabilities.dtype)
    return -(log_missed * distances**alpha).sum(dim=1)


Metric = Literal[
    "accuracy", "macro_f1", "matthews", "mae", "kappa", "average_precision", "pearson", "spearman", "rmse", "ndcg"
]
ORDINAL = ("mae", "kappa")
"""Of classes whose order means something."""
LOWER_IS_BETTER = ("rmse", "mae")
"""Reported only: models are never selected on these, and "overall" leaves them out."""
RESOLUTION = 2.0**-17
"""Numbers that differ by this part of their size or less may differ by rounding alone.

The cosine of two bf16 roundings of one vector is about 1 - u²/3, where u = 2^-8 is the largest rounding error: errors
are independent and even, so u²/3 is their mean square at most. We take u²/2. In fp32, it is 128 rounding errors.
"""


def rounding(values: NDArray[Any], unit: float = 0.0) -> NDArray[Any]:
    """The largest difference of numbers [..., n] that may be rounding alone, [...].

    `unit` is the size of the numbers that they were computed from where it may be larger than their own: of cosines 1,
    of predictions the width of the range.
    """
    return RESOLUTION * np.maximum(np.abs(values).max(axis=-1), unit)


def constant(values: NDArray[Any], unit: float = 0.0) -> bool:
    """Whether numbers [n] are equal, but for rounding; see `rounding`."""
    return bool(np.ptp(values) <= rounding(values, unit))


def same_number(values: NDArray[Any]) -> str:
    """What numbers are that are `constant`, for messages."""
    low, high = values.min(), values.max()
    return f"{low:g}" if low == high else f"{low:.15g} to {high:.15g}, too close for fp32"


def score_text(score: float, form: str = "z.4f") -> str:
    """A score with four digits."""
    return format(score, form) if math.isfinite(score) else "undefined"


def classification_metrics(predictions: NDArray[Any], labels: NDArray[Any], classes: int) -> dict[str, Any]:
    """Accuracy, macro-averaged F1, Matthews correlation, and the confusion matrix [gold, predicted] as nested lists."""
    cells = classes * labels.astype(np.int64) + predictions.astype(np.int64)
    confusion = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    return {
        "accuracy": float(np.mean(predictions == labels)),
        "macro_f1": float(class_f1(confusion).mean()),
        "matthews": matthews(confusion),
        "confusion": confusion.tolist(),
    }


def ordinal_metrics(predictions: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Mean absolute error in classes, and Cohen's kappa with quadratic weights: NaN if all labels are one class.

    Source of kappa: Cohen 1968, "Weighted kappa". By chance, a prediction is independent of its label. On labels of one
    class, every prediction is as good as by chance.
    """
    found, gold = predictions.astype(np.float64), labels.astype(np.float64)
    by_chance = found.var() + gold.var() + (found.mean() - gold.mean()) ** 2
    kappa = float(1 - np.mean((found - gold) ** 2) / by_chance) if np.ptp(gold) else math.nan
    return {"mae": float(np.mean(np.abs(found - gold))), "kappa": kappa}


def class_f1(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """F1 of each class, [classes]; 0 for a class that neither occurs nor is predicted."""
    counts = confusion.sum(axis=0) + confusion.sum(axis=1)  # of each class: predicted plus gold
    return 2 * confusion.diagonal() / np.maximum(counts, 1)


def best_threshold(scores: NDArray[np.float64], gold: NDArray[np.bool_]) -> float:
    """The threshold of the best F1: halfway between two neighbouring scores [rows]; 0.5 if no row has the label."""
    if not gold.any():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(gold[order]) / (np.arange(1, len(scores) + 1) + gold.sum())
    return _threshold(scores[order], np.append(-np.inf, f1), lowest=0.0)


def most_accurate_threshold(scores: NDArray[np.float64], gold: NDArray[np.bool_]) -> float:
    """The threshold of the best accuracy, if scores [rows] above it are called positive; halfway between two scores."""
    order = np.argsort(-scores, kind="stable")
    gains = np.append(0, np.cumsum(np.where(gold[order], 1, -1)))
    return _threshold(scores[order], gains, lowest=float(np.nextafter(scores.min(), -np.inf)))


def _threshold(ranked: NDArray[np.float64], values: NDArray[Any], lowest: float) -> float:
    """The threshold between the k highest scores, of `ranked` [rows], and the others, for the largest of `values`.

    `values[k]`, [rows + 1], is that of calling the first k positive. Equal scores cannot be told apart.
    Below the last is `lowest`.
    """
    above, below = np.append(np.inf, ranked), np.append(ranked, lowest)
    best = int(np.argmax(np.where(above > below, values, -np.inf)))
    middle = (above[best] + below[best]) / 2
    return float(middle if middle < above[best] else below[best])  # no number is between two neighbouring floats


def matthews(confusion: NDArray[np.int64]) -> float:
    """Matthews correlation of a confusion matrix; NaN if all labels or all predictions are equal.

    Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient".
    """
    counts = confusion.astype(float)
    gold, predicted, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    spread = math.sqrt((total**2 - (gold**2).sum()) * (total**2 - (predicted**2).sum()))
    return float((counts.trace() * total - gold @ predicted) / spread) if spread else math.nan


def multilabel_metrics(
    predictions: NDArray[np.bool_], scores: NDArray[np.float64], labels: NDArray[np.float32]
) -> dict[str, Any]:
    """Macro F1, share of rows with all labels right, mean average precision; of [rows, labels].

    A label that no row or every row has, has no order of rows to be right about: average precision leaves it out.
    """
    from sklearn.metrics import average_precision_score

    gold = labels > 0.5
    hits, counts = (predictions & gold).sum(axis=0), predictions.sum(axis=0) + gold.sum(axis=0)
    f1 = 2 * hits / np.maximum(counts, 1)
    varies = gold.any(axis=0) & ~gold.all(axis=0)
    precision = average_precision_score(gold[:, varies], scores[:, varies]) if varies.any() else math.nan
    return {
        "accuracy": float((predictions == gold).all(axis=1).mean()),
        "macro_f1": float(f1.mean()),
        "average_precision": float(precision),
        "label_f1": f1.tolist(),
    }


def regression_metrics(predictions: NDArray[Any], labels: NDArray[Any], width: float = 0.0) -> dict[str, Any]:
    """Pearson and Spearman correlation, and the root of the mean squared error in the labels' unit.

    `width` is that of the labels' range.
    """
    error = math.sqrt(np.mean((predictions.astype(np.float64) - labels) ** 2))
    return {**correlation_metrics(predictions, labels, width), "rmse": error}


def correlation_metrics(predictions: NDArray[Any], labels: NDArray[Any], unit: float) -> dict[str, Any]:
    """Pearson and Spearman correlation; NaN if predictions or labels are all equal, but for rounding.

    `unit` is that of the predictions, as `rounding` takes it.
    """
    from scipy.stats import pearsonr, spearmanr

    if len(labels) < 2 or constant(predictions, unit) or constant(labels):
        return {"pearson": math.nan, "spearman": math.nan}
    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)  # else scipy adds in fp32
    return {
        "pearson": float(pearsonr(predictions, labels).statistic),
        "spearman": float(spearmanr(predictions, labels).statistic),
    }

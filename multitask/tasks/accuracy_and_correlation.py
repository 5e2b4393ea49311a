"""The course's scores (accuracy, Pearson correlation) and further ones, of 1-D arrays in file order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def classification_metrics(predictions: NDArray[Any], labels: NDArray[Any], classes: int) -> dict[str, Any]:
    """Accuracy, macro-averaged F1, and the confusion matrix [gold, predicted] as nested lists."""
    cells = classes * labels.astype(np.int64) + predictions.astype(np.int64)
    confusion = np.bincount(cells, minlength=classes**2).reshape(classes, classes)
    counts = confusion.sum(axis=0) + confusion.sum(axis=1)  # of each class: predicted plus gold
    f1 = 2 * confusion.diagonal() / np.maximum(counts, 1)
    return {
        "accuracy": float(np.mean(predictions == labels)),
        "macro_f1": float(f1.mean()),
        "confusion": confusion.tolist(),
    }


def correlation_metrics(predictions: NDArray[Any], labels: NDArray[Any]) -> dict[str, Any]:
    """Pearson and Spearman correlation; 0 if undefined, because predictions or labels are all equal."""
    from scipy.stats import pearsonr, spearmanr

    if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return {"pearson": 0.0, "spearman": 0.0}
    return {
        "pearson": float(pearsonr(predictions, labels).statistic),
        "spearman": float(spearmanr(predictions, labels).statistic),
    }

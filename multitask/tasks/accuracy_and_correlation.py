"""The course's scores (accuracy, Pearson correlation) and further ones, of 1-D arrays in file order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def classification_metrics(predictions: NDArray[Any], labels: NDArray[Any], classes: int) -> dict[str, Any]:
    """Accuracy, macro-averaged F1, and the confusion matrix [gold, predicted] as nested lists."""
    from sklearn.metrics import confusion_matrix, f1_score  # slow to import

    names = np.arange(classes)
    return {
        "accuracy": float(np.mean(predictions == labels)),
        "macro_f1": float(f1_score(labels, predictions, labels=names, average="macro", zero_division=0)),
        "confusion": confusion_matrix(labels, predictions, labels=names).tolist(),
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

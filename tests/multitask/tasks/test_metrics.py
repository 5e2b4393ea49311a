"""Scores against plain counting and numpy's own formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from multitask.tasks.accuracy_and_correlation import classification_metrics, correlation_metrics

CLASSES = 4
ROWS = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=50)
REAL = st.floats(-5, 5).map(lambda value: round(value, 2))


def counted(predictions, labels):
    """Accuracy, macro F1 and confusion matrix by counting."""
    pairs = list(zip(labels, predictions, strict=True))
    confusion = [[pairs.count((gold, guess)) for guess in range(CLASSES)] for gold in range(CLASSES)]
    scores = []
    for kind in range(CLASSES):
        hits, golden, guessed = confusion[kind][kind], list(labels).count(kind), list(predictions).count(kind)
        scores.append(2 * hits / (golden + guessed) if golden + guessed else 0.0)
    return sum(gold == guess for gold, guess in pairs) / len(pairs), sum(scores) / CLASSES, confusion


@given(ROWS)
def test_classification_metrics_equal_counts(rows):
    predictions, labels = map(np.array, zip(*rows, strict=True))
    accuracy, macro_f1, confusion = counted(predictions, labels)
    metrics = classification_metrics(predictions, labels, CLASSES)
    assert metrics["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert metrics["macro_f1"] == pytest.approx(macro_f1, abs=1e-12)
    assert metrics["confusion"] == confusion


def test_one_class_only():
    metrics = classification_metrics(np.zeros(6, int), np.array([0, 0, 0, 1, 1, 2]), 3)
    assert metrics["accuracy"] == 0.5
    assert metrics["macro_f1"] == pytest.approx((2 / 3) / 3)
    assert metrics["confusion"] == [[3, 0, 0], [2, 0, 0], [1, 0, 0]]


@given(st.lists(st.tuples(REAL, REAL), min_size=3, max_size=40))
def test_correlations_equal_numpys(rows):
    predictions, labels = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    metrics = correlation_metrics(predictions, labels)
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        assert metrics == {"pearson": 0.0, "spearman": 0.0}
        return
    assert metrics["pearson"] == pytest.approx(np.corrcoef(predictions, labels)[0, 1], abs=1e-9)
    assert metrics["spearman"] == pytest.approx(np.corrcoef(rankdata(predictions), rankdata(labels))[0, 1], abs=1e-9)


def test_correlations_of_perfect_and_of_degenerate_predictions():
    labels = np.array([0.0, 1.5, 2.5, 5.0], np.float32)
    assert correlation_metrics(labels**2, labels)["spearman"] == pytest.approx(1)
    assert correlation_metrics(1 - labels, labels)["pearson"] == pytest.approx(-1)
    for predictions, gold in ((np.full(4, 2.5), labels), (labels, np.full(4, 1.0)), (labels[:1], labels[:1])):
        assert correlation_metrics(predictions, gold) == {"pearson": 0.0, "spearman": 0.0}

"""Scores against scikit-learn and scipy. A score that is undefined is NaN."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    cohen_kappa_score,
    confusion_matrix,
    f1_score,
    matthews_corrcoef,
    mean_absolute_error,
    mean_squared_error,
)

from multitask.tasks.scores import (
    best_threshold,
    classification_metrics,
    most_accurate_threshold,
    multilabel_metrics,
    ordinal_metrics,
    regression_metrics,
)

CLASSES = 4
ROWS = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=50)
REAL = st.floats(-5, 5).map(lambda value: round(value, 2))


@given(ROWS)
def test_classification_metrics_equal_sklearns(rows):
    predictions, labels = map(np.array, zip(*rows, strict=True))
    metrics = classification_metrics(predictions, labels, CLASSES)
    classes = list(range(CLASSES))
    assert metrics["accuracy"] == pytest.approx(accuracy_score(labels, predictions), abs=1e-12)
    expected = f1_score(labels, predictions, labels=classes, average="macro", zero_division=0)
    assert metrics["macro_f1"] == pytest.approx(expected, abs=1e-12)
    assert metrics["confusion"] == confusion_matrix(labels, predictions, labels=classes).tolist()
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        assert math.isnan(metrics["matthews"])
    else:
        assert metrics["matthews"] == pytest.approx(matthews_corrcoef(labels, predictions), abs=1e-12)


@given(ROWS)
def test_ordinal_metrics_equal_sklearns(rows):
    predictions, labels = map(np.array, zip(*rows, strict=True))
    metrics = ordinal_metrics(predictions, labels)
    assert metrics["mae"] == pytest.approx(mean_absolute_error(labels, predictions), abs=1e-12)
    if len({*labels}) == 1:
        assert math.isnan(metrics["kappa"])
        return
    expected = cohen_kappa_score(labels, predictions, weights="quadratic", labels=range(CLASSES))
    assert metrics["kappa"] == pytest.approx(expected, abs=1e-12)


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.tuples(
                *[
                    st.lists(kind, min_size=width, max_size=width)
                    for kind in (st.sampled_from([0.1, 0.4, 0.5, 0.9]), st.booleans())
                ]
            ),
            min_size=1,
            max_size=20,
        )
    )
)
def test_multilabel_metrics_equal_sklearns(rows):
    scores, gold = (np.array(column) for column in zip(*rows, strict=True))
    predictions = scores > 0.45
    metrics = multilabel_metrics(predictions, scores, gold.astype(np.float32))
    per_label = [f1_score(gold[:, i], predictions[:, i], zero_division=0) for i in range(gold.shape[1])]
    assert metrics["label_f1"] == pytest.approx(per_label, abs=1e-12)
    assert metrics["macro_f1"] == pytest.approx(np.mean(per_label), abs=1e-12)
    assert metrics["accuracy"] == np.mean([list(a) == list(b) for a, b in zip(predictions, gold, strict=True)])
    varying = [i for i in range(gold.shape[1]) if len(set(gold[:, i])) > 1]
    if not varying:
        assert math.isnan(metrics["average_precision"])
        return
    expected = np.mean([average_precision_score(gold[:, i], scores[:, i]) for i in varying])
    assert metrics["average_precision"] == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(REAL, REAL), min_size=1, max_size=40))
def test_regression_metrics_equal_scipys(rows):
    predictions, labels = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    metrics = regression_metrics(predictions, labels)
    assert metrics["rmse"] == pytest.approx(math.sqrt(mean_squared_error(labels, predictions)), abs=1e-9)
    if len(rows) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        assert math.isnan(metrics["pearson"])
        assert math.isnan(metrics["spearman"])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant numbers
        assert metrics["pearson"] == pytest.approx(pearsonr(predictions, labels).statistic, abs=1e-9, nan_ok=True)
        assert metrics["spearman"] == pytest.approx(spearmanr(predictions, labels).statistic, abs=1e-9, nan_ok=True)


def collapsed(dtype: torch.dtype) -> np.ndarray:
    """Cosines of vectors that differ by less than their dtype tells, as an encoder gives them that has collapsed."""
    draws = np.random.default_rng(0)
    vector = draws.normal(size=384)
    rows = torch.from_numpy(vector * (1 + 1e-8 * draws.normal(size=(400, 384))))
    if dtype == torch.bfloat16:  # a sum that is rounded at each step, and then as a whole
        rows = rows * torch.from_numpy(1 + 2.0**-8 * draws.uniform(-1, 1, size=(400, 384)))
    first, second = rows.to(dtype).float().chunk(2)
    return torch.nn.functional.cosine_similarity(first, second).numpy()


NOISE = {
    "fp32": (collapsed(torch.float32), 1.0),
    "bf16": (collapsed(torch.bfloat16), 1.0),
    "scaled": (np.float32(5) * collapsed(torch.float32), 5.0),
    "middle of the range": (np.float32(2) * (collapsed(torch.float32) - np.float32(1)), 2.0),
}


@pytest.mark.parametrize("name", NOISE)
def test_numbers_that_differ_by_rounding_have_no_correlation(name):
    noise, width = NOISE[name]
    assert np.ptp(noise) > 0
    labels = np.random.default_rng(1).uniform(0, width, size=len(noise)).astype(np.float32)
    for found in (regression_metrics(noise, labels, width), regression_metrics(labels, width + noise / width, width)):
        assert math.isnan(found["pearson"])
        assert math.isnan(found["spearman"])
    real = noise + np.float32(1e-4 * width) * labels  # small, but no rounding
    assert regression_metrics(real, labels, width)["spearman"] > 0.9


def test_correlations_of_fp32_are_added_in_float64():
    draws = np.random.default_rng(0)
    labels = draws.normal(5, size=3000).astype(np.float32)
    predictions = (labels + draws.normal(size=3000)).astype(np.float32)
    x, y = (values - np.mean(values, dtype=np.float64) for values in (predictions, labels))
    expected = math.fsum(x * y) / math.sqrt(math.fsum(x * x) * math.fsum(y * y))
    assert regression_metrics(predictions, labels)["pearson"] == pytest.approx(expected, rel=3000 * 2**-53)


SCORES = st.floats(0, 1) | st.sampled_from([0.5, np.nextafter(0.5, 1), np.nextafter(0.5, 0), 1.0])


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=12))
def test_the_most_accurate_threshold_is_that_of_brute_force(rows):
    scores, gold = (np.array(column) for column in zip(*rows, strict=True))
    tried = [np.mean((scores > limit) == gold) for limit in [-1.0, *scores]]
    assert np.mean((scores > most_accurate_threshold(scores, gold)) == gold) == max(tried)


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=12))
def test_the_best_threshold_is_that_of_brute_force(rows):
    scores, gold = (np.array(column) for column in zip(*rows, strict=True))
    found = best_threshold(scores, gold)
    if not gold.any():
        assert found == 0.5
        return
    tried = [f1_score(gold, scores > limit, zero_division=0) for limit in [0.0, *scores]]
    assert f1_score(gold, scores > found, zero_division=0) == pytest.approx(max(tried))

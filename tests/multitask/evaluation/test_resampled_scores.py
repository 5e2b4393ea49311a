"""Scores on resampled examples: compared with scikit-learn and scipy on the drawn examples, one by one."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sklearn

from multitask.evaluation import statistics as module
from multitask.evaluation.statistics import DevAnswers, Uncertain, resampled_scores, scores_with_intervals
from multitask.tasks.scores import Metric

Numbers = NDArray[Any]
CLASSES, EXAMPLES, MODELS = 5, 23, 4
SINGLE: tuple[Metric, ...] = ("accuracy", "macro_f1", "matthews", "mae", "kappa", "pearson", "spearman", "rmse")
SEVERAL: tuple[Metric, ...] = ("accuracy", "macro_f1", "average_precision")


def outputs(metric: Metric, several: bool) -> tuple[Numbers, Numbers]:
    """Labels and predictions of models that are right more often than not; the last two predict a constant.

    One of these, of numbers, as an encoder computes it that has collapsed.
    """
    generator = np.random.default_rng(0)
    if several:
        labels = (generator.random((EXAMPLES, 3)) < [0.5, 0.93, 0.06]).astype(np.float32)
        scores = np.clip(0.4 * labels + 0.6 * generator.random((MODELS, EXAMPLES, 3)), 0, 1).round(1)  # with ties
        predictions = scores if metric == "average_precision" else (scores > 0.5).astype(np.float32)
    elif metric in ("accuracy", "macro_f1", "matthews", "mae", "kappa"):
        labels = generator.integers(CLASSES - 1, size=EXAMPLES).astype(np.float32)  # the last class does not occur
        wrong = generator.random((MODELS, EXAMPLES)) < 0.4
        predictions = np.where(wrong, generator.integers(CLASSES - 1, size=(MODELS, EXAMPLES)), labels)
    else:
        labels = generator.normal(size=EXAMPLES).round(0 if metric == "spearman" else 9)
        predictions = labels + generator.normal(size=(MODELS, EXAMPLES)).round(1 if metric == "spearman" else 9)
        predictions[-2] = 1 - 3e-7 * generator.random(EXAMPLES)
    predictions[-1] = predictions[-1, 0]
    return labels, predictions


def of_varying(score: Callable[[Numbers, Numbers], float]) -> Callable[[Numbers, Numbers], float]:
    return lambda gold, found: math.nan if min(np.ptp(gold), np.ptp(found)) < 1e-6 else score(gold, found)


def kappa(gold: Numbers, found: Numbers) -> float:
    return (
        math.nan
        if not np.ptp(gold)
        else sklearn.cohen_kappa_score(gold, found, weights="quadratic", labels=range(CLASSES))
    )


def average_precision(gold: Numbers, found: Numbers) -> float:
    varies = np.ptp(gold, axis=0) > 0
    return sklearn.average_precision_score(gold[:, varies], found[:, varies]) if varies.any() else math.nan


ORACLES: dict[tuple[Metric, bool], Callable[[Numbers, Numbers], float]] = {
    ("accuracy", False): sklearn.accuracy_score,
    ("macro_f1", False): lambda gold, found: sklearn.f1_score(
        gold, found, labels=range(CLASSES), average="macro", zero_division=0
    ),
    ("matthews", False): of_varying(sklearn.matthews_corrcoef),
    ("mae", False): sklearn.mean_absolute_error,
    ("kappa", False): kappa,
    ("pearson", False): of_varying(lambda gold, found: stats.pearsonr(gold, found).statistic),
    ("spearman", False): of_varying(lambda gold, found: stats.spearmanr(gold, found).statistic),
    ("rmse", False): sklearn.root_mean_squared_error,
    ("accuracy", True): sklearn.accuracy_score,
    ("macro_f1", True): lambda gold, found: sklearn.f1_score(gold, found, average="macro", zero_division=0),
    ("average_precision", True): average_precision,
}
CASES = pytest.mark.parametrize(("metric", "several"), ORACLES, ids=str)


@CASES
def test_resampled_scores_are_the_scores_of_the_drawn_examples(metric: Metric, several: bool) -> None:
    labels, predictions = outputs(metric, several)
    found = resampled_scores(labels, predictions, metric, np.random.default_rng(7), 15, None if several else CLASSES)
    assert found.shape == (15, MODELS)
    for row, drawn in zip(found, np.random.default_rng(7).integers(EXAMPLES, size=(15, EXAMPLES)), strict=True):
        for score, guesses in zip(row, predictions[:, drawn], strict=True):
            with warnings.catch_warnings():  # scikit-learn warns of a constant
                warnings.simplefilter("ignore")
                expected = ORACLES[metric, several](labels[drawn], guesses)
            assert score == pytest.approx(expected, abs=1e-9, nan_ok=True)


@CASES
def test_large_sets_are_drawn_in_pieces_with_the_same_outcome(
    metric: Metric, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, predictions = outputs(metric, several)
    whole = resampled_scores(labels, predictions, metric, np.random.default_rng(5), samples=30)
    for chunk in (1, EXAMPLES, EXAMPLES + 1, 4 * EXAMPLES):
        monkeypatch.setattr(module, "CHUNK", chunk)
        pieces = resampled_scores(labels, predictions, metric, np.random.default_rng(5), samples=30)
        np.testing.assert_allclose(pieces, whole, atol=1e-12)


@pytest.mark.parametrize("metric", ["pearson", "spearman", "matthews"])
def test_resamples_on_which_a_score_is_undefined_are_left_out_and_counted(metric: Metric) -> None:
    labels, predictions = np.array([0, 0, 1]), np.array([[0, 0, 1]])
    drawn = np.random.default_rng(0).integers(3, size=(400, 3))
    found = Uncertain(1.0, resampled_scores(labels, predictions, metric, np.random.default_rng(0), samples=400)[:, 0])
    assert found.undefined == (np.ptp(labels[drawn], axis=1) == 0).sum() > 100
    assert found.interval() == pytest.approx((1, 1))
    assert found.p_value() == pytest.approx(2 / (401 - found.undefined))
    other = resampled_scores(labels, np.array([[0, 1, 1]]), "kappa", np.random.default_rng(0), samples=400)
    assert np.isnan(other).sum() == found.undefined  # although these predictions vary


def test_the_interval_of_overall_is_that_of_the_mean_of_independent_tasks():
    """Shares of right answers among resampled rows are binomial. A score where lower is better is no part of it."""
    labels, right = np.zeros(100), {"a": 70, "b": 90}
    answers = {
        name: DevAnswers(labels, (np.arange(100) >= count).astype(float), "accuracy", 2, count / 100)
        for name, count in right.items()
    }
    answers["c"] = DevAnswers(np.arange(100.0), np.arange(100.0) + 9, "rmse", None, 9.0)
    found = scores_with_intervals(answers)
    assert list(found) == ["overall", "a", "b", "c"]
    pmf = np.convolve(*(stats.binom(100, count / 100).pmf(range(101)) for count in right.values()))
    low, high = (np.searchsorted(pmf.cumsum(), share) / 200 for share in (0.025, 0.975))
    assert found["overall"].value == pytest.approx(0.8)
    assert found["overall"].interval() == pytest.approx((low, high), abs=0.006)


def test_a_number_that_is_undefined_or_has_no_defined_resample_has_no_interval() -> None:
    same, mixed = np.full(50, math.nan), np.r_[math.nan, np.zeros(49)]
    for found in (Uncertain(1.0, same), Uncertain(1.0, same, 0.1, 2), Uncertain(math.nan, mixed)):
        assert np.isnan(found.interval()).all()
    assert math.isnan(Uncertain(1.0, same).detectable())

"""Resampled scores, intervals and tests: compared with scikit-learn, scipy, slow loops and exact cases."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sklearn

from multitask.evaluation import statistics as module
from multitask.evaluation.statistics import (
    LEVEL,
    DevAnswers,
    SampledScores,
    Uncertain,
    contrast,
    holm,
    resampled_scores,
    scores_with_intervals,
)
from multitask.tasks.scores import Metric


def outputs(measure, examples, models, generator):
    """Labels [examples] and predictions [models, examples] of models that are right more often than not."""
    if measure == "accuracy":
        labels = generator.integers(5, size=examples)
        return labels, np.where(generator.random((models, examples)) < 0.6, labels, generator.integers(5))
    labels = generator.normal(size=examples)
    return labels, labels + generator.normal(size=(models, examples))


def scores_of(observed, resampled, seeds=None):
    observed = np.asarray(observed, float)
    return SampledScores(range(len(observed)) if seeds is None else seeds, observed, np.asarray(resampled, float))


def of_seeds(observed, seeds=None, samples=10_000):
    """Scores that other examples would not change."""
    return scores_of(observed, np.tile(observed, (samples, 1)), seeds)


@pytest.mark.parametrize("measure", ["accuracy", "pearson"])
def test_the_interval_of_one_model_is_scipys_percentile_bootstrap(measure):
    labels, predictions = outputs(measure, 150, 1, np.random.default_rng(2))
    resampled = resampled_scores(labels, predictions, measure, np.random.default_rng(5))
    ours = contrast([(1, scores_of([0.0], resampled))]).interval()

    def score(x, y, axis):
        return np.mean(x == y, axis) if measure == "accuracy" else stats.pearsonr(x, y, axis=axis).statistic

    theirs = stats.bootstrap(
        (labels, predictions[0]), score, paired=True, vectorized=True, n_resamples=4000, method="percentile", rng=0
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.01)


@pytest.mark.parametrize("seeds", [3, 4, 12])
def test_where_only_seeds_vary_the_test_is_the_paired_t_test(seeds):
    draws = np.random.default_rng(seeds)
    ours, theirs, third = draws.normal(size=(3, seeds)) + 5 * draws.normal(size=seeds)
    difference, expected = contrast([(1, of_seeds(ours)), (-1, of_seeds(theirs))]), stats.ttest_rel(ours, theirs)
    assert difference.value == pytest.approx((ours - theirs).mean())
    assert difference.p_value() == pytest.approx(expected.pvalue)
    for level in (0.05, 1e-3, 1e-5):  # also beyond the number of resamples
        exact = tuple(expected.confidence_interval(1 - level))
        assert difference.interval(level) == pytest.approx(exact, rel=0.01)
    average = contrast([(0.5, of_seeds(ours)), (0.5, of_seeds(third)), (-1, of_seeds(theirs))])
    assert average.p_value() == pytest.approx(stats.ttest_rel((ours + third) / 2, theirs).pvalue)
    alone = stats.ttest_1samp(ours, 0).confidence_interval()
    assert contrast([(1, of_seeds(ours))]).interval() == pytest.approx(tuple(alone), rel=0.01)


def test_rows_are_paired_on_the_seeds_that_both_have():
    ours, theirs = np.random.default_rng(1).normal(size=(2, 6))
    expected = stats.ttest_rel(ours[1:5], theirs[1:5])
    found = contrast([(1, of_seeds(ours[:5])), (-1, of_seeds(theirs[:0:-1], range(5, 0, -1)))])
    assert found.value == pytest.approx((ours - theirs)[1:5].mean())
    assert (found.degrees, found.value / found.error) == (expected.df, pytest.approx(expected.statistic))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (6, 2)])
@pytest.mark.parametrize("common", [0, 1])
def test_rows_without_two_common_seeds_are_compared_by_welchs_test(sizes, common):
    generator = np.random.default_rng(sizes)
    first, second = generator.normal(size=sizes[0]), 5 * generator.normal(size=sizes[1])
    start = sizes[0] - common
    found = contrast([(1, of_seeds(first)), (-1, of_seeds(second, range(start, start + sizes[1])))])
    expected = stats.ttest_ind(first, second, equal_var=False)
    assert found.degrees == pytest.approx(expected.df)
    assert found.value / found.error == pytest.approx(expected.statistic)


tables = st.integers(2, 6).flatmap(
    lambda seeds: st.lists(st.lists(st.integers(0, 1000), min_size=seeds, max_size=seeds), min_size=3, max_size=5)
)


@given(tables, st.randoms(use_true_random=False), st.lists(st.integers(-1000, 1000), min_size=6, max_size=6))
def test_the_order_of_rows_and_seeds_and_what_seeds_share_change_no_contrast(table, order, shared):
    """Also, whatever other rows are like."""
    first, second, third, *_ = table
    seeds = list(range(len(first)))
    order.shuffle(seeds)
    weights, rows = (1, -0.5, -0.5), [first, second, third]
    expected = contrast([(weight, of_seeds(row, samples=10)) for weight, row in zip(weights, rows, strict=True)])
    moved = [[row[seed] + shared[seed] for seed in seeds] for row in rows]
    terms = [(weight, of_seeds(row, seeds, samples=10)) for weight, row in zip(weights, moved, strict=True)]
    order.shuffle(terms)
    found = contrast(terms)
    for name in ("value", "error", "degrees"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-9)
    assert found.examples == pytest.approx(expected.examples, abs=1e-9)


def test_identical_models_with_one_seed_do_not_differ():
    labels, predictions = outputs("accuracy", 100, 1, np.random.default_rng(3))
    resampled = resampled_scores(labels, predictions, "accuracy", np.random.default_rng(5), samples=200)
    row = scores_of([np.mean(predictions == labels)], resampled)
    assert contrast([(1, row)]).degrees == 0
    difference = contrast([(1, row), (-1, row)])
    assert difference.p_value() == 1.0
    assert difference.interval() == (0.0, 0.0)


def test_one_seed_whose_answers_are_unknown_has_no_interval_and_no_test():
    found = contrast([(1, of_seeds([0.81])), (-1, of_seeds([0.8]))])
    assert found.value == pytest.approx(0.01)
    assert np.isnan(found.interval()).all()
    assert found.p_value() == 1


def test_one_seed_keeps_its_interval_where_a_resample_is_undefined():
    resampled = np.random.default_rng(0).normal(0.8, 0.01, (500, 1))
    found = contrast([(1, scores_of([0.8], np.r_[[[math.nan]], resampled]))])
    assert found.undefined == 1
    assert found.interval() == contrast([(1, scores_of([0.8], resampled))]).interval()


def test_overall_is_the_mean_of_independent_tasks():
    draws = np.random.default_rng(4)
    tasks = [scores_of(draws.random(2), spread * draws.normal(size=(5000, 2))) for spread in (1, 2, 3)]
    overall = SampledScores.mean_of(tasks)
    assert overall.observed == pytest.approx(np.mean([task.observed for task in tasks], axis=0))
    assert overall.resampled.var(axis=0) == pytest.approx((1 + 4 + 9) / 9, rel=0.06)  # a ninth of their sum


def test_p_and_interval_agree_and_follow_mcnemars_exact_test():
    generator = np.random.default_rng(5)
    for only_first, only_second in ((30, 10), (25, 22), (12, 3)):
        labels = np.zeros(200, int)
        predictions = np.zeros((2, 200), int)
        predictions[1, :only_first] = 1
        predictions[0, only_first : only_first + only_second] = 1
        resampled = resampled_scores(labels, predictions, "accuracy", generator)
        first, second = (scores_of([0.0], resampled[:, [model]]) for model in (0, 1))
        difference = contrast([(1, first), (-1, second)])
        exact = stats.binomtest(only_first, only_first + only_second).pvalue
        assert difference.p_value() == pytest.approx(exact, abs=0.08)
        assert (difference.p_value() < 0.05) == (exact < 0.05) == (difference.interval()[0] > 0)
        assert contrast([(1, second), (-1, first)]).p_value() == pytest.approx(difference.p_value())


@pytest.mark.parametrize(("seeds", "seed_spread"), [(1, 0.0), (3, 0.05)])
def test_equal_methods_are_told_apart_at_most_as_often_as_promised(seeds, seed_spread):
    """A test at 5% of two equal methods whose models vary with the seed."""
    generator = np.random.default_rng(6)
    trials, wrong, labels = 300, 0, np.zeros(150, int)
    for _ in range(trials):
        quality = 0.7 + seed_spread * generator.normal(size=(2 * seeds, 1))
        hard = generator.random(150) * 0.3  # some examples are harder than others for every model
        predictions = (generator.random((2 * seeds, 150)) > quality + 0.15 - hard).astype(int)
        observed = (predictions == labels).mean(axis=1)
        resampled = resampled_scores(labels, predictions, "accuracy", generator, samples=400)
        ours = scores_of(observed[:seeds], resampled[:, :seeds])
        theirs = scores_of(observed[seeds:], resampled[:, seeds:])
        wrong += contrast([(1, ours), (-1, theirs)]).p_value() < 0.05
    assert wrong / trials < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("seeds", [3, 5, 20])
def test_power_is_that_of_the_paired_t_test(seeds):
    """The noncentral t distribution, averaged over the errors that as many seeds may find: that error is uncertain."""
    found = contrast([(1, of_seeds(np.linspace(-1, 1, seeds), samples=100_000))])
    freedom, shares = seeds - 1, (np.arange(2000) + 0.5) / 2000
    true_over_found = 1 / np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    critical, size = stats.t.ppf(1 - LEVEL / 2, freedom), found.detectable() / found.error
    assert stats.nct.sf(critical, freedom, size / true_over_found).mean() == pytest.approx(0.8, abs=0.01)
    assert found.detectable(5.0) == pytest.approx(5 + found.detectable(), rel=1e-9)


def test_power_by_examples_alone_is_that_of_the_normal_test():
    found = Uncertain(0.0, 0.1 * stats.norm.ppf((np.arange(10_000) + 0.5) / 10_000))
    assert found.detectable() == pytest.approx(0.1 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)), rel=0.01)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_step_by_step(p_values):
    """At every level: go up the sorted p values while the k-th smallest is at most level / (tests left)."""
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[place] * (len(p_values) - rank) > level:
                break
            rejected.add(place)
        assert {place for place, value in enumerate(adjusted) if value <= level} == rejected


# Scores on resampled examples: compared with scikit-learn and scipy on the drawn examples, one by one.


Numbers = NDArray[Any]
CLASSES, EXAMPLES, MODELS = 5, 23, 4
SINGLE: tuple[Metric, ...] = ("accuracy", "macro_f1", "matthews", "mae", "kappa", "pearson", "spearman", "rmse")
SEVERAL: tuple[Metric, ...] = ("accuracy", "macro_f1", "average_precision")


def answers_of(metric: Metric, several: bool) -> tuple[Numbers, Numbers]:
    """Labels and predictions of models that are right more often than not; the last two predict a constant.

    One of these, of numbers, as an encoder computes it that has collapsed.
    """
    generator = np.random.default_rng(0)
    if several:
        labels = (generator.random((EXAMPLES, 3)) < [0.5, 0.93, 0.06]).astype(np.float32)
        scores = np.clip(0.4 * labels + 0.6 * generator.random((MODELS, EXAMPLES, 3)), 0, 1).round(1)  # with ties
        predictions = scores if metric == "average_precision" else (scores > 0.5).astype(np.float32)
    elif metric in ("accuracy", "macro_f1", "matthews", "mae", "kappa"):
        labels = generator.integers(CLASSES - 2, size=EXAMPLES).astype(np.float32)  # the last class does not occur
        labels[-1] = CLASSES - 2  # the last but one in one row
        wrong = generator.random((MODELS, EXAMPLES)) < 0.4
        predictions = np.where(wrong, generator.integers(CLASSES - 2, size=(MODELS, EXAMPLES)), labels)
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
        gold, found, labels=sorted({*gold, *found, CLASSES - 1}), average="macro", zero_division=0
    ),  # scikit-learn's own labels, and the class that occurs in no row of the set
    ("matthews", False): of_varying(sklearn.matthews_corrcoef),
    ("mae", False): sklearn.mean_absolute_error,
    ("kappa", False): kappa,
    ("pearson", False): of_varying(lambda gold, found: stats.pearsonr(gold, found).statistic),
    ("spearman", False): of_varying(lambda gold, found: stats.spearmanr(gold, found).statistic),
    ("rmse", False): sklearn.root_mean_squared_error,
    ("accuracy", True): sklearn.accuracy_score,
    ("macro_f1", True): lambda gold, found: sklearn.f1_score(gold, found, average="macro", zero_division=np.nan),
    ("average_precision", True): average_precision,
}
CASES = pytest.mark.parametrize(("metric", "several"), ORACLES, ids=str)


@CASES
def test_resampled_scores_are_the_scores_of_the_drawn_examples(metric, several):
    labels, predictions = answers_of(metric, several)
    found = resampled_scores(labels, predictions, metric, np.random.default_rng(7), 15, None if several else CLASSES)
    assert found.shape == (15, MODELS)
    for row, drawn in zip(found, np.random.default_rng(7).integers(EXAMPLES, size=(15, EXAMPLES)), strict=True):
        for score, guesses in zip(row, predictions[:, drawn], strict=True):
            with warnings.catch_warnings():  # scikit-learn warns of a constant
                warnings.simplefilter("ignore")
                expected = ORACLES[metric, several](labels[drawn], guesses)
            assert score == pytest.approx(expected, abs=1e-9, nan_ok=True)


@CASES
def test_large_sets_are_drawn_in_pieces_with_the_same_outcome(metric, several, monkeypatch):
    labels, predictions = answers_of(metric, several)
    whole = resampled_scores(labels, predictions, metric, np.random.default_rng(5), samples=30)
    for chunk in (1, EXAMPLES, EXAMPLES + 1, 4 * EXAMPLES):
        monkeypatch.setattr(module, "WEIGHTS_PER_CHUNK", chunk)
        pieces = resampled_scores(labels, predictions, metric, np.random.default_rng(5), samples=30)
        np.testing.assert_allclose(pieces, whole, atol=1e-12)


@pytest.mark.parametrize("metric", ["pearson", "spearman", "matthews"])
def test_resamples_on_which_a_score_is_undefined_are_left_out_and_counted(metric):
    labels, predictions = np.array([0, 0, 1]), np.array([[0, 0, 1]])
    drawn = np.random.default_rng(0).integers(3, size=(400, 3))
    found = Uncertain(1.0, resampled_scores(labels, predictions, metric, np.random.default_rng(0), samples=400)[:, 0])
    assert found.undefined == (np.ptp(labels[drawn], axis=1) == 0).sum() > 100
    assert found.interval() == pytest.approx((1, 1))
    assert found.p_value() == pytest.approx(2 / (401 - found.undefined))
    other = resampled_scores(labels, np.array([[0, 1, 1]]), "kappa", np.random.default_rng(0), samples=400)
    assert np.isnan(other).sum() == found.undefined  # although these predictions vary


def test_the_interval_of_macro_f1_has_the_score_of_a_model_that_is_right_on_one_row_of_each_class():
    labels = np.arange(10)
    for right in (labels, np.eye(10, dtype=bool)):
        drawn = resampled_scores(right, right[None], "macro_f1", np.random.default_rng(0), classes=10)
        assert Uncertain(1.0, drawn[:, 0]).interval() == pytest.approx((1, 1))


def test_a_class_without_a_row_counts_as_0_in_each_resample_whether_a_model_predicts_it_or_not():
    labels, cautious = np.zeros(10, int), np.zeros(10, int)
    bold = (np.arange(10) == 0).astype(int)
    given = [np.stack([cautious, bold]), np.eye(2)[np.stack([cautious, bold])]]
    for gold, answers in zip((labels, np.eye(2)[labels]), given, strict=True):
        drawn = resampled_scores(gold, answers, "macro_f1", np.random.default_rng(0), 200, classes=2)
        assert (drawn[:, 0] == 0.5).all()
        assert (drawn[:, 1] <= drawn[:, 0]).all()


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
    # Nothing tells how an error that all rows share would vary, also if it is 0.
    answers["d"] = DevAnswers(labels, labels, "rmse", None, 0.0)
    assert np.isnan([scores_with_intervals(answers)[name].interval() for name in "cd"]).all()


def test_a_number_that_is_undefined_or_has_no_defined_resample_has_no_interval_and_no_test():
    same, mixed = np.full(50, math.nan), np.r_[math.nan, np.ones(49)]
    for found in (Uncertain(1.0, same), Uncertain(1.0, same, 0.1, 2), Uncertain(math.nan, mixed)):
        assert np.isnan(found.interval()).all()
        assert found.p_value() == 1
    assert math.isnan(Uncertain(1.0, same).detectable())

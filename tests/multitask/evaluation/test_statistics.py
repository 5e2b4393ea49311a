"""Intervals and tests: compared with scipy, slow loops and exact cases; their error rates on simulated data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from multitask.evaluation.resampled_scores import resampled_scores
from multitask.evaluation.statistics import SampledScores, Spread, contrast, holm, sides, vary_alike


def outputs(measure, examples, models, generator):
    """Labels [examples] and predictions [models, examples] of models that are right more often than not."""
    if measure == "accuracy":
        labels = generator.integers(5, size=examples)
        return labels, np.where(generator.random((models, examples)) < 0.6, labels, generator.integers(5))
    labels = generator.normal(size=examples)
    return labels, labels + generator.normal(size=(models, examples))


def scores_of(observed, resampled):
    return SampledScores(np.asarray(observed, float), np.asarray(resampled, float))


def pooled(*rows):
    return Spread.pooled([row.observed for row in rows])


@pytest.mark.parametrize("measure", ["accuracy", "pearson"])
def test_the_interval_of_one_model_is_scipys_percentile_bootstrap(measure):
    labels, predictions = outputs(measure, 150, 1, np.random.default_rng(2))
    resampled = resampled_scores(labels, predictions, measure, np.random.default_rng(5))
    ours = contrast([(1, scores_of([0.0], resampled))], Spread(0.0, 0)).interval()

    def score(x, y, axis):
        return np.mean(x == y, axis) if measure == "accuracy" else stats.pearsonr(x, y, axis=axis).statistic

    theirs = stats.bootstrap(
        (labels, predictions[0]), score, paired=True, vectorized=True, n_resamples=4000, method="percentile", rng=0
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_where_only_seeds_vary_the_test_is_students():
    """Two rows with equal spread; a third row's seeds only add degrees of freedom."""
    rows = [np.array([0.71, 0.74, 0.69, 0.72]), np.array([0.69, 0.68, 0.67]), np.array([0.31, 0.33])]
    ours, theirs, third = (scores_of(scores, np.tile(scores, (40_000, 1))) for scores in rows)
    difference = contrast([(1, ours), (-1, theirs)], pooled(ours, theirs))
    expected = stats.ttest_ind(*rows[:2])
    assert difference.value == pytest.approx(rows[0].mean() - rows[1].mean())
    assert difference.p_value() == pytest.approx(expected.pvalue, abs=0.01)
    interval = expected.confidence_interval(0.95)
    assert difference.interval() == pytest.approx((interval.low, interval.high), abs=0.001)
    spread = pooled(ours, theirs, third)
    assert spread.degrees == 6
    residuals = np.concatenate([row - row.mean() for row in rows])
    assert spread.variance == pytest.approx((residuals**2).sum() / 6)
    half = stats.t.ppf(0.975, 6) * np.sqrt(spread.variance / 2)
    assert contrast([(1, third)], spread).interval() == pytest.approx((0.32 - half, 0.32 + half), abs=0.001)


def test_one_seed_has_no_deviation_and_identical_models_do_not_differ():
    labels, predictions = outputs("accuracy", 100, 1, np.random.default_rng(3))
    resampled = resampled_scores(labels, predictions, "accuracy", np.random.default_rng(5), samples=200)
    row = scores_of([np.mean(predictions == labels)], resampled)
    assert row.deviation is None
    assert scores_of([0.5, 0.7, 0.6], np.zeros((1, 3))).deviation == pytest.approx(0.1)
    assert pooled(row, row) == Spread(0.0, 0)
    difference = contrast([(1, row), (-1, row)], pooled(row, row))
    assert difference.p_value() == 1.0
    assert difference.interval() == (0.0, 0.0)


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
        difference = contrast([(1, first), (-1, second)], Spread(0.0, 0))
        exact = stats.binomtest(only_first, only_first + only_second).pvalue
        assert difference.p_value() == pytest.approx(exact, abs=0.08)
        assert (difference.p_value() < 0.05) == (exact < 0.05) == (difference.interval()[0] > 0)
        assert contrast([(1, second), (-1, first)], Spread(0.0, 0)).p_value() == pytest.approx(difference.p_value())


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
        wrong += contrast([(1, ours), (-1, theirs)], pooled(ours, theirs)).p_value() < 0.05
    assert wrong / trials < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (6, 2)])
def test_the_spread_of_two_different_rows_is_welchs(sizes):
    generator = np.random.default_rng(sizes)
    first, second = generator.normal(size=sizes[0]), 5 * generator.normal(size=sizes[1])
    spread, expected = Spread.welch([(1.0, first), (-1.0, second)]), stats.ttest_ind(first, second, equal_var=False)
    assert spread.degrees == pytest.approx(expected.df)
    error = np.sqrt(spread.variance * (1 / sizes[0] + 1 / sizes[1]))
    assert (first.mean() - second.mean()) / error == pytest.approx(expected.statistic)


def test_rows_that_are_averaged_may_share_chance():
    generator = np.random.default_rng(3)
    first, second, other = generator.normal(size=(3, 5))
    spread = Spread.welch([(0.5, first), (0.5, second), (-1.0, other)])
    expected = stats.ttest_ind((first + second) / 2, other, equal_var=False)
    assert spread.degrees == pytest.approx(expected.df)
    error = np.sqrt(spread.variance * (0.25 + 0.25 + 1) / 5)
    assert ((first + second).mean() / 2 - other.mean()) / error == pytest.approx(expected.statistic)
    np.testing.assert_allclose(sides([(0.5, first), (-1.0, other), (0.5, second)]), [(first + second) / 2, -other])


def test_rows_vary_alike_as_far_as_bartletts_test_tells():
    steady, wild = np.array([0.1, 0.2, 0.3]), np.array([-9.0, 0.0, 8.0])
    assert vary_alike([steady, steady + 1])
    assert not vary_alike([steady, wild])
    for twice in (wild / 9, wild / 20, wild / 40):
        assert vary_alike([steady, twice]) == (stats.bartlett(steady, twice).pvalue >= 0.05)
    assert vary_alike([wild, np.zeros(1)])  # one seed tells nothing of a row's variance
    assert vary_alike([steady, np.full(3, 0.7)])  # a tie is chance
    assert not vary_alike([steady, np.full(3, 0.7), wild])
    assert vary_alike([np.full(3, 0.1), np.full(3, 0.7)])
    assert all(vary_alike([np.array([0.49, 0.5, 0.51])] * rows) for rows in range(1, 30))
    assert vary_alike([])


def test_a_spread_needs_two_seeds_of_every_row():
    assert Spread.welch([(1.0, np.ones(3)), (-1.0, np.ones(1))]) == Spread(0.0, 0)
    assert Spread.welch([(1.0, np.ones(3)), (-1.0, np.ones(2))]) == Spread(0.0, 3)


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

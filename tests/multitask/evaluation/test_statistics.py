"""Intervals and tests: compared with scipy, slow loops and exact cases; their error rates on simulated data."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from multitask.evaluation.statistics import LEVEL, POWER, SampledScores, Uncertain, contrast, holm, resampled_scores


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
    assert difference.p_value() == pytest.approx(expected.pvalue, abs=4e-4)
    assert difference.interval() == pytest.approx(tuple(expected.confidence_interval()), rel=0.01)
    average = contrast([(0.5, of_seeds(ours)), (0.5, of_seeds(third)), (-1, of_seeds(theirs))])
    assert average.p_value() == pytest.approx(stats.ttest_rel((ours + third) / 2, theirs).pvalue, abs=4e-4)
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


def test_one_seed_has_no_deviation_and_identical_models_do_not_differ():
    labels, predictions = outputs("accuracy", 100, 1, np.random.default_rng(3))
    resampled = resampled_scores(labels, predictions, "accuracy", np.random.default_rng(5), samples=200)
    row = scores_of([np.mean(predictions == labels)], resampled)
    assert row.deviation is None
    assert scores_of([0.5, 0.7, 0.6], np.zeros((1, 3))).deviation == pytest.approx(0.1)
    assert contrast([(1, row)]).degrees == 0
    difference = contrast([(1, row), (-1, row)])
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


def simulated(draws: np.random.Generator, seeds: int, noisy: str = "none", rows: int = 6) -> list[SampledScores]:
    """Equally good rows, the reference first. Other examples change nothing.

    A score is the sum of an effect of the seed, which all rows share, and a deviation, which is six times as large in
    a row that is `noisy`: `none`, a `row` or the `reference`. Of two rows, scores correlate by .73 over seeds.
    """
    scale = np.full(rows, 0.01)
    scale[{"reference": 0, "row": 1}.get(noisy, ())] *= 6
    observed = scale[:, None] * draws.normal(size=(rows, seeds)) + 0.01 * sqrt(0.73 / 0.27) * draws.normal(size=seeds)
    return [of_seeds(row, samples=2000) for row in observed]


def less_reference(rows: Sequence[SampledScores]) -> list[Uncertain]:
    return [contrast([(1.0, row), (-1.0, rows[0])]) for row in rows[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("noisy", ["none", "row", "reference"])
@pytest.mark.parametrize("seeds", [3, 12])
def test_a_table_errs_as_seldom_as_promised_whichever_row_is_noisy(seeds, noisy):
    repetitions, draws = 1500, np.random.default_rng(0)
    tables = (less_reference(simulated(draws, seeds, noisy)) for _ in range(repetitions))
    found = np.mean([min(holm([of.p_value() for of in table])) < LEVEL for table in tables])
    assert found < LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / repetitions)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 12])
def test_stated_power_is_what_experiments_have(seeds):
    """An experiment shows a difference of the size that an experiment before it calls detectable."""
    repetitions, draws, shown = 1500, np.random.default_rng(0), 0
    for _ in range(repetitions):
        (before,), (again,) = (less_reference(simulated(draws, seeds, rows=2)) for _ in range(2))
        shown += again.interval()[0] + before.detectable() > 0
    assert shown / repetitions == pytest.approx(POWER, abs=4 * np.sqrt(POWER * (1 - POWER) / repetitions))


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

"""What tables and verdicts are made of: contrasts of rows, and measures of training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from multitask.evaluation.statistics import SampledScores, Spread, contrast
from studies.report import measures
from studies.report.measures import last, measured
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from tests.studies.gradient_paradigm.published import as_published, probed_as_published
from tests.studies.synthetic import without_rows, write_store


@pytest.mark.parametrize("exponent", [1.2, 3])
def test_differences_of_measures_are_welchs(exponent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "SAMPLES", 1_000_000)
    a, b = (np.array([0.02 * seed**power for seed in range(4)]) for power in (exponent, 1))
    difference = measured([(1, a), (-1, b)])
    assert difference is not None
    expected = ttest_ind(a, b, equal_var=False)
    # The interval's bounds are quantiles of a million draws of t with few degrees of freedom: they vary by some 0.4%.
    assert difference.interval() == pytest.approx(tuple(expected.confidence_interval()), rel=0.012)
    assert difference.p_value() == pytest.approx(expected.pvalue, rel=0.01)
    assert measured([(1, a), (-1, b[:2])]) is None  # a measure of training needs three seeds


@pytest.fixture(scope="module")
def gradient(tmp_path_factory: pytest.TempPathFactory) -> TableResults:
    runs = write_store(tmp_path_factory.mktemp("runs"), ["gradient"], as_published, probe=probed_as_published)
    [results] = PresetResults.read(runs, "sample").tables
    return results


def test_rows_that_vary_differently_tell_of_themselves_alone(gradient: TableResults) -> None:
    rows = gradient.table.rows[:2]
    weights = {rows[0].key: 1, rows[1].key: -1}
    alone = replace(gradient, table=replace(gradient.table, rows=rows))
    own, pooled = (
        [of.contrast(weights, "similarity", alike=alike).interval() for of in (gradient, alone)]
        for alike in (False, True)
    )
    assert own[0] == own[1]
    assert pooled[0] != pooled[1]
    less = replace(gradient, runs={**gradient.runs, rows[0].key: gradient.runs[rows[0].key][:1]})
    own_way, pooled_way = (less.contrast(weights, "similarity", alike=alike) for alike in (False, True))
    assert own_way.interval() == pooled_way.interval()  # the others tell how much a single seed may be off


def test_a_model_that_all_seeds_share_tells_nothing_of_the_variance_over_seeds(gradient: TableResults) -> None:
    first, second, *_ = (row.key for row in gradient.table.rows)
    [one, *_], varied = gradient.runs[first], gradient.runs[second]
    shared = replace(gradient, runs={first: tuple(replace(one, seed=seed) for seed in range(3)), second: varied})
    assert shared.spreads["similarity"] == Spread.pooled([shared.scores[second, "similarity"].observed])
    draws = shared.scores[first, "similarity"].resampled[:, 0]
    assert shared.interval(first, "similarity") == pytest.approx(tuple(np.quantile(draws, (0.025, 0.975))))


def test_a_table_whose_rows_vary_differently_has_their_own_variances(gradient: TableResults) -> None:
    wild, first, second = (row.key for row in gradient.table.rows[:3])
    steady = {cell: replace(of, observed=np.array([0.49, 0.5, 0.51])) for cell, of in gradient.scores.items()}
    loose = steady | {(wild, "similarity"): replace(steady[wild, "similarity"], observed=np.array([0.1, 0.9, 0.2]))}
    found, even = replace(gradient), replace(gradient)
    found.__dict__["scores"], even.__dict__["scores"] = loose, steady
    assert (found.alike["similarity"], even.alike["similarity"]) == (False, True)
    weights = {first: 1, second: -1}
    ours, own, pooled = (found.contrast(weights, "similarity", alike) for alike in (None, False, True))
    assert ours.interval() == own.interval() == even.contrast(weights, "similarity", alike=False).interval()
    assert pooled.interval()[0] < own.interval()[0]
    assert found.interval(first, "similarity")[0] > found.interval(wild, "similarity")[0] + 0.1
    assert found.interval(first, "similarity")[0] == even.contrast({first: 1}, "similarity", alike=False).interval()[0]


def test_a_contrast_needs_every_row(gradient: TableResults) -> None:
    weights = {"defaults": 1.0, "ratio=2": -1.0}
    assert gradient.contrast(weights, "similarity") is not None
    assert gradient.contrast({**weights, "ratio=3": 1.0}, "similarity") is None
    assert without_rows(gradient, "ratio=2").contrast(weights, "similarity") is None


def test_an_average_of_rows_varies_as_it_does_over_seeds(gradient: TableResults) -> None:
    """The rows of a seed rise and fall together in one case, and cancel each other in the other."""
    first, second, third = (row.key for row in gradient.table.rows[:3])
    weights = {first: 0.5, second: 0.5, third: -1}
    observed = {first: [0.4, 0.5, 0.6], second: [0.4, 0.5, 0.6], third: [0.49, 0.5, 0.51]}
    widths = []
    for of_second in (observed[second], observed[second][::-1]):
        scores = {
            cell: replace(of, observed=np.array({**observed, second: of_second}.get(cell[0], [0.5, 0.5, 0.5])))
            for cell, of in gradient.scores.items()
        }
        found = replace(gradient)
        found.__dict__["scores"] = scores
        low, high = found.contrast(weights, "similarity", alike=False).interval()
        widths.append(high - low)
    assert widths[0] > 2 * widths[1]
    scores[second, "similarity"] = replace(scores[second, "similarity"], observed=np.full(3, 0.5))  # the average varies
    terms = [(weight, scores[row, "similarity"]) for row, weight in weights.items()]
    own = contrast(terms, Spread.welch([(weight, of.observed) for weight, of in terms]))
    assert found.contrast(weights, "similarity", alike=False).interval() == own.interval()
    fewer = replace(gradient, runs={**gradient.runs, second: gradient.runs[second][:2]})
    assert fewer.contrast(weights, "similarity") is None  # no seed of its own makes up for the missing one
    assert fewer.contrast({second: 1, third: -1}, "similarity") is not None


def test_the_end_of_training_is_its_last_line_or_nothing(gradient: TableResults) -> None:
    run = gradient.runs["defaults"][0]
    lines = [{**line, "training": dict(line["training"])} for line in run.history]
    assert last("distance gap")(run) == lines[-1]["training"]["unlabelled distance gap"]
    del lines[-1]["training"]["unlabelled distance gap"]
    dissipated = replace(run)
    dissipated.__dict__["history"] = lines
    assert last("distance gap")(dissipated) is None


def test_probed_values_are_found_by_their_exact_names(gradient: TableResults) -> None:
    run = gradient.runs["defaults"][0]
    assert [step for step, _ in run.probed("distance gap")] == [8, 16, 24]
    assert run.probed("ratio") == run.probed("gap") == []  # the median is another statistic, and a part is none
    assert run.probed("none") == []


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_differences_are_significant_from_the_size_that_is_told(tmp_path: Path, noise: float) -> None:
    """Of rows whose scores rise in small steps, and vary alike or not over seeds."""
    (table,) = PresetResults.read(write_store(tmp_path, ["objectives"]), "sample").tables
    rows = [row.key for row in table.table.rows]
    rising = {}
    for place, row in enumerate(rows):
        usual = table.scores[row, "similarity"]
        observed = np.array([0.5, 0.51, 0.52]) + (0.004 + noise / 4) * place
        observed[::2] += noise * (place % 2) * np.array([-1, 1])
        rising[row, "similarity"] = SampledScores(observed, usual.resampled - usual.observed + observed)
    table = replace(table)
    table.__dict__["scores"] = rising
    assert table.alike["similarity"] == (noise == 0)
    least, most = table.significant_from("similarity") or (0, 0)
    tests = table.against_reference.droplevel(1)
    differences, sure = dict(tests.difference.abs()), set(tests.index[tests.significant])
    assert {row for row, size in differences.items() if size > most} <= sure < set(differences)
    assert max(differences[row] for row in differences if row not in sure) <= most
    assert min(differences[row] for row in sure) >= 0.9 * least  # those that Holm's correction lets pass later
    assert table.significant_from("sentiment") is None
    alone = replace(table, runs={row: runs[:1] for row, runs in table.runs.items()})
    assert alone.significant_from("similarity") is None  # one seed does not tell

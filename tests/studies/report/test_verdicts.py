"""What verdicts are made of: measures of training, contrasts of rows, families of tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from multitask.evaluation.statistics import SAMPLES, Spread, Uncertain, contrast
from studies.engine.table import Row
from studies.report import verdicts
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.table_results import TableResults
from studies.report.verdicts import Verdict, above, complete, last, measured
from tests.studies.gradient_paradigm.published import as_published, probed_as_published
from tests.studies.synthetic import fair, without_rows, write_store


def fall(run: RunResult) -> float:
    curve = run.curve("similarity")
    return max(curve) - curve[-1]


@pytest.mark.parametrize("exponent", [1.2, 3])
def test_differences_of_measures_are_welchs(exponent: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "SAMPLES", 1_000_000)

    def falls(row: Row, seed: int) -> float:
        return 0.02 * seed ** (exponent if row.key == "dcl" else 1)

    write_store(tmp_path, ["decoupled"], fair, falls, seeds=4)
    [results] = PresetResults.read(tmp_path, "sample").tables
    difference = measured(results, fall, {"dcl": 1, "infonce": -1})
    a, b = (np.array([falls(Row(key, key), seed) for seed in range(4)]) for key in ("dcl", "infonce"))
    expected = ttest_ind(a, b, equal_var=False)
    # The interval's bounds are quantiles of a million draws of t with few degrees of freedom: they vary by some 0.4%.
    assert difference.interval() == pytest.approx(tuple(expected.confidence_interval()), rel=0.012)
    assert difference.p_value() == pytest.approx(expected.pvalue, rel=0.01)


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
    found = shared.estimates[first, "similarity"]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, (0.025, 0.975))))


def test_a_table_whose_rows_vary_differently_has_their_own_variances(gradient: TableResults) -> None:
    wild, first, second = (row.key for row in gradient.table.rows[:3])
    steady = {cell: replace(of, observed=np.array([0.49, 0.5, 0.51])) for cell, of in gradient.scores.items()}
    loose = steady | {(wild, "similarity"): replace(steady[wild, "similarity"], observed=np.array([0.1, 0.9, 0.2]))}
    found, even = replace(gradient), replace(gradient)
    found.__dict__["scores"], even.__dict__["scores"] = loose, steady
    assert (found.unlike, even.unlike) == (["Similarity Pearson correlation"], [])
    weights = {first: 1, second: -1}
    ours, own, pooled = (found.contrast(weights, "similarity", alike) for alike in (None, False, True))
    assert ours.interval() == own.interval() == even.contrast(weights, "similarity", alike=False).interval()
    assert pooled.interval()[0] < own.interval()[0]
    assert found.estimates[first, "similarity"].low > found.estimates[wild, "similarity"].low + 0.1
    assert (
        found.estimates[first, "similarity"].low == even.contrast({first: 1}, "similarity", alike=False).interval()[0]
    )


def test_a_contrast_needs_every_row(gradient: TableResults) -> None:
    weights = {"defaults": 1.0, "ratio=2": -1.0}
    assert gradient.contrast(weights, "similarity") is not None
    assert gradient.contrast({**weights, "ratio=3": 1.0}, "similarity") is None
    assert without_rows(gradient, "ratio=2").contrast(weights, "similarity") is None


def test_differences_are_complete_or_none() -> None:
    known = Uncertain(2.3, np.full(SAMPLES, 2.3))
    assert complete({"a": known, "b": known}) == {"a": known, "b": known}
    assert complete({"a": known, "b": None}) is None


def test_a_claim_of_better_scores_uses_each_rows_own_variance(gradient: TableResults) -> None:
    rows = [row.key for row in gradient.table.rows[:2]]
    found = above(gradient, [(rows[0], rows[1])])
    own = gradient.contrast({rows[0]: 1, rows[1]: -1}, "similarity", alike=False)
    assert found is not None
    assert found.parts[0].number.interval(0.05) == own.interval()


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


def test_what_one_seed_says_is_marked(gradient: TableResults) -> None:
    assert gradient.seeds_note == ""
    alone = replace(gradient, runs={row: runs[:1] for row, runs in gradient.runs.items()})
    one = gradient.table.rows[3].key
    unfinished = replace(gradient, runs={**gradient.runs, one: gradient.runs[one][:1]})
    assert unfinished.seeds_note == ""  # the other rows tell how much seeds differ
    decide = verdicts.on_table("gradient", lambda results: Verdict("reproduced", "so it is"))
    assert decide({"gradient": gradient}).evidence == "so it is"
    assert decide({"gradient": alone}).evidence == "so it is (one seed: intervals do not cover other seeds)"


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

"""How claims are decided: tests on the tables of the grid, and on what was measured in training."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from multitask.evaluation.statistics import LEVEL, SAMPLES, SampledScores, Spread, Uncertain, Values, contrast
from studies.gradient_paradigm.simulation_claims import Verdict
from studies.report.analysis import Comparison, TableAnalysis, compared
from studies.report.format import interval, signed, verdict
from studies.report.results import RowResult, RunResult

Tables = Mapping[str, TableAnalysis]
"""Analysed tables by key; those that were not run are not there."""
Decide = Callable[[Tables], Verdict]
Measure = Callable[[RunResult], float | None]
Pairs = Sequence[tuple[str, str]]
"""Labels of rows that are compared."""

UNTESTED = Verdict("not tested here", "")
SURE = f"at the {LEVEL:.0%} level"
SURE_OF_ANY = f"{SURE}, corrected for the number of tests"
SCORE = "similarity"
LEAST_SEEDS = 3
"""Seeds that a measure of training needs: the 95% interval of two is 13 times as wide as they are apart."""
AS_GOOD = 0.02
"""A score lower by less than this reaches another."""


def probed(run: RunResult, statistic: str) -> list[tuple[int, float]]:
    """What the gradient probe saw in training: step of an evaluation, mean since the one before."""
    return [
        (line["step"], value)
        for line in run.history
        for name, value in line["training"].items()
        if name.endswith(f" {statistic}") and not name.endswith(f"median {statistic}")
    ]


def last(statistic: str) -> Measure:
    """A statistic at the end of training; none where the end has none, as of anchors all dissipated."""
    return lambda run: seen[-1][1] if (seen := probed(run, statistic)) and seen[-1][0] == _end(run) else None


def _end(run: RunResult) -> int:
    return int(run.history[-1]["step"])


def highest(statistic: str) -> Measure:
    """A statistic's highest value in training."""
    return lambda run: max((value for _, value in probed(run, statistic)), default=None)


def shrinks(statistic: str) -> Measure:
    """Logarithm of a statistic at the end of training relative to its beginning."""

    def measure(run: RunResult) -> float | None:
        seen = probed(run, statistic)
        if len(seen) < 2 or min(seen[0][1], seen[-1][1]) <= 0:
            return None
        return float(np.log(seen[-1][1] / seen[0][1]))

    return measure


def dev_curve(run: RunResult) -> list[float]:
    """The dev score at each evaluation."""
    return next(iter(RowResult("", (run,), {}).curves(SCORE)), [])


def values(table: TableAnalysis, label: str, measure: Measure) -> Values:
    """A measure of a row's runs that have it, [seeds]; empty of a row that is not there."""
    runs = [run for row in table.table.rows if row.label == label for run in row.runs]
    return np.array([value for run in runs if (value := measure(run)) is not None])


def measured(table: TableAnalysis, measure: Measure, weights: Mapping[str, float]) -> Uncertain | None:
    """A contrast of rows' means of a measure, with the chance of seeds alone; None where a row has too few."""
    terms = [(weight, values(table, label, measure)) for label, weight in weights.items()]
    spread = Spread.welch(terms)  # measures of training vary more in some rows than in others
    if min(len(found) for _, found in terms) < LEAST_SEEDS:
        return None
    return contrast([(weight, SampledScores(found, np.tile(found, (SAMPLES, 1)))) for weight, found in terms], spread)


def each(differences: Mapping[str, Uncertain | None]) -> dict[str, Comparison] | None:
    """Tests all of which must show something, so that their number is no reason to adjust p (Berger 1982).

    None where a difference is missing.
    """
    known = {name: difference for name, difference in differences.items() if difference is not None}
    return None if len(known) < len(differences) else {name: compared([known[name]])[0] for name in known}


def family(differences: Mapping[str, Uncertain | None]) -> dict[str, Comparison] | None:
    """Tests any of which may show something: p is adjusted for their number. None where a difference is missing."""
    known = [difference for difference in differences.values() if difference is not None]
    return None if len(known) < len(differences) else dict(zip(differences, compared(known), strict=True))


def higher(comparison: Comparison) -> bool:
    """Whether a difference is above zero, significantly."""
    return comparison.significant and comparison.difference > 0


def shown(tests: Mapping[str, Comparison]) -> str:
    """Each difference with its interval and what its test says."""
    return "; ".join(
        f"{name} {signed(test.difference)} {interval(test)}, {verdict(test)}" for name, test in tests.items()
    )


def above(table: str, pairs: Pairs, column: str = SCORE) -> Decide:
    """The first row of each pair has the higher score."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        return _all_above({f"{a} over {b}": tables[table].contrast({a: 1, b: -1}, column) for a, b in pairs})

    return decide


def measures_above(table: str, measure: Measure, pairs: Pairs) -> Decide:
    """The same of a measure of the runs."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        return _all_above({f"{a} over {b}": measured(tables[table], measure, {a: 1, b: -1}) for a, b in pairs})

    return decide


def _all_above(differences: Mapping[str, Uncertain | None]) -> Verdict:
    tests = each(differences)
    return Verdict.of(all(map(higher, tests.values())), shown(tests)) if tests else UNTESTED


def reaches(table: str, pairs: Pairs, column: str = SCORE) -> Decide:
    """No first row of a pair has a lower score than the second by as much as `AS_GOOD`."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        tests = each({f"{a} less {b}": tables[table].contrast({a: 1, b: -1}, column) for a, b in pairs})
        if tests is None:
            return UNTESTED
        evidence = [f"{name} {signed(test.difference)} {interval(test)}" for name, test in tests.items()]
        return Verdict.of(all(test.low > -AS_GOOD for test in tests.values()), "; ".join(evidence))

    return decide

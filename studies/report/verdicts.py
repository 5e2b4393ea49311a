"""What decides that a claim is reproduced: claims, verdicts, and tests on rows' scores and measures of training.

Every verdict is computed from results; none is written by hand. The claims of a paper are in the file
`claims.toml` of the paper's folder.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from multitask.evaluation.statistics import LEVEL, SAMPLES, SampledScores, Spread, Uncertain, Values, contrast
from studies.report.format import interval, signed, verdict
from studies.report.run_results import RunResult
from studies.report.table_results import Comparison, TableResults, compared
from studies.study import Paper

Status = Literal["reproduced", "not reproduced", "not tested here"]
Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Verdict:
    """What results say about a claim."""

    status: Status
    evidence: str

    @classmethod
    def of(cls, holds: bool, evidence: str) -> "Verdict":
        """Reproduced or not."""
        return cls("reproduced" if holds else "not reproduced", evidence)


UNTESTED = Verdict("not tested here", "")


@dataclass(frozen=True)
class Claim(Generic[Evidence]):
    """A statement of a paper that results can decide.

    Args:
        paper: the paper that makes the statement.
        section: where the paper makes it.
        text: the statement.
        criterion: what the results must show for the claim to be reproduced.
        decide: from results to the verdict.
    """

    paper: Paper
    section: str
    text: str
    criterion: str
    decide: Callable[[Evidence], Verdict]


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict, as a page shows it."""

    claim: Claim[Any]
    verdict: Verdict

    @property
    def source(self) -> str:
        """Paper and section."""
        return f"{self.claim.paper.citation}, {self.claim.section}"


def judge(claims: Sequence[Claim[Evidence]], results: Evidence | None) -> list[Judged]:
    """Every claim with its verdict; without results no claim is tested."""
    return [Judged(claim, UNTESTED if results is None else claim.decide(results)) for claim in claims]


def read_claims(
    module: str,
    group: str,
    papers: Sequence[Paper],
    decisions: Mapping[str, Callable[[Evidence], Verdict]],
    names: Mapping[str, object],
) -> tuple[Claim[Evidence], ...]:
    """The claims of the file `claims.toml` next to a module, in the file's order: one for each criterion.

    Args:
        module: the module's `__file__`.
        group: of the claims that have this kind of evidence.
        papers: the papers that make them.
        decisions: by the criteria's keys.
        names: what stands for names in braces, in addition to SURE, SURE_OF_ANY and AS_GOOD.

    Raises:
        KeyError: a criterion without a decision, or a paper or name that is not given.
    """
    text = Path(module).with_name("claims.toml").read_text(encoding="utf-8")
    by_key = {paper.key: paper for paper in papers}
    names = {"SURE": SURE, "SURE_OF_ANY": SURE_OF_ANY, "AS_GOOD": AS_GOOD, **names}
    return tuple(
        Claim(by_key[entry["paper"]], entry["section"], entry["text"], criterion.format_map(names), decisions[key])
        for entry in tomllib.loads(text)[group]
        for key, criterion in entry["criteria"].items()
    )


Tables = Mapping[str, TableResults]
"""Results of tables by key. Tables that were not run are missing."""
Decide = Callable[[Tables], Verdict]
Measure = Callable[[RunResult], float | None]
RowPairs = Sequence[tuple[str, str]]
"""Keys of rows that are compared."""

SURE = f"significantly at the {LEVEL:.0%} level"
SURE_OF_ANY = f"{SURE}, corrected for the number of tests"
SCORE = "similarity"
LEAST_SEEDS = 3
"""Seeds that a measure of training needs: with two seeds the 95% interval is 13 times as wide as their difference."""
AS_GOOD = 0.02
"""Scores that differ by less than this count as equally good."""


def on_table(key: str, decide: Callable[[TableResults], Verdict | None]) -> Decide:
    """A decision by one table: not tested if the table was not run, or if `decide` returns None for lack of results."""
    return lambda tables: (decide(tables[key]) if key in tables else None) or UNTESTED


def above(results: TableResults, pairs: RowPairs, column: str = SCORE) -> Verdict | None:
    """Whether the first row of every pair has the higher score. None if a row has no scores."""
    return _all_above(results, pairs, lambda weights: results.contrast(weights, column))


def measures_above(results: TableResults, measure: Measure, pairs: RowPairs) -> Verdict | None:
    """Whether the first row of every pair has the higher measure. None if a row has too few seeds."""
    return _all_above(results, pairs, lambda weights: measured(results, measure, weights))


def _all_above(
    results: TableResults, pairs: RowPairs, contrasted: Callable[[Mapping[str, float]], Uncertain | None]
) -> Verdict | None:
    label = results.table.label
    tests = each({f"{label(a)} over {label(b)}": contrasted({a: 1, b: -1}) for a, b in pairs})
    return Verdict.of(all(map(higher, tests.values())), shown(tests)) if tests else None


def reaches(results: TableResults, pairs: RowPairs, column: str = SCORE) -> Verdict | None:
    """Whether no first row of a pair scores lower than the second by `AS_GOOD` or more, by the lower bound."""
    label = results.table.label
    tests = each({f"{label(a)} less {label(b)}": results.contrast({a: 1, b: -1}, column) for a, b in pairs})
    if tests is None:
        return None
    evidence = [f"{name} {signed(test.difference)} {interval(test)}" for name, test in tests.items()]
    return Verdict.of(all(test.low > -AS_GOOD for test in tests.values()), "; ".join(evidence))


def last(statistic: str) -> Measure:
    """A statistic at the end of training. None if the last evaluation lacks it, as when all anchors dissipated."""

    def measure(run: RunResult) -> float | None:
        seen = run.probed(statistic)
        return seen[-1][1] if seen and seen[-1][0] == run.history[-1]["step"] else None

    return measure


def highest(statistic: str) -> Measure:
    """A statistic's highest value in training."""
    return lambda run: max((value for _, value in run.probed(statistic)), default=None)


def shrinks(statistic: str) -> Measure:
    """Logarithm of a statistic at the end of training relative to its beginning."""

    def measure(run: RunResult) -> float | None:
        seen = run.probed(statistic)
        if len(seen) < 2 or min(seen[0][1], seen[-1][1]) <= 0:
            return None
        return float(np.log(seen[-1][1] / seen[0][1]))

    return measure


def values(results: TableResults, row: str, measure: Measure) -> Values:
    """A measure of a row's runs, without runs that lack it: [seeds]. Empty if the row is missing."""
    return np.array([value for run in results.runs.get(row, ()) if (value := measure(run)) is not None])


def measured(results: TableResults, measure: Measure, weights: Mapping[str, float]) -> Uncertain | None:
    """Σ weight · mean of a measure by the rows' keys, uncertain by seeds alone. None if a row has too few seeds."""
    terms = [(weight, values(results, row, measure)) for row, weight in weights.items()]
    spread = Spread.welch(terms)  # measures of training vary more in some rows than in others
    if min(len(found) for _, found in terms) < LEAST_SEEDS:
        return None
    return contrast([(weight, SampledScores(found, np.tile(found, (SAMPLES, 1)))) for weight, found in terms], spread)


def each(differences: Mapping[str, Uncertain | None]) -> dict[str, Comparison] | None:
    """Tests that must all be significant, so that p needs no correction for their number (Berger 1982).

    None if a difference is missing.
    """
    known = {name: difference for name, difference in differences.items() if difference is not None}
    return None if len(known) < len(differences) else {name: compared({name: known[name]})[name] for name in known}


def family(differences: Mapping[str, Uncertain | None]) -> dict[str, Comparison] | None:
    """Tests of which one is enough, so that p is corrected for their number (Holm 1979). None if one is missing."""
    known = {name: difference for name, difference in differences.items() if difference is not None}
    return None if len(known) < len(differences) else compared(known)


def higher(comparison: Comparison) -> bool:
    """Whether a difference is significantly above zero."""
    return comparison.significant and comparison.difference > 0


def shown(tests: Mapping[str, Comparison]) -> str:
    """Each difference with its interval and its test's result."""
    return "; ".join(
        f"{name} {signed(test.difference)} {interval(test)}, {verdict(test)}" for name, test in tests.items()
    )

"""What decides that a claim is reproduced: claims, verdicts, and statements on rows' scores and measures of training.

Every verdict is computed from results; none is written by hand. The claims of a paper are in the file
`claims.toml` of the paper's folder. `docs/reference/verdicts.md` says what each verdict means.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from multitask.evaluation.statistics import LEVEL, POWER, SAMPLES, SampledScores, Spread, Uncertain, Values, contrast
from studies.report.evidence import Above, Every, Statement
from studies.report.format import signed
from studies.report.run_results import Place, RunResult
from studies.report.table_results import TableResults
from studies.study import Paper

Status = Literal["reproduced", "not reproduced", "undecided", "not tested here", "theorem"]
Kind = Literal["claim", "beyond the paper", "theorem"]
Evidence = TypeVar("Evidence")
Name = TypeVar("Name")


@dataclass(frozen=True)
class Verdict:
    """What results say about a claim."""

    status: Status
    evidence: str

    @classmethod
    def of(cls, statement: Statement, found: str | None = None) -> "Verdict":
        """Reproduced if the statement is shown, not reproduced if its opposite is shown, otherwise undecided.

        Args:
            statement: what the claim says of the results.
            found: replaces the statement's own text.
        """
        found = statement.text if found is None else found
        if statement.shown():
            return cls("reproduced", found)
        if statement.refuted():
            return cls("not reproduced", found)
        unsure, (_, least) = ", ".join(statement.open()), statement.least()
        left = f"left open by the correction for several tests: {unsure}" if unsure else ""
        power = f"the smallest effect that these results could show with {POWER:.0%} power: {least}" if least else ""
        return cls("undecided", "; ".join(filter(None, (found, left, power))))


UNTESTED = Verdict("not tested here", "")


@dataclass(frozen=True)
class Claim(Generic[Evidence]):
    """A statement of a paper that results can decide.

    Args:
        key: of the criterion.
        paper: the paper that makes the statement.
        section: where the paper makes it.
        text: the statement.
        criterion: what the results must show for the claim to be reproduced.
        decide: from results to the verdict.
        kind: a `claim` counts for or against the paper. A statement `beyond the paper` is about a regime or a measure
            that the paper does not claim. A `theorem` is proved and checked by tests; results cannot decide it.
    """

    key: str
    paper: Paper
    section: str
    text: str
    criterion: str
    decide: Callable[[Evidence], Verdict]
    kind: Kind = "claim"


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
    """Every claim with its verdict; without results no claim is tested. Results illustrate a theorem only."""

    def verdict(claim: Claim[Evidence]) -> Verdict:
        found = UNTESTED if results is None else claim.decide(results)
        return Verdict("theorem", found.evidence) if claim.kind == "theorem" else found

    return [Judged(claim, verdict(claim)) for claim in claims]


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
        names: what stands for names in braces, in addition to SURE, SURE_OF_ANY, AS_GOOD, EQUAL and REFUTED.

    Raises:
        KeyError: a criterion without a decision, or a paper or name that is not given.
    """
    text = Path(module).with_name("claims.toml").read_text(encoding="utf-8")
    by_key = {paper.key: paper for paper in papers}
    names = {"SURE": SURE, "SURE_OF_ANY": SURE_OF_ANY, "AS_GOOD": AS_GOOD, "EQUAL": EQUAL, "REFUTED": REFUTED, **names}
    return tuple(
        Claim(
            key,
            by_key[entry["paper"]],
            entry["section"],
            entry["text"],
            criterion.format_map(names),
            decisions[key],
            entry.get("kind", "claim"),
        )
        for entry in tomllib.loads(text)[group]
        for key, criterion in entry["criteria"].items()
    )


Tables = Mapping[str, TableResults]
"""Results of tables by key. Tables that were not run are missing."""
Decide = Callable[[Tables], Verdict]
Measure = Callable[[RunResult], float | None]
Form = Callable[[float], str]
"""A number as text."""
RowPairs = Sequence[tuple[str, str]]
"""Keys of rows that are compared."""

SURE = f"significantly at the {LEVEL:.0%} level"
SURE_OF_ANY = f"{SURE}, corrected for the number of tests"
SCORE = "similarity"
LEAST_SEEDS = 3
"""Seeds that a measure of training needs: with two seeds the 95% interval is 13 times as wide as their difference."""
AS_GOOD = 0.02
"""A score that is lower by less than this counts as comparable, the word of the papers."""
EQUAL = 0.01
"""A claim that a score is higher is refuted if it is surely higher by less than this: a point in the papers' tables."""
REFUTED = f"Refuted if the difference is surely below {EQUAL} and not surely above 0."


def on_table(key: str, decide: Callable[[TableResults], Verdict | Statement | None]) -> Decide:
    """A decision by one table: not tested if the table was not run, or if `decide` returns None for lack of results."""

    def decided(tables: Tables) -> Verdict:
        found = decide(tables[key]) if key in tables else None
        if found is None:
            return UNTESTED
        verdict = found if isinstance(found, Verdict) else Verdict.of(found)
        return Verdict(verdict.status, f"{verdict.evidence}{tables[key].seeds_note}") if verdict.evidence else verdict

    return decided


def above(results: TableResults, pairs: RowPairs, column: str = SCORE) -> Every | None:
    """The first row of every pair has the higher score. None if a row has no scores."""
    differences = {pair: difference(results, {pair[0]: 1, pair[1]: -1}, column) for pair in pairs}
    return _every(results, differences, margin=EQUAL)


def reaches(results: TableResults, pairs: RowPairs, column: str = SCORE) -> Every | None:
    """No first row of a pair scores lower than the second by `AS_GOOD` or more. None if a row has no scores."""
    differences = {pair: difference(results, {pair[0]: 1, pair[1]: -1}, column) for pair in pairs}
    return _every(results, differences, bound=-AS_GOOD)


def measures_above(
    results: TableResults, measure: Measure, pairs: RowPairs, margin: float, form: Form = signed
) -> Every | None:
    """The first row of every pair has the higher measure. None if a row has too few seeds.

    Args:
        results: of the rows' table.
        measure: of a run.
        pairs: of rows.
        margin: a smaller difference counts as none.
        form: a difference as text.
    """
    differences = {pair: measured(results, measure, {pair[0]: 1, pair[1]: -1}) for pair in pairs}
    return _every(results, differences, margin=margin, form=form)


def _every(
    results: TableResults,
    differences: Mapping[tuple[str, str], Uncertain | None],
    bound: float = 0.0,
    margin: float = 0.0,
    form: Form = signed,
) -> Every | None:
    label, known = results.table.label, complete(differences)
    if known is None:
        return None
    return Every([Above(f"{label(a)} less {label(b)}", d, bound, margin, form) for (a, b), d in known.items()])


def difference(results: TableResults, weights: Mapping[str, float], column: str = SCORE) -> Uncertain | None:
    """Σ weight · mean score over rows, with their own variance over seeds. None if a row has no scores.

    Rows of a sweep vary differently over seeds: a pooled variance would be too small for some and too large for others.
    """
    return results.contrast(weights, column, alike=False)


def complete(differences: Mapping[Name, Uncertain | None]) -> dict[Name, Uncertain] | None:
    """The same differences; None if one is missing."""
    known = {name: found for name, found in differences.items() if found is not None}
    return known if len(known) == len(differences) else None


def last(statistic: str, place: Place = "training batches") -> Measure:
    """A statistic at the end of training. None if the last evaluation lacks it, as when all anchors dissipated."""

    def measure(run: RunResult) -> float | None:
        seen = run.probed(statistic, place)
        return seen[-1][1] if seen and seen[-1][0] == run.history[-1]["step"] else None

    return measure


def highest(statistic: str, place: Place = "training batches") -> Measure:
    """A statistic's highest value in training."""
    return lambda run: max((value for _, value in run.probed(statistic, place)), default=None)


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

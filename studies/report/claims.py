"""Claims of papers: functions from results to statements, and the verdicts on them.

A claim's function `says` takes results and returns a `Statement` (`verdicts.py`); it raises `UntestedError` if the
results cannot decide it. Most claims are about a table: their function takes `ClaimResults` of it. Every verdict is
computed; none is written by hand. `docs/reference/verdicts.md` says what each means.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import degrees
from statistics import fmean
from typing import Any, Literal

import numpy as np
import pandas

from multitask.evaluation.statistics import LEVEL, POWER, ROUNDING, SAMPLES, SampledScores, Uncertain, contrast
from multitask.experiments.compare_rows import TableResults
from multitask.experiments.grid_frames import ProbedAt, RunResult
from multitask.experiments.score_tables import format_score, signed
from studies.report.verdicts import Bound, Combined, Levels, Quantity, Statement, Verdict, levels, verdict

Measure = Callable[[RunResult], float | None]
SCORE = "similarity"
LEAST_SEEDS = 3
"""Seeds that a measure of training needs: with two seeds the 95% interval is 13 times as wide as their difference."""


def measured(terms: Sequence[tuple[float, Mapping[int, float]]]) -> Uncertain | None:
    """Σ weight · mean of values by seed, uncertain by seeds alone. None if seeds are too few, or a value undefined."""
    values = chain.from_iterable(found.values() for _, found in terms)
    if min(len(found) for _, found in terms) < LEAST_SEEDS or not np.isfinite(list(values)).all():
        return None

    def scores(found: Mapping[int, float]) -> SampledScores:
        per_seed = np.array(list(found.values()))
        return SampledScores(list(found), per_seed, np.tile(per_seed, (SAMPLES, 1)))

    return contrast([(weight, scores(found)) for weight, found in terms])


def last(statistics: str, place: ProbedAt = "training batches") -> Measure:
    """The sum of statistics at the end of training.

    None if the last evaluation lacks one, as it does when all anchors dissipated.
    """

    def measure(run: RunResult) -> float | None:
        seen = [run.probed(statistic, place) for statistic in statistics.split(" + ")]
        if all(points and points[-1][0] == run.steps for points in seen):
            return sum(points[-1][1] for points in seen)
        return None

    return measure


def peak(statistic: str) -> Measure:
    """A statistic's highest value in training."""
    return lambda run: max((value for _, value in run.probed(statistic)), default=None)


def shrinks(statistic: str) -> Measure:
    """Logarithm of a statistic at the end of training, as `last` reads it, relative to its beginning."""

    def measure(run: RunResult) -> float | None:
        seen, end = run.probed(statistic), last(statistic)(run)
        if len(seen) < 2 or end is None or min(seen[0][1], end) <= 0:
            return None
        return float(np.log(end / seen[0][1]))

    return measure


def fall(run: RunResult) -> float | None:
    """The highest dev score less that at the end."""
    curve = run.curve(SCORE)
    return float(np.nanmax(curve) - curve[-1]) if len(curve) > 1 else None


def last_score(run: RunResult) -> float | None:
    """The dev score at the end."""
    return curve[-1] if (curve := run.curve(SCORE)) else None


ClaimKind = Literal["claim", "beyond the paper", "theorem"]
Status = Literal[Verdict, "not tested here", "theorem"]
MARGIN = 0.01  # smaller differences of scores do not matter
COMPARABLE = -0.02  # scores are comparable, or as good, above this difference


def share(value: float) -> str:
    """A share; the bounds of its interval are cut to 0 and 1."""
    return format_score(min(max(value, 0.0), 1.0))


def percent(value: float) -> str:
    """`78.4%`."""
    return f"{value:.1%}"


def in_degrees(angle: float) -> str:
    """`+2.2°`, of radians."""
    return f"{signed(degrees(angle), 1)}°" if np.isfinite(angle) else "any angle"


class UntestedError(Exception):
    """The results cannot decide a claim: the message says why, if it is not for lack of results."""


@dataclass(frozen=True)
class ClaimResults:
    """Results of a table, and the column of scores that a claim is about."""

    table: TableResults
    column: str = SCORE

    def label(self, row: str) -> str:
        """A row's name for readers."""
        return self.table.table.label(row)

    def above(
        self,
        row: str,
        less: str | None = None,
        bound: float = 0.0,
        margin: float = 0.0,
        measure: Measure | None = None,
        form: Callable[[float], str] | None = None,
        above: bool = True,
    ) -> Bound:
        """A row's score, or its measure of training, less that of another row, is above a bound (or below it)."""
        weights = {row: 1.0, **({less: -1.0} if less else {})}
        name = self.label(row) + (f" less {self.label(less)}" if less else "")
        return Bound(
            name, self.contrast(weights, measure), bound, above, margin, form or (signed if less else format_score)
        )

    def each_above(self, rows: Sequence[str], less: Sequence[str], **how: Any) -> Combined:
        """Each row is above the other of its place; one row is compared with all others."""
        count = max(len(rows), len(less))
        pairs = zip(*(keys * (count if len(keys) == 1 else 1) for keys in map(list, (rows, less))), strict=True)
        return every(self.above(row, other, **how) for row, other in pairs)

    def equal(self, first: str, second: str) -> Combined:
        """The scores of two rows differ by less than the margin."""
        return every(self.above(first, second, bound=bound, above=bound < 0) for bound in (-MARGIN, MARGIN))

    def contrast(self, weights: Mapping[str, float], measure: Measure | None = None) -> Uncertain:
        """Σ weight · mean over rows. Raises UntestedError if a row has no results."""
        if measure is None:
            found = self.table.contrast(weights, self.column)
        else:
            found = measured([(weight, self.values(row, measure)) for row, weight in weights.items()])
        if found is None or np.isnan(found.interval()[0]):
            raise UntestedError
        return found

    def values(self, row: str, measure: Measure) -> dict[int, float]:
        """A measure of a row's runs by seed, without runs that lack it. Empty if the row is missing."""
        runs = self.table.runs.get(row, ())
        return {run.seed: value for run in runs if (value := measure(run)) is not None}

    def require(
        self, called: str, rows: Sequence[str], measure: Measure, low: float = -np.inf, high: float = np.inf
    ) -> None:
        """Raises UntestedError if the lowest mean of a measure over rows is not in a range."""
        values = {row: self.values(row, measure) for row in rows}
        if not all(found and np.isfinite([*found.values()]).all() for found in values.values()):
            raise UntestedError
        means = {row: fmean(found.values()) for row, found in values.items()}
        if not low <= min(means.values()) <= high:
            found = ", ".join(f"{self.label(row)} {mean:.1%}" for row, mean in means.items())
            raise UntestedError(f"{called}: {found}")

    def trained_for(self, steps: int, statement: Statement, can: Literal["show", "refute"]) -> Statement:
        """The statement, which shorter trainings can only show, or only refute."""
        shortest = min((run.steps or 0 for runs in self.table.runs.values() for run in runs), default=0)
        why = f"trained for {shortest:,} steps, the authors for {steps:,}"
        return statement if shortest >= steps else every([statement], why, can)


def every(parts: Iterable[Statement], note: str = "", can: Literal["show", "refute"] | None = None) -> Combined:
    """All statements hold."""
    return Combined(list(parts), every=True, note=note, can=can or "show or refute")


def some(parts: Iterable[Statement]) -> Combined:
    """At least one statement holds."""
    return Combined(list(parts), every=False)


def every_chosen(parts: Sequence[Statement], left_out: Sequence[Statement]) -> Combined:
    """All statements hold, of items that a condition chose. Raises UntestedError if it chose none."""
    note = f"left out: {'; '.join(statement.text() for statement in left_out)}" if left_out else ""
    if not parts:
        raise UntestedError(note)
    return every(parts, note)


def bounded(
    numbers: Mapping[str, Quantity], bound: float, above: bool = True, form: Callable[[float], str] = format_score
) -> Statement:
    """All numbers are above a bound, or below it."""
    parts = [Bound(name, number, bound, above, form=form) for name, number in numbers.items()]
    return parts[0] if len(parts) == 1 else every(parts)


@dataclass(frozen=True)
class ClaimPlace:
    """A table and a column that decide a claim, with a name for readers."""

    table: str
    column: str = SCORE
    called: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that results can decide."""

    key: str
    paper: str
    section: str
    text: str
    criterion: str
    # from the results of the first place that was run to a statement; without places, from the study's simulations
    says: Callable[[Any], Statement]
    places: tuple[ClaimPlace, ...] = ()
    # a `claim` counts for or against the paper. A statement `beyond the paper` is about a regime or a measure that the
    # paper does not claim. A `theorem` is proved and checked by tests; results only illustrate it
    kind: ClaimKind = "claim"


READ: dict[ProbedAt, tuple[str, str, ClaimKind]] = {
    "held-out sentences": ("", "held-out sentences without the projection, as in the paper's statistics", "claim"),
    "training batches": ("-in-batches", "the projected embeddings of the training batches", "beyond the paper"),
}
"""Where a statistic is read: what a claim's key ends with, the words for it, and the claim's kind."""


def in_both_places(
    key: str, says: Callable[[ProbedAt, ClaimResults], Statement], criterion: str, **about: Any
) -> Iterator[Claim]:
    """A claim about a statistic, on held-out sentences and in training batches."""
    for place, (ending, read, kind) in READ.items():
        text = criterion.format(read=f"Read on {read}.")
        yield Claim(f"{key}{ending}", criterion=text, says=partial(says, place), kind=kind, **about)


def judge(
    claims: Sequence[Claim], tables: Mapping[str, TableResults], simulations: Any = None, readings: int = 1
) -> pandas.DataFrame:
    """Every claim with its verdict, corrected for the number of claims of its paper that are among these.

    Columns: the fields of `Claim` for readers, `status`, the `evidence` as text, the `number` of it that decides with
    its 95% interval, that interval `corrected`, and what intervals `cover` in addition to other seeds.

    Args:
        claims: of any papers.
        tables: those that were run, by key.
        simulations: of a study, None without any.
        readings: how often verdicts have been read while seeds were added; each is tested at 5% divided by it.
    """
    about = ["key", "paper", "section", "text", "criterion", "kind"]
    found = [_found(claim, tables, simulations) for claim in claims]
    at = {}
    for paper in {claim.paper for claim in claims}:
        of_paper = [one for claim, one in zip(claims, found, strict=True) if claim.paper == paper and one is not None]
        statements = [statement for statement, _ in of_paper if statement is not None]
        at[paper] = levels(statements, len(of_paper), LEVEL / readings)
    lines = [
        (*(getattr(claim, name) for name in about), *_decided(claim, one, at[claim.paper]))
        for claim, one in zip(claims, found, strict=True)
    ]
    return pandas.DataFrame(lines, columns=[*about, "status", "evidence", "number", "corrected", "covers"])


def _found(claim: Claim, tables: Mapping[str, TableResults], simulations: Any) -> tuple[Statement | None, str] | None:
    """What results say of a claim, and the evidence as a text with {} for it. None without results.

    If results cannot decide it, there is no statement, and the text says why.
    """
    known: list[tuple[Any, str]] = [] if claim.places or simulations is None else [(simulations, "{}")]
    for place in claim.places:
        if (table := tables.get(place.table)) is not None:
            seeds = " (one seed: intervals do not cover other seeds)" if table.single_seed else ""
            known.append((ClaimResults(table, place.column), f"{place.called}: {{}}{seeds}".removeprefix(": ")))
    for results, text in known:
        try:
            return claim.says(results), text
        except UntestedError as reason:
            if str(reason):
                return None, text.format(reason)
    return None


def _decided(claim: Claim, found: tuple[Statement | None, str] | None, at: Levels) -> tuple[Status, str, str, str, str]:
    """The status of a claim, its evidence, the number that decides, with both intervals, and what they cover."""
    statement, text = found or (None, "")
    if statement is None or claim.kind == "theorem":  # results only illustrate a theorem
        untested: Status = "theorem" if claim.kind == "theorem" else "not tested here"
        return untested, text if statement is None else text.format(statement.text()), "", "", ""
    status, evidence = decided(statement, at)
    level = {"equivalent or opposite": at.refute, "open": min(at.show, at.refute)}.get(status, at.show)
    decider = statement.deciding(level, status)
    if decider is None:
        return status, text.format(evidence), "", "", ""
    bound, level = decider
    return status, text.format(evidence), bound.text(), bound.interval(level), covers(bound.number)


def covers(number: Quantity) -> str:
    """What an interval covers: `seeds`, `dev examples`, or both; nothing of simulations."""
    if not isinstance(number, Uncertain):
        return ""
    defined = number.examples[np.isfinite(number.examples)]  # a resample may have no score
    covered = {"seeds": number.degrees > 0, "dev examples": np.ptp(defined) > ROUNDING}
    return " and ".join(what for what, is_covered in covered.items() if is_covered)


def decided(statement: Statement, at: Levels) -> tuple[Verdict, str]:
    """The verdict on a statement, and the evidence: of an open one with what the results could have shown."""
    status, found = verdict(statement, at), statement.text()
    _, least = statement.least(at.show) if status == "open" else (0.0, "")
    power = f"the smallest effect that these results could show with {POWER:.0%} power: {least}" if least else ""
    return status, "; ".join(filter(None, (found, power)))

"""Claims of papers: conditions on results, read from `claims.toml` of a study's folder and decided by one evaluator.

Every verdict is computed from results; none is written by hand. `docs/reference/verdicts.md` says what each verdict
means. An entry `[[claim]]` has `key`, `paper`, `section`, `text`, `criterion` (for readers), and what is decided:

    every = [C, ...]                        all conditions hold
    for_every = L | for_some = L            the rest of the condition holds for each item of a list | for at least one;
                                            {item} stands for the item in all texts of the rest
    if = C                                  of these items, those for which C is shown
    unless = C                              of these items, those for which C is not shown; what C does not refute
                                            either can show the condition only
    steps = n, can = "show"|"refute"        if trainings of the table have fewer steps, the condition can only be shown,
                                            or only be refuted
    above = x | below = x, margin = y       the numbers of a leaf; see `evidence.Bound`

The numbers of a leaf are contrasts of rows: `row` or a list of rows, `less` another row or list of rows (a list on
either side makes one number each), or `mean_of` less `less_mean_of`, each averaged over a list. They are scores in
`column`, or a `measure` of training (`measures.py`) with its arguments. A row `{best = L}` is the one with the highest
score. `form` says how numbers are written. Studies can have further kinds of numbers by the name of their first key.

A claim can have `tables` (each with `table`, and `column` and `called` if several are given: the first that was run
decides), `only_if` (what makes it testable: rows whose lowest mean of a measure must be in a range), `kind`, and
`variants`: values for names in braces, for claims that are made several times. `[lists]` names lists of rows.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product
from math import degrees
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import pandas

from minbert.errors import InputError
from multitask.evaluation.statistics import LEVEL, POWER, Uncertain
from studies.report.evidence import Bound, Combined, Levels, Quantity, Statement, Verdict, levels, verdict
from studies.report.measures import MEASURES, SCORE, measured
from studies.report.table_results import TableResults
from studies.report.text import score, signed

Status = Literal[Verdict, "not tested here", "theorem"]
Condition = Mapping[str, Any]
Numbers = Callable[[Condition], Mapping[str, Quantity] | None]
"""From a leaf of a condition to its numbers by name; None without results."""
FORMS: Mapping[str, Callable[[float], str]] = {
    "signed": signed,
    "score": score,
    "share": lambda value: score(min(max(value, 0.0), 1.0)),  # bounds of an interval may lie outside of 0 to 1
    "percent": lambda value: f"{value:.1%}",
    "degrees": lambda angle: f"{signed(degrees(angle), 1)}°" if np.isfinite(angle) else "any angle",
}


LEAF = {"row", "less", "mean_of", "less_mean_of", "called", "column", "measure", "above", "below", "margin", "form"}
"""The words of a leaf about rows."""


class UntestedError(Exception):
    """The results cannot decide a claim: the message says why, if it is not for lack of results."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that results can decide, as an entry `[[claim]]` has it."""

    key: str
    paper: str
    section: str
    text: str
    criterion: str
    kind: str = "claim"
    """A `claim` counts for or against the paper. A statement `beyond the paper` is about a regime or a measure that the
    paper does not claim. A `theorem` is proved and checked by tests; results only illustrate it."""
    tables: tuple[Mapping[str, str], ...] = ()
    only_if: Condition | None = None
    condition: Condition = field(default_factory=dict)
    """What must hold."""

    @property
    def measures_training(self) -> bool:
        """Whether it reads a measure of training, whose interval covers other seeds only."""
        return "measure" in _words(self.condition)


def read_claims(path: Path) -> tuple[Claim, ...]:
    """The claims of a file, in its order. Raises InputError for an entry that lacks something or has too much."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    lists = found.get("lists", {})
    named = {name: value for name, value in Claim.__dataclass_fields__.items() if name != "condition"}
    claims = []
    for entry in found["claim"]:
        for values in entry.pop("variants", [{}]):
            made = {**_filled(entry, values), **{name: of for name, of in values.items() if name in named}}
            about = {name: made.pop(name) for name in named if name in made}
            try:
                claims.append(Claim(**about, condition=_mapped(made, lambda text: lists.get(text, text))))
            except TypeError as error:
                raise InputError(f"{path}: claim {entry.get('key')}: {error}") from None
    return tuple(claims)


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    """A value with texts for names in braces."""

    def fill(text: str) -> str:
        for name, of in names.items():
            text = text.replace(f"{{{name}}}", of)
        return text

    return _mapped(value, fill)


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    """A value with all its texts changed."""
    if isinstance(value, Mapping):
        return {key: _mapped(of, change) for key, of in value.items()}
    if isinstance(value, list):
        return [_mapped(of, change) for of in value]
    return change(value) if isinstance(value, str) else value


def _words(value: Any) -> set[str]:
    """The words of a condition, at any depth."""
    if isinstance(value, Mapping):
        return {*value, *_words(list(value.values()))}
    return set().union(*map(_words, value)) if isinstance(value, list) else set()


def judge(
    claims: Sequence[Claim], tables: Mapping[str, TableResults], numbers: Mapping[str, Numbers], readings: int = 1
) -> pandas.DataFrame:
    """Every claim with its verdict, corrected for the number of claims of its paper that are among these.

    Columns: the fields of `Claim` for readers, `status`, the `evidence` as text, the `number` of it that decides with
    its 95% interval, and that interval `corrected`. Tables that were not run are missing. `numbers` are further kinds
    of numbers, by the first key of their leaves. `readings`: how often verdicts have been read while seeds were added;
    each is tested at 5% divided by it.
    """
    about = ["key", "paper", "section", "text", "criterion", "kind"]
    found = [_found(claim, tables, numbers) for claim in claims]
    at = {}
    for paper in {claim.paper for claim in claims}:
        of_paper = [one for claim, one in zip(claims, found, strict=True) if claim.paper == paper and one is not None]
        statements = [statement for statement, _ in of_paper if statement is not None]
        at[paper] = levels(statements, len(of_paper), LEVEL / readings)
    lines = [
        (*(getattr(claim, name) for name in about), *_decided(claim, one, at[claim.paper]))
        for claim, one in zip(claims, found, strict=True)
    ]
    return pandas.DataFrame(lines, columns=[*about, "status", "evidence", "number", "corrected"])


def _found(
    claim: Claim, tables: Mapping[str, TableResults], numbers: Mapping[str, Numbers]
) -> tuple[Statement | None, str] | None:
    """What results say of a claim, and the evidence as a text with {} for it. None without results.

    If results cannot decide it, there is no statement, and the text says why.
    """
    for place in claim.tables or ({},):
        results = tables.get(place.get("table", ""))
        if claim.tables and results is None:
            continue
        called = f"{place['called']}: " if "called" in place else ""
        seeds = " (one seed: intervals do not cover other seeds)" if results is not None and results.single_seed else ""
        evaluator = Evaluator(results, numbers, place.get("column", SCORE))
        try:
            if claim.only_if:
                evaluator.require(claim.only_if)
            return evaluator.statement(claim.condition), f"{called}{{}}{seeds}"
        except UntestedError as reason:
            if str(reason):
                return None, f"{called}{reason}{seeds}"
    return None


def _decided(claim: Claim, found: tuple[Statement | None, str] | None, at: Levels) -> tuple[Status, str, str, str]:
    """The status of a claim, its evidence, and the number that decides, with both intervals."""
    statement, text = found or (None, "")
    if statement is None or claim.kind == "theorem":  # results only illustrate a theorem
        untested: Status = "theorem" if claim.kind == "theorem" else "not tested here"
        return untested, text if statement is None else text.format(statement.text()), "", ""
    status, evidence = decided(statement, at)
    decider = statement.deciding(at.refute if status == "equivalent or opposite" else at.show, status)
    number, corrected = (decider[0].text(), decider[0].interval(decider[1])) if decider else ("", "")
    return status, text.format(evidence), number, corrected


def decided(statement: Statement, at: Levels) -> tuple[Verdict, str]:
    """The verdict on a statement, and the evidence: of an open one with what the results could have shown."""
    status, found = verdict(statement, at), statement.text()
    _, least = statement.least(at.show) if status == "open" else (0.0, "")
    power = f"the smallest effect that these results could show with {POWER:.0%} power: {least}" if least else ""
    return status, "; ".join(filter(None, (found, power)))


@dataclass(frozen=True)
class Evaluator:
    """Turns conditions into statements on the results of a table; there is none for claims about other numbers."""

    results: TableResults | None
    numbers: Mapping[str, Numbers]
    column: str = SCORE

    def require(self, condition: Condition) -> None:
        """Raises UntestedError if the lowest mean of a measure over rows is below `at_least` or above `at_most`."""
        values = {row: self._values(row, condition) for row in _list(condition["row"])}
        if not all(map(len, values.values())):
            raise UntestedError("" if "at_most" in condition else f"{condition['called']} is not known")
        means = {row: fmean(found.values()) for row, found in values.items()}
        lowest = min(means.values())
        if not condition.get("at_least", -np.inf) <= lowest <= condition.get("at_most", np.inf):
            found = ", ".join(f"{self._label(row)} {mean:.1%}" for row, mean in means.items())
            raise UntestedError(f"{condition['called']}: {found}")

    def statement(self, condition: Condition) -> Statement:
        """What a condition says of the results. Raises UntestedError if they cannot decide it."""
        if "steps" in condition:
            found, steps = self.statement(_without(condition, "steps", "can")), self._steps
            why = f"trained for {steps:,} steps, the authors for {condition['steps']:,}"
            return found if steps >= condition["steps"] else Combined([found], True, why, condition["can"])
        for name, every in (("for_every", True), ("for_some", False)):
            if name in condition:
                parts, left_out = self._items(condition[name], _without(condition, name))
                return Combined(parts, every, left_out)
        self._check(condition)
        if "every" in condition:
            return Combined([self.statement(part) for part in condition["every"]], every=True)
        if "optima_differ" in condition:
            return self._optima_differ(**condition["optima_differ"])
        return self._leaf(condition)

    def _check(self, condition: Condition) -> None:
        """Raises InputError for a word that a condition of this kind does not have."""
        words = next(({name} for name in ("every", "optima_differ") if name in condition), LEAF)
        if (unknown := set(condition) - words) and not set(condition) & set(self.numbers):
            raise InputError(f"a claim's condition has {min(unknown)}; expected {', '.join(sorted(words))}")

    def _items(self, items: Sequence[str], condition: Condition) -> tuple[list[Statement], str]:
        """The statements for the items of a list, and what was found of those that `if` or `unless` leave out."""
        level, rest = LEVEL / len(items), _without(condition, "if", "unless")
        found: list[Statement] = []
        left_out = []
        for item in items:
            first, other = (
                self.statement(_filled(condition[name], {"item": item})) if name in condition else None
                for name in ("if", "unless")
            )
            if (first and first.holds_by(level) <= 0) or (other and other.holds_by(level) > 0):
                left_out.append((first or other).text())  # type: ignore[union-attr]  # one of them is there
                continue
            made = self.statement(_filled(rest, {"item": item}))
            if other is not None and other.fails_by(level) <= 0:
                made = Combined([made], every=True, note="not known whether it is needed", can="show")
            found.append(made)
        note = f"left out: {'; '.join(left_out)}" if left_out else ""
        if not found:
            raise UntestedError(note)
        return found, note

    def _leaf(self, condition: Condition) -> Statement:
        """Numbers beyond a bound; numbers without one, which illustrate theorems, show nothing."""
        above = "below" not in condition
        bound = condition.get("above" if above else "below", 0.0)
        form = FORMS[condition.get("form", "signed" if {"less", "less_mean_of"} & set(condition) else "score")]
        how = (bound, above, condition.get("margin", 0.0), form)
        parts = [Bound(name, number, *how) for name, number in self._numbers(condition).items()]
        return parts[0] if len(parts) == 1 else Combined(parts, every=True)

    def _numbers(self, condition: Condition) -> Mapping[str, Quantity]:
        kind = next((name for name in condition if name in self.numbers), None)
        if kind is not None:
            found = self.numbers[kind](condition)
            if found is None:
                raise UntestedError
            return found
        return {name: self._contrast(weights, condition) for name, weights in self._weights(condition)}

    def _weights(self, condition: Condition) -> Iterator[tuple[str, dict[str, float]]]:
        """Names of contrasts with their weights by row."""
        if "mean_of" in condition:
            rows, others = condition["mean_of"], condition["less_mean_of"]
            weights = dict.fromkeys(rows, 1 / len(rows)) | dict.fromkeys(others, -1 / len(others))
            yield f"{condition.get('column', self.column)}, {condition['called']}", weights
            return
        rows, others = (list(map(self._row, _list(of))) for of in (condition["row"], condition.get("less", [])))
        count = max(len(rows), len(others))
        rows, others = (of * (count if len(of) == 1 else 1) for of in (rows, others))
        empty: list[str] = [""] * count
        for row, other in zip(rows, others or empty, strict=True):
            name = self._label(row) + (f" less {self._label(other)}" if other else "")
            yield name, {row: 1.0, **({other: -1.0} if other else {})}

    def _row(self, row: Any) -> str:
        """A row's key; `{best = L}` is the row of a list with the highest score."""
        if isinstance(row, str):
            return row
        means = {key: self._known.mean(key, self.column) for key in row["best"]}
        if np.isnan(list(means.values())).any():
            raise UntestedError
        return max(means, key=means.__getitem__)

    @property
    def _known(self) -> TableResults:
        assert self.results is not None, "a claim on rows names a table"
        return self.results

    def _label(self, row: str) -> str:
        return self._known.table.label(row)

    def _contrast(self, weights: Mapping[str, float], condition: Condition) -> Uncertain:
        """Σ weight · mean over rows, of a score or of a measure. Raises UntestedError if a row has no results."""
        if "measure" not in condition:
            found = self._known.contrast(weights, condition.get("column", self.column))
        else:
            found = measured([(weight, self._values(row, condition)) for row, weight in weights.items()])
        if found is None:
            raise UntestedError
        return found

    def _values(self, row: str, condition: Condition) -> dict[int, float]:
        """A measure of a row's runs by seed, without runs that lack it. Empty if the row is missing."""
        name, *arguments = _list(condition["measure"])
        measure = MEASURES[name](*arguments)
        runs = self._known.runs.get(row, ())
        return {run.seed: value for run in runs if (value := measure(run)) is not None}

    @property
    def _steps(self) -> int:
        """The steps of the shortest training of the table."""
        trained = [run.history for runs in self._known.runs.values() for run in runs]
        return min((history[-1]["step"] if history else 0 for history in trained), default=0)

    def _optima_differ(self, rows: Sequence[str], columns: Sequence[str], equal: float) -> Statement:
        """Two columns each score higher at their own best row than at the other's.

        The opposite is that a single row is as good as any other for every column.
        """
        known = self._known
        tasks = [task for task in columns if all((row, task) in known.scores for row in rows)]
        gains: dict[tuple[str, str, str], Uncertain] = {}
        for task, (row, less) in product(tasks, permutations(rows, 2)):
            if (gain := known.contrast({row: 1, less: -1}, task)) is None:
                raise UntestedError
            gains[task, row, less] = gain
        if len(tasks) < 2:
            raise UntestedError
        best = {task: max(rows, key=lambda row: known.mean(row, task)) for task in tasks}

        def own(task: str, other: str) -> Bound:
            row, less = best[task], best[other]
            return Bound(f"{task}, {self._label(row)} less {self._label(less)}", gains[task, row, less])

        pairs = [(a, b) for a, b in combinations(tasks, 2) if best[a] != best[b]]
        differ = [Combined([own(a, b), own(b, a)], every=True) for a, b in pairs]
        as_good = [[Bound(a, g, equal, above=False) for (a, _, less), g in gains.items() if less == r] for r in rows]
        one_for_all = Combined([Combined(of, every=True) for of in as_good], every=False)
        return Combined(differ, every=False, opposite=one_for_all)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _without(condition: Condition, *names: str) -> Condition:
    return {name: value for name, value in condition.items() if name not in names}

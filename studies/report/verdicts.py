"""Verdicts: what results say of a claim, decided by intervals that are corrected for the number of a paper's claims.

A claim is a `Statement`. Its simplest form, a `Bound`, says that a number d is above a bound (here 0), and that a
difference below a margin m does not matter. With the corrected interval [low, high] of d, the verdict is the first of
these that is true (`verdict`):

    shown                                   low > m
    shown, perhaps smaller than the margin  low > 0
    equivalent or opposite                  high < m
    open                                    otherwise: the interval has 0 and m

docs/reference/verdicts.md says what each means, and how `Combined` statements are tested.

**Correction** (`levels`). That a claim holds, and that it fails, are the two tails of its interval, 2.5% each. Both are
corrected over the paper's n claims (Holm 1979): intervals have the level 5% / n; if k claims are shown, the others are
tested again at 5% / (n − k), until no more are shown. The same is done for claims that fail. Claims that are not above
the margin stay in the count, because they could still be shown wrongly. Each tail has any false statement with a
probability of at most 2.5%, however the claims depend on each other (Goeman and Solari 2010).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol, TypeAlias

from multitask.evaluation.statistics import LEVEL
from multitask.experiments.score_tables import signed

Verdict = Literal["shown", "shown, perhaps smaller than the margin", "equivalent or opposite", "open"]
NUMBERS_SHOWN = 4
"""The most numbers of a combined statement that evidence lists. Of more, it has the least or most sure one."""


class Quantity(Protocol):
    """A number with an interval."""

    @property
    def value(self) -> float:
        """The number that was found."""

    def interval(self, level: float) -> tuple[float, float]:
        """Its bounds."""

    def detectable(self, bound: float, level: float) -> float:
        """The smallest true value that would be shown to be above the bound with a probability of `POWER`."""


@dataclass(frozen=True)
class Bound:
    """A number is above a bound, or below it."""

    name: str
    number: Quantity
    bound: float = 0.0
    above: bool = True
    margin: float = 0.0  # smaller differences from the bound do not matter
    form: Callable[[float], str] = signed

    def text(self) -> str:
        """What was found, with its 95% interval."""
        return f"{self._named(self.number.value)} {self.interval(LEVEL)}"

    def interval(self, level: float) -> str:
        """`[+0.001, +0.009]`."""
        return f"[{', '.join(map(self.form, self.number.interval(level)))}]"

    def _reach(self, level: float) -> tuple[float, float]:
        """By how much the interval's near and far end are beyond the bound, in the direction that it must be."""
        low, high = self.number.interval(level)
        return (low - self.bound, high - self.bound) if self.above else (self.bound - high, self.bound - low)

    def _named(self, value: float) -> str:
        return f"{self.name} {self.form(value)}".lstrip()

    def holds_by(self, level: float, beyond_margin: bool = False) -> float:
        """By how much the interval is above the bound, or above the bound and its margin; not above 0 if it is not."""
        return self._reach(level)[0] - (self.margin if beyond_margin else 0.0)

    def fails_by(self, level: float) -> float:
        """By how much the interval shows that the statement fails; not above 0 if it does not."""
        low, high = self._reach(level)
        return self.margin - high if low <= 0 else -inf

    def least(self, level: float) -> tuple[float, str]:
        """The smallest effect that could have been shown: its distance from the bound, and its text."""
        distance = self.number.detectable(self.bound, level) - self.bound
        return distance, self._named(self.bound + distance if self.above else self.bound - distance)

    def deciding(self, level: float, verdict: Verdict) -> tuple["Bound", float]:
        """The number that decides, and the level of its interval."""
        return self, level


@dataclass(frozen=True)
class Combined:
    """All statements hold, or at least one of them (`every` is False)."""

    parts: Sequence["Statement"]
    every: bool
    note: str = ""
    # what results can decide, if they lack something
    can: Literal["show or refute", "show", "refute"] = "show or refute"
    opposite: "Statement | None" = None  # what refutes the statement, if that is about other numbers

    def _part_level(self, level: float, show: bool) -> float:
        """The level at which each part is tested."""
        return level if show == self.every else level / max(len(self.parts), 1)

    def text(self) -> str:
        """What was found of each; of many, the least sure one, or if one suffices the surest."""
        found = "; ".join(part.text() for part in self.parts)
        if len(self.parts) > NUMBERS_SHOWN:
            which, choose = ("least", min) if self.every else ("most", max)
            surest = choose(self.parts, key=lambda part: part.holds_by(LEVEL))
            found = f"{which} sure of {len(self.parts)}: {surest.text()}"
        return "; ".join(filter(None, (found, self.note)))

    def holds_by(self, level: float, beyond_margin: bool = False) -> float:
        """The least, or if one suffices the most, by which a part holds; not above 0 if the statement is not shown."""
        found = [part.holds_by(self._part_level(level, show=True), beyond_margin) for part in self.parts]
        return -inf if self.can == "refute" else min(found, default=inf) if self.every else max(found, default=-inf)

    def fails_by(self, level: float) -> float:
        """The most, or if one suffices the least, by which a part fails; not above 0 if the statement does not fail."""
        if self.opposite is not None:
            return self.opposite.holds_by(level)
        found = [part.fails_by(self._part_level(level, show=False)) for part in self.parts]
        return -inf if self.can == "show" else max(found, default=-inf) if self.every else min(found, default=inf)

    def least(self, level: float) -> tuple[float, str]:
        """That of the part that is hardest to show, of those not shown; if one suffices, of the easiest part."""
        if self.can == "refute":
            return inf, ""
        each = self._part_level(level, show=True)
        found = [part.least(each) for part in self.parts if not (self.every and part.holds_by(each) > 0)]
        choose, nothing = (max, (0.0, "")) if self.every else (min, (inf, "nothing"))
        return choose(found, key=lambda least: least[0], default=nothing)

    def deciding(self, level: float, verdict: Verdict) -> tuple[Bound, float] | None:
        """The number that decides, and the level of its interval.

        If all parts must hold: the least sure one, or where the statement fails, the one that fails most surely. If one
        suffices: the surest one if it is shown, otherwise the one that fails least surely. If the statement has an
        opposite of its own, the surest one. A claim that is open is neither shown nor refuted, and so its interval has
        the stricter of both levels.
        """
        fails = verdict == "equivalent or opposite"
        by_failing = self.opposite is None and (fails if self.every else not verdict.startswith("shown"))
        directions = (True, False) if verdict == "open" else (not by_failing,)
        each = min(self._part_level(level, show) for show in directions)

        def sure(part: "Statement") -> float:
            return -part.fails_by(each) if by_failing else part.holds_by(each)

        choose = min if self.every else max
        return choose(self.parts, key=sure).deciding(each, verdict) if self.parts else None


Statement: TypeAlias = Bound | Combined  # what a claim says of results


@dataclass(frozen=True)
class Levels:
    """The levels of the intervals that decide a paper's claims: whether they hold, and whether they fail."""

    show: float = LEVEL
    refute: float = LEVEL


def levels(statements: Collection[Statement], tests: int | None = None, level: float = LEVEL) -> Levels:
    """Corrected for the number of a paper's claims: of these, and others that results could not decide."""
    tests = tests or len(statements)

    def corrected(decided: Callable[[Statement, float], bool]) -> float:
        count, found = -1, 0
        while found > count:
            count = found
            found = sum(decided(statement, level / max(tests - count, 1)) for statement in statements)
        return level / max(tests - count, 1)

    return Levels(
        corrected(lambda statement, at: statement.holds_by(at, True) > 0),
        corrected(lambda statement, at: statement.fails_by(at) > 0),
    )


def verdict(statement: Statement, at: Levels = Levels()) -> Verdict:
    """What results say of a statement."""
    if statement.holds_by(at.show, beyond_margin=True) > 0:
        return "shown"
    if statement.holds_by(at.show) > 0:
        return "shown, perhaps smaller than the margin"
    return "equivalent or opposite" if statement.fails_by(at.refute) > 0 else "open"

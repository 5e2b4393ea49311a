"""Statements that results show, refute, or leave open.

A statement places a number above or below a bound. It is shown if the number's interval lies beyond the bound, and
refuted if the interval shows the opposite. A statement that something is better has a margin: it is refuted if the
difference is surely smaller than the margin, so that both count as equal. That is one of the two one-sided tests (TOST,
Schuirmann 1987); the other one, that it is not worse either, does not matter for such a statement.

Of `Combined` statements all must hold, or at least one. If all must hold, each is tested at the full level (Berger
1982), and the opposite, that some statement fails, at the level divided by their number. If one suffices, each is
tested at the level divided by their number, and the opposite, that all fail, at the full level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol, TypeAlias

from multitask.evaluation.statistics import LEVEL
from studies.report.text import signed

SHOWN = 4
"""The most numbers of a combined statement that are told. Of more, the one that decides is told."""


class Quantity(Protocol):
    """A number that results tell with an interval."""

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
    margin: float = 0.0
    """It is refuted if it surely does not reach the bound by so much, unless a small effect is shown."""
    form: Callable[[float], str] = signed

    @property
    def text(self) -> str:
        """What was found."""
        return self._named(self.number.value, LEVEL)

    @property
    def sure(self) -> float:
        """By how much the interval lies beyond the bound; negative if it does not."""
        return self._reach(LEVEL)[0]

    @property
    def open(self) -> float:
        """By how much the interval's far end is short of refuting it; negative if it is refuted."""
        low, high = self._reach(LEVEL)
        return high - self.margin if low <= 0 else high

    def _reach(self, level: float) -> tuple[float, float]:
        """By how much the interval's near and far end are beyond the bound, in the direction that it must be."""
        low, high = self.number.interval(level)
        return (low - self.bound, high - self.bound) if self.above else (self.bound - high, self.bound - low)

    def _named(self, value: float, level: float | None = None) -> str:
        bounds = "" if level is None else f" [{', '.join(map(self.form, self.number.interval(level)))}]"
        return f"{self.name} {self.form(value)}{bounds}".lstrip()

    def shown(self, level: float = LEVEL) -> bool:
        """Whether it holds."""
        return self._reach(level)[0] > 0

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether its opposite holds."""
        return self._reach(level)[1] < self.margin and not self.shown()

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """The smallest effect that could have been shown: its distance from the bound, and its text."""
        distance = self.number.detectable(self.bound, level) - self.bound
        return distance, self._named(self.bound + distance if self.above else self.bound - distance)


@dataclass(frozen=True)
class Combined:
    """All statements hold, or at least one of them (`every` is False)."""

    parts: Sequence["Statement"]
    every: bool
    note: str = ""
    can: Literal["show or refute", "show", "refute"] = "show or refute"
    """What results can decide, if they lack something."""
    opposite: "Statement | None" = None
    """What refutes the statement, if that is about other numbers."""

    def _levels(self, show: float, refute: float) -> tuple[float, float]:
        """The levels at which each part is shown and refuted."""
        count = max(len(self.parts), 1)
        return (show, refute / count) if self.every else (show / count, refute)

    @property
    def text(self) -> str:
        """What was found of each; of many, the one that decides."""
        found = "; ".join(part.text for part in self.parts)
        if len(self.parts) > SHOWN:
            which, choose = ("least", min) if self.every else ("most", max)
            found = f"{which} sure of {len(self.parts)}: {choose(self.parts, key=lambda part: part.sure).text}"
        return "; ".join(filter(None, (found, self.note)))

    @property
    def sure(self) -> float:
        found = [part.sure for part in self.parts]
        return min(found, default=inf) if self.every else max(found, default=-inf)

    @property
    def open(self) -> float:
        found = [part.open for part in self.parts]
        return min(found, default=inf) if self.every else max(found, default=-inf)

    def shown(self, level: float = LEVEL) -> bool:
        found = [part.shown(self._levels(level, level)[0]) for part in self.parts]
        return self.can != "refute" and (all(found) if self.every else any(found))

    def refuted(self, level: float = LEVEL) -> bool:
        if self.opposite is not None:
            return self.opposite.shown(level)
        found = [part.refuted(self._levels(level, level)[1]) for part in self.parts]
        return self.can != "show" and (any(found) if self.every else all(found))

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """Of the part that is hardest to show, of those that are not shown; or of the one that is easiest."""
        if self.can == "refute":
            return inf, ""
        each, _ = self._levels(level, level)
        found = [part.least(each) for part in self.parts if not (self.every and part.shown(each))]
        choose, nothing = (max, (0.0, "")) if self.every else (min, (inf, "nothing"))
        return choose(found, key=lambda least: least[0], default=nothing)


Statement: TypeAlias = Bound | Combined
"""What a claim says of results."""


def deciding(statement: Statement) -> str:
    """The number that decides, so that its interval fits the verdict.

    If all parts must hold: the least sure one, or where that is refuted, the one that is refuted most surely. If one
    suffices: the surest one if it is shown, otherwise the one that is refuted least surely. Of parts that have an
    opposite of its own, the surest one.
    """
    if isinstance(statement, Bound):
        return statement.text
    by_open = statement.refuted() if statement.every else not statement.shown() and statement.opposite is None
    choose, parts = min if statement.every else max, statement.parts
    return deciding(choose(parts, key=lambda part: part.open if by_open else part.sure)) if parts else ""

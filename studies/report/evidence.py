"""Statements that results show, refute, or leave open.

A statement places a number above or below a bound. It is shown if the number's interval lies beyond the bound, and
refuted if the interval shows the opposite. A statement that something is better has a margin: it is refuted if the
difference is surely smaller than the margin, so that both count as equal. That is one of the two one-sided tests (TOST,
Schuirmann 1987); the other one, that it is not worse either, does not matter for such a statement.

`Every` and `Some` combine statements. If all must hold, each is tested at the full level (Berger 1982), and the
opposite, that some statement fails, at the level divided by their number. If some statement suffices, the levels are
the other way round. A claim that stays open names the numbers whose 95% interval would have shown or refuted them, with
their interval at the corrected level.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from multitask.evaluation.statistics import LEVEL
from studies.report.format import signed


class Quantity(Protocol):
    """A number that results tell with an interval."""

    @property
    def value(self) -> float:
        """The number that was found."""

    def interval(self, level: float) -> tuple[float, float]:
        """Its bounds."""

    def detectable(self, bound: float, level: float) -> float:
        """The smallest true value that would be shown to be above the bound with a probability of `POWER`."""


class Statement(Protocol):
    """What a claim says of results."""

    @property
    def text(self) -> str:
        """What was found."""

    def shown(self, level: float = LEVEL) -> bool:
        """Whether it holds."""

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether its opposite holds."""

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """The smallest effect that could have been shown: its distance from the bound, and its text."""

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """What only the correction for several tests leaves open, with its interval at the corrected level."""


def _distance(least: tuple[float, str]) -> float:
    return least[0]


@dataclass(frozen=True)
class Above:
    """A number is above a bound.

    Args:
        name: of the number.
        number: with its interval.
        bound: what it must exceed.
        margin: it is refuted if it is surely below bound + margin, unless it is shown: a small, sure effect is one.
        form: a number as text.
    """

    name: str
    number: Quantity
    bound: float = 0.0
    margin: float = 0.0
    form: Callable[[float], str] = signed

    @property
    def text(self) -> str:
        """`InfoNCE over VICReg +0.030 [+0.020, +0.040]`."""
        return f"{self._named(self.number.value)} {self._interval(LEVEL)}"

    def _interval(self, level: float) -> str:
        low, high = self.number.interval(level)
        return f"[{self.form(low)}, {self.form(high)}]"

    def shown(self, level: float = LEVEL) -> bool:
        """Whether the interval is above the bound."""
        return self.number.interval(level)[0] > self.bound

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether the interval is below bound + margin, and the number is not surely above the bound."""
        return self.number.interval(level)[1] < self.bound + self.margin and not self.shown()

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """The smallest value that could have been shown to be above the bound."""
        value = self.number.detectable(self.bound, level)
        return value - self.bound, self._named(value)

    def _named(self, value: float) -> str:
        return f"{self.name} {self.form(value)}".lstrip()

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """The number, if its 95% interval shows or refutes it, and those of these levels do neither."""
        if self.shown(show) or self.refuted(refute) or not (self.shown() or self.refuted()):
            return []
        level = show if self.shown() else refute
        return [f"{self.name} {self._interval(level)} at {1 - level:.1%}".lstrip()]


@dataclass(frozen=True)
class Below(Above):
    """A number is below a bound; it is refuted if it is surely above bound − margin."""

    def shown(self, level: float = LEVEL) -> bool:
        """Whether the interval is below the bound."""
        return self.number.interval(level)[1] < self.bound

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether the interval is above bound − margin, and the number is not surely below the bound."""
        return self.number.interval(level)[0] > self.bound - self.margin and not self.shown()

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """The largest value that could have been shown to be below the bound: as far from it as one above."""
        distance = self.number.detectable(self.bound, level) - self.bound
        return distance, self._named(self.bound - distance)


@dataclass(frozen=True)
class Every:
    """All statements hold."""

    parts: Sequence[Statement]

    @property
    def text(self) -> str:
        """What was found of each."""
        return "; ".join(part.text for part in self.parts)

    def shown(self, level: float = LEVEL) -> bool:
        """Whether all are shown."""
        return all(part.shown(level) for part in self.parts)

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether one is refuted, corrected for their number."""
        return any(part.refuted(level / len(self.parts)) for part in self.parts)

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """Of the part that is hardest to show, of those that are not shown."""
        return max(
            (part.least(level) for part in self.parts if not part.shown(level)), key=_distance, default=(0.0, "")
        )

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """Of all parts, unless one is refuted."""
        if self.refuted(refute):
            return []
        return [number for part in self.parts for number in part.open(show, refute / len(self.parts))]


@dataclass(frozen=True)
class Some:
    """At least one of the statements holds."""

    parts: Sequence[Statement]

    @property
    def text(self) -> str:
        """What was found of each."""
        return "; ".join(part.text for part in self.parts)

    def shown(self, level: float = LEVEL) -> bool:
        """Whether one is shown, corrected for their number."""
        return any(self.each_shown(level))

    def each_shown(self, level: float = LEVEL) -> list[bool]:
        """For each statement whether it is shown, corrected for their number."""
        return [part.shown(level / len(self.parts)) for part in self.parts]

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether all are refuted."""
        return all(part.refuted(level) for part in self.parts)

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """Of the part that is easiest to show."""
        parts = (part.least(level / len(self.parts)) for part in self.parts)
        return min(parts, key=_distance, default=(inf, "nothing"))

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """Of all parts, unless one is shown."""
        if self.shown(show):
            return []
        return [number for part in self.parts for number in part.open(show / len(self.parts), refute)]


@dataclass(frozen=True)
class Opposed:
    """A statement whose opposite is a statement of its own."""

    statement: Statement
    opposite: Statement

    @property
    def text(self) -> str:
        """What was found of the statement."""
        return self.statement.text

    def shown(self, level: float = LEVEL) -> bool:
        """Whether the statement is shown."""
        return self.statement.shown(level)

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether the opposite is shown."""
        return self.opposite.shown(level)

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """Of the statement."""
        return self.statement.least(level)

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """Nothing: the statement and its opposite are about other numbers."""
        return []


@dataclass(frozen=True)
class Limited:
    """A statement that results can show only, or refute only.

    Args:
        statement: the statement.
        why: what the results lack; empty if they lack nothing.
        shows: whether they can show it anyway.
        refutes: whether they can refute it anyway.
    """

    statement: Statement
    why: str
    shows: bool = False
    refutes: bool = False

    @property
    def text(self) -> str:
        """What was found, and what is lacking."""
        return "; ".join(filter(None, (self.statement.text, self.why)))

    def shown(self, level: float = LEVEL) -> bool:
        """Whether it holds."""
        return (self.shows or not self.why) and self.statement.shown(level)

    def refuted(self, level: float = LEVEL) -> bool:
        """Whether its opposite holds."""
        return (self.refutes or not self.why) and self.statement.refuted(level)

    def least(self, level: float = LEVEL) -> tuple[float, str]:
        """Of the statement; nothing if the results cannot show it."""
        return (inf, "") if self.why and not self.shows else self.statement.least(level)

    def open(self, show: float = LEVEL, refute: float = LEVEL) -> list[str]:
        """Of the statement."""
        return self.statement.open(show, refute)

"""Comparisons of two rows: families of paired differences with corrected p, and agreement with published orders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from multitask.evaluation.statistics import LEVEL, Uncertain, holm

Name = TypeVar("Name")


@dataclass(frozen=True)
class Comparison:
    """A paired difference of two rows in a column, its 95% interval, and p corrected for all tests of the table."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def significant(self) -> bool:
        """At the 5% level, corrected for all tests of the table."""
        return self.p < LEVEL


@dataclass(frozen=True)
class Ordering:
    """Two rows with different published scores in a column.

    Args:
        column: the column.
        better: key of the row with the higher published score.
        worse: key of the other row.
        published: the published difference, above zero.
        ours: our difference, better less worse.
    """

    column: str
    better: str
    worse: str
    published: float
    ours: Comparison

    @property
    def agrees(self) -> bool:
        """Whether our scores have the published order; equal scores do not."""
        return self.ours.difference > 0


@dataclass(frozen=True)
class Agreement:
    """How many orderings agree with the published scores, and how many are significant on either side."""

    agree: int
    total: int
    significant: int
    contrary: int

    @classmethod
    def of(cls, orderings: Sequence[Ordering]) -> Self:
        """Count orderings."""
        agreeing = [ordering for ordering in orderings if ordering.agrees]
        others = [ordering for ordering in orderings if not ordering.agrees]
        return cls(
            len(agreeing),
            len(orderings),
            sum(ordering.ours.significant for ordering in agreeing),
            sum(ordering.ours.significant for ordering in others),
        )


def compared(differences: Mapping[Name, Uncertain]) -> dict[Name, Comparison]:
    """A family of tests by name, with p corrected for their number (Holm 1979)."""
    adjusted = holm([difference.p_value() for difference in differences.values()])
    return {
        name: Comparison(difference.value, *difference.interval(), p)
        for (name, difference), p in zip(differences.items(), adjusted, strict=True)
    }

"""Which factors of a full two-level factorial matter, and whether they interact: effects as contrasts of its cells.

With every factor coded +1 (on) or −1 (off), each cell is Σ_S b_S Π_{f∈S} x_f over all subsets S of the factors.
The effect of S is 2 b_S (Box, Hunter and Hunter 2005, chapter 5): of one factor the mean with it on less the mean with
it off; of two, half of how much the effect of one grows when the other is switched on.
"""

from collections.abc import Sequence
from itertools import combinations

Cell = frozenset[str]
"""The factors that are on."""


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets of the factors, the smaller first, the empty one too."""
    return [subset for size in range(len(factors) + 1) for subset in combinations(factors, size)]


def effect(factors: Sequence[str], of: Sequence[str]) -> dict[Cell, float]:
    """Weights of the cells whose weighted sum is the effect of some factors (main effect of one, interaction of more).

    Raises:
        ValueError: `of` is empty or has what is no factor.
    """
    if not of or not set(of) <= set(factors):
        raise ValueError(f"effect of {list(of)}; expected one or more of {list(factors)}")
    cells = map(frozenset, subsets(factors))
    return {cell: (-1.0) ** len(set(of) - cell) / 2 ** (len(factors) - 1) for cell in cells}

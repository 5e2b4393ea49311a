"""Which texts of a corpus are hard negatives. Imports nothing heavy, because `--help` imports it."""

from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, Seed, settings

AtMostOne = Annotated[float, Field(gt=0, le=1)]


@settings
class HardNegatives:
    """Which of the texts near an anchor are its negatives."""

    ranks: tuple[int, ...] = (0, 50)
    """Two numbers: which of the texts nearest to an anchor, without known positives, can be its negatives. `5 50` skips
    the five nearest and stops after the fiftieth."""
    margin: AtLeastZero | None = None
    """A negative's cosine with the anchor is lower than the positives' cosines by at least this much."""
    relative_margin: AtMostOne | None = 0.95
    """A negative's cosine is at most this share of the positives' cosines; `none`: any cosine."""
    negatives: Count = 1
    """Most negatives of an anchor."""
    sampling: Literal["first", "random"] = "first"
    """Which of these texts to take: the `first`, which are nearest, or some at `random`."""
    seed: Seed = 0
    """Seed of the random draw."""

    def __post_init__(self) -> None:
        if len(self.ranks) != 2 or not 0 <= self.ranks[0] < self.ranks[1]:
            raise InputError(f"ranks are {self.ranks}; expected two numbers, the second larger, such as 10 50")
        if self.seed and self.sampling == "first":
            raise InputError(f"seed is {self.seed}, but nothing is drawn; it is for sampling random")
        if self.negatives > (most := self.ranks[1] - self.ranks[0]):
            raise InputError(f"negatives is {self.negatives}; expected at most {most}, the number of ranks")

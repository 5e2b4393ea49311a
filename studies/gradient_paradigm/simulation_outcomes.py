"""Results of simulations, and the names of their parts. Read without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from scipy.stats import binomtest

from minbert.files import atomic_file, read_arrays
from multitask.evaluation.statistics import LEVEL, POWER

Array = NDArray[Any]

SIMULATED = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
"""The losses whose dissipation is simulated."""
TRIPLETS = {"mpt": "MPT", "met": "MET", "mat": "MAT"}
"""The losses with a margin, which imitate the dissipation of InfoNCE."""
RATIO_MAPS = ("arccon", "met")  # the losses whose ratio depends on the angles
TEMPERATURES = (0.3, 0.1, 0.05, 0.03, 0.01, 0.005)
FILE = "simulations.npz"


@dataclass(frozen=True)
class Simulations:
    """Maps over the mean angles of positives (rows) and negatives (columns), weights over temperature, and counts."""

    positive_means: Array  # [rows] radians
    negative_means: Array  # [columns] radians
    temperatures: Array  # [temperatures]
    # of infonce, arccon, mpt and met, the mean over batches, [rows, columns] fp32 each
    dissipation: Mapping[str, Array]
    dissipation_error: Mapping[str, Array]  # the standard error of this mean, [rows, columns] fp32 each
    weights: Array  # of the hardest negative in a softmax, the mean over all batches, [temperatures, columns] fp32
    weights_error: Array  # the standard error of this mean, [temperatures, columns] fp32
    # the share of batches whose dissipation (of infonce at the same temperature, positives around 0.5) is at least
    # 0.01, [temperatures, columns] fp32
    kept: Array
    ratio: Mapping[str, Array]  # of arccon and met at the mean angles, [rows, columns] fp32 each
    # whether the loss has no gradient left at these angles, [rows, columns] bool each
    ratio_dissipated: Mapping[str, Array]
    # of mpt, met and mat, in how many random batches the loss is at least τ times InfoNCE, and of how many, [2] each
    above_infonce: Mapping[str, Array]

    def save(self, folder: Path) -> None:
        """Write an .npz. The arrays of a mapping are named like `dissipation.infonce`."""
        arrays: dict[str, Any] = {}
        for name, value in vars(self).items():
            arrays |= (
                {f"{name}.{p}": array for p, array in value.items()} if isinstance(value, Mapping) else {name: value}
            )
        with atomic_file(folder / FILE) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote. Raises InputError if it is damaged."""
        values: dict[str, Any] = {}
        for key, array in read_arrays(folder / FILE).items():
            name, _, part = key.partition(".")
            values[name] = {**values.get(name, {}), part: array} if part else array
        return cls(**values)


@dataclass(frozen=True)
class Rate:
    """How often a statement holds over independent trials."""

    holds: int
    trials: int

    @property
    def value(self) -> float:
        """The share of trials in which it holds."""
        return self.holds / self.trials

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Exact bounds of the rate (Clopper and Pearson 1934), each of which errs with at most level / 2.

        If the trials have different probabilities, as with several batch sizes, the bounds hold for the mean
        probability with at most the same error (Hoeffding 1956).
        """
        found = binomtest(self.holds, self.trials).proportion_ci(1 - level, "exact")
        return float(found.low), float(found.high)

    def detectable(self, bound: float, level: float = LEVEL) -> float:
        """The smallest rate whose lower bound would be above `bound` with a probability of `POWER`; 1 if none is."""
        few, many = 0, self.trials + 1  # the fewest successes that show it lie above `few` and are at most `many`
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if Rate(middle, self.trials).interval(level)[0] > bound else (middle, many)
        return 1.0 if many > self.trials else float(betaincinv(many, self.trials - many + 1, POWER))

"""Results of simulations and of checks of conjectures, and the names of their parts. Read without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from minbert.files import atomic_file, read_arrays, read_json
from multitask.evaluation.statistics import LEVEL, POWER

Array = NDArray[Any]

NAMES = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
"""The losses whose dissipation is simulated."""
TRIPLETS = {"mpt": "MPT", "met": "MET", "mat": "MAT"}
"""The losses with a margin, which imitate the dissipation of InfoNCE."""
RATIO_MAPS = ("arccon", "met")
"""The losses whose ratio depends on the angles."""
TEMPERATURES = (0.3, 0.1, 0.05, 0.03, 0.01, 0.005)
TEMPERATURE = 0.05
"""The temperature of the paradigm's weights."""
DISSIPATED = 0.01
"""A gradient counts as dissipated below this dissipation term, as in the papers' simulation."""

PAIRS, DIMENSIONS = (8, 32, 128), (8, 64, 768)
TRAINED_PAIRS, TRAINED_DIMENSIONS = (8, 32), (8, 64)
"""Smaller sizes, because each configuration is trained several times."""
STEP_SIZES = (0.01, 0.1, 0.3, 0.5, 1.0)
CONSTANT_RATIOS = (1.0, 1.5, 2.0)
DYNAMIC_RATIOS = ("arccon", "met")

GAP_AT_END, GAP_THROUGHOUT = "gap is smaller at the end", "gap is never larger"
MAJORITY, LARGEST = "hardest negative is more than half", "hardest negative is the largest part"
CONDITION, MORE_OFTEN = "condition of Lemma 1 holds", "condition holds with this ratio and not with 1, not the reverse"
SUFFICIENT, CLOSER = "condition suffices on the sphere", "anchor is closer after the step"
BOUND, BOUND_WITH_CONSTANTS = "loss is above τ times InfoNCE", "InfoNCE is below a multiple of the loss and a constant"


@dataclass(frozen=True)
class Simulations:
    """Maps over the mean angles of positives (rows) and negatives (columns), and weights over temperature.

    Args:
        positive_means: [rows] radians.
        negative_means: [columns] radians.
        temperatures: [temperatures].
        dissipation: of infonce, arccon, mpt and met, the mean over batches, [rows, columns] fp32 each.
        dissipation_error: the standard error of this mean, [rows, columns] fp32 each.
        weights: of the hardest negative in a softmax, the mean over all batches, [temperatures, columns] fp32.
        weights_error: the standard error of this mean, [temperatures, columns] fp32.
        kept: the share of batches whose dissipation (of infonce at the same temperature, positives around 0.5) is at
            least 0.01, [temperatures, columns] fp32.
        kept_weights: the mean over these batches; NaN without such a batch, where the paper's script writes 1.
        ratio: of arccon and met at the mean angles, [rows, columns] fp32 each.
        ratio_dissipated: whether the loss has no gradient left at these angles, [rows, columns] bool each.
    """

    positive_means: Array
    negative_means: Array
    temperatures: Array
    dissipation: Mapping[str, Array]
    dissipation_error: Mapping[str, Array]
    weights: Array
    weights_error: Array
    kept: Array
    kept_weights: Array
    ratio: Mapping[str, Array]
    ratio_dissipated: Mapping[str, Array]

    def save(self, path: Path) -> None:
        """Write an .npz. The arrays of a mapping are named like `dissipation.infonce`."""
        arrays: dict[str, Any] = {}
        for name, value in vars(self).items():
            parts = {f"{name}.{part}": of for part, of in value.items()} if isinstance(value, Mapping) else {}
            arrays |= parts or {name: value}
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises InputError if it is damaged."""
        values: dict[str, Any] = {}
        for key, array in read_arrays(path).items():
            name, _, part = key.partition(".")
            values[name] = {**values.get(name, {}), part: array} if part else array
        return cls(**values)


@dataclass(frozen=True)
class Estimate:
    """How often a statement holds over random configurations; 0 pairs or dimensions stand for several, pooled."""

    statement: str
    case: str
    pairs: int
    dim: int
    holds: int
    trials: int
    """Independent configurations to which it applies."""
    counter_examples: Sequence[Mapping[str, float]] = ()
    """Some configurations in which it does not hold, with their number `trial`, what they were drawn with, and what was
    found. `configuration(seed, pairs, dim, trial)` draws a configuration again."""

    @property
    def rate(self) -> float:
        """The share of trials in which it holds; NaN without trials."""
        return self.holds / self.trials if self.trials else math.nan

    @property
    def value(self) -> float:
        """The rate."""
        return self.rate

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Exact bounds of the rate."""
        return clopper_pearson(self.holds, self.trials, level)

    def detectable(self, bound: float, level: float = LEVEL) -> float:
        """The smallest rate whose lower bound would be above `bound` with a probability of `POWER`; 1 if none is."""
        few, many = 0, self.trials + 1  # the fewest successes that show it lie above `few` and are at most `many`
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if clopper_pearson(middle, self.trials, level)[0] > bound else (middle, many)
        return 1.0 if many > self.trials else float(betaincinv(many, self.trials - many + 1, POWER))


def clopper_pearson(successes: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Exact bounds of a probability from independent trials (Clopper and Pearson 1934).

    Each bound errs with a probability of at most level / 2. If the trials have different probabilities, as with several
    batch sizes, the bounds hold for the mean probability with at most the same error (Hoeffding 1956).
    """
    low = float(betaincinv(successes, trials - successes + 1, level / 2)) if successes else 0.0
    high = float(betaincinv(successes + 1, trials - successes, 1 - level / 2)) if successes < trials else 1.0
    return low, high


def rate_of(estimates: Sequence[Estimate], statement: str, case: str, pairs: int = 0) -> Estimate:
    """The estimate of a statement and a case, pooled over all sizes, or over all dimensions of one batch size."""
    chosen = [e for e in estimates if (e.statement, e.case) == (statement, case) and pairs in (0, e.pairs)]
    return Estimate(statement, case, pairs, 0, sum(e.holds for e in chosen), sum(e.trials for e in chosen))


def case_of(name: str, step_size: float) -> str:
    """The case of a loss or ratio at a step size."""
    return f"{name}, step {step_size:g}"


def as_json(estimates: list[Estimate]) -> list[dict[str, Any]]:
    """Estimates with their rates and bounds."""
    rates = [None if math.isnan(one.rate) else one.rate for one in estimates]
    return [{**vars(one), "rate": rate, "interval": one.interval()} for one, rate in zip(estimates, rates, strict=True)]


def from_json(values: list[dict[str, Any]]) -> list[Estimate]:
    """What `as_json` made."""
    return [Estimate(**{k: v for k, v in value.items() if k not in ("rate", "interval")}) for value in values]


def read_simulations(folder: Path) -> tuple[Simulations, list[Estimate]]:
    """What the artefact of `simulate` holds."""
    return Simulations.load(folder / "simulations.npz"), from_json(read_json(folder / "conjectures.json"))

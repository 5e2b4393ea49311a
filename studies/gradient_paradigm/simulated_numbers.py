"""The numbers that claims on simulations are about."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from multitask.evaluation.statistics import LEVEL, POWER
from studies.gradient_paradigm.simulation_outcomes import NAMES, TRIPLETS, Array, Rate, Simulations
from studies.report.evidence import Quantity

NORMAL = NormalDist()


@dataclass(frozen=True)
class Simulated:
    """A number that simulated batches tell up to chance."""

    at: Callable[[float], float]
    """The number if every simulated mean were off by so many standard errors; it must rise or fall throughout."""

    @property
    def value(self) -> float:
        """The number that was found."""
        return self.at(0.0)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Its bounds if all means err in the same direction."""
        errors = NORMAL.inv_cdf(1 - level / 2)
        low, high = sorted(self.at(sign * errors) for sign in (-1.0, 1.0))
        return low, high

    def detectable(self, bound: float, level: float = LEVEL) -> float:
        """The smallest number that would be shown to be above the bound with a probability of `POWER`."""
        low, high = self.interval(level)
        return bound + (high - low) / 2 * (1 + NORMAL.inv_cdf(POWER) / NORMAL.inv_cdf(1 - level / 2))


def fall(dissipation: Array, simulations: Simulations, level: float) -> Array:
    """By how much μ_neg exceeds μ_pos where the dissipation term falls to a level, in each row  # [rows] radians.

    Interpolated between columns; infinite in rows that never fall to the level.
    """
    gaps = []
    for row, positive in zip(dissipation, simulations.positive_means, strict=True):
        below = np.flatnonzero(row < level)
        if not len(below):
            gaps.append(np.inf)
            continue
        last = max(int(below[0]), 1)
        crossing = np.interp(level, row[[last, last - 1]], simulations.negative_means[[last, last - 1]])
        gaps.append(crossing - positive)
    return np.array(gaps)


def _maps(simulations: Simulations, called: str, reduced: Callable[[Array], float]) -> dict[str, Quantity]:
    """A number of each loss's map of dissipation."""
    maps, errors = simulations.dissipation, simulations.dissipation_error
    return {
        called.format(NAMES[loss]): Simulated(
            lambda sign, loss=loss: float(reduced(maps[loss] + sign * errors[loss]))  # type: ignore[misc]
        )
        for loss in maps
    }


def least_before(simulations: Simulations) -> dict[str, Quantity]:
    """The least dissipation where the negatives are not farther than the positive, by loss."""
    nearer = simulations.negative_means <= simulations.positive_means[:, None]
    return _maps(simulations, "{}, before", lambda map_: map_[nearer].min())


def least_at_last(simulations: Simulations) -> dict[str, Quantity]:
    """The highest of the rows' least dissipation, by loss."""
    return _maps(simulations, "{}, at last", lambda map_: map_.min(1).max())


def gap_at_half(simulations: Simulations) -> dict[str, Quantity]:
    """The gap, in radians, at which InfoNCE's dissipation has fallen to half."""
    of = _maps(simulations, "{}", lambda map_: fall(map_, simulations, 0.5).max())
    return {"half at a gap of at most": of["InfoNCE"]}


def gaps_of_the_fall(simulations: Simulations) -> dict[str, Quantity]:
    """Between which gaps, in radians, InfoNCE's dissipation falls from 0.9 to 0.1."""
    map_, error = simulations.dissipation["infonce"], simulations.dissipation_error["infonce"]

    def width(errors: float) -> float:
        gone = fall(map_ + errors * error, simulations, 0.1)
        if not np.isfinite(gone).all():
            return np.inf
        return float((gone - fall(map_ - errors * error, simulations, 0.9)).max())

    return {"from 0.9 to 0.1 within": Simulated(width)}


def hardest_weight(simulations: Simulations, temperature: float) -> dict[str, Quantity]:
    """The hardest negative's least mean weight over the mean angles of the negatives."""
    place = list(simulations.temperatures).index(temperature)
    row, error = simulations.weights[place], simulations.weights_error[place]
    return {"least weight": Simulated(lambda errors: float((row + errors * error).min()))}


def rising_weights(simulations: Simulations) -> dict[str, Quantity]:
    """The share of comparisons in which the weight rises with the next lower temperature."""
    order = np.argsort(-simulations.temperatures)
    share = float((np.diff(simulations.weights[order], axis=0) > 0).mean())
    return {"rises in a share of the comparisons of": Simulated(lambda errors: share)}


def _acts(simulations: Simulations, loss: str) -> Array:
    """Where a gradient remains and the positive is nearer, [rows, columns]."""
    nearer = simulations.positive_means[:, None] < simulations.negative_means
    return nearer & ~simulations.ratio_dissipated[loss]


def ratio_above_one(simulations: Simulations, loss: str) -> dict[str, Quantity]:
    """The share of the area with a ratio above 1, which the grid tells up to the squares that a border runs through."""
    inside, above = (
        np.stack([cells[:-1, :-1], cells[1:, :-1], cells[:-1, 1:], cells[1:, 1:]])  # corners of each square
        for cells in (_acts(simulations, loss), simulations.ratio[loss] > 1)
    )
    counted = above[:, inside.all(0)]
    least, share, most = (float(of.mean()) for of in (counted.all(0), counted, counted.any(0)))
    return {"share of the angles": Simulated(lambda sign: most if sign > 0 else least if sign < 0 else share)}


def median_ratio(simulations: Simulations, loss: str) -> dict[str, Quantity]:
    """The median ratio where a gradient remains and the positive is nearer."""
    median = float(np.median(simulations.ratio[loss][_acts(simulations, loss)]))
    return {"median": Simulated(lambda errors: median)}


def above_infonce(simulations: Simulations) -> dict[str, Quantity]:
    """The share of random batches in which a loss with a margin is at least τ times InfoNCE, by loss."""
    return {f"{TRIPLETS[loss]}:": Rate(*map(int, counts)) for loss, counts in simulations.above_infonce.items()}

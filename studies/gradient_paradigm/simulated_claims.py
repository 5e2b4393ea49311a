"""Claims on simulated angles, and the numbers that they are about."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import radians
from statistics import NormalDist

import numpy as np

from multitask.evaluation.statistics import LEVEL, POWER
from studies.gradient_paradigm.simulation_outcomes import SIMULATED, TRIPLETS, Array, Rate, Simulations
from studies.report.claims import Claim, bounded, every, in_degrees, percent
from studies.report.verdicts import Quantity, Statement

HALF = 0.5
paradigm_claim = partial(Claim, paper="paradigm")
inadequacy_claim = partial(Claim, paper="inadequacy")
NORMAL = NormalDist()


@dataclass(frozen=True)
class Simulated:
    """A number that simulated batches estimate."""

    # the number if every simulated mean were off by so many standard errors; it must rise or fall throughout
    at: Callable[[float], float]

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


def angle_of_fall(dissipation: Array, simulations: Simulations, level: float) -> Array:
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
        called.format(SIMULATED[loss]): Simulated(
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
    gaps = _maps(simulations, "{}", lambda map_: angle_of_fall(map_, simulations, 0.5).max())
    return {"half at a gap of at most": gaps["InfoNCE"]}


def gaps_of_the_fall(simulations: Simulations) -> dict[str, Quantity]:
    """Between which gaps, in radians, InfoNCE's dissipation falls from 0.9 to 0.1."""
    map_, error = simulations.dissipation["infonce"], simulations.dissipation_error["infonce"]

    def width(errors: float) -> float:
        gone = angle_of_fall(map_ + errors * error, simulations, 0.1)
        if not np.isfinite(gone).all():
            return np.inf
        return float((gone - angle_of_fall(map_ - errors * error, simulations, 0.9)).max())

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
    """The share of the area with a ratio above 1, known up to the grid's squares that a border crosses."""
    inside, above = (
        np.stack([cells[:-1, :-1], cells[1:, :-1], cells[:-1, 1:], cells[1:, 1:]])  # corners of each square
        for cells in (_acts(simulations, loss), simulations.ratio[loss] > 1)
    )
    counted = above[:, inside.all(0)]
    least, share, most = (float(cells.mean()) for cells in (counted.all(0), counted, counted.any(0)))
    return {"share of the angles": Simulated(lambda sign: most if sign > 0 else least if sign < 0 else share)}


def median_ratio(simulations: Simulations, loss: str) -> dict[str, Quantity]:
    """The median ratio where a gradient remains and the positive is nearer."""
    median = float(np.median(simulations.ratio[loss][_acts(simulations, loss)]))
    return {"median": Simulated(lambda errors: median)}


def above_infonce(simulations: Simulations) -> dict[str, Quantity]:
    """The share of random batches in which a loss with a margin is at least τ times InfoNCE, by loss."""
    return {f"{TRIPLETS[loss]}:": Rate(*map(int, counts)) for loss, counts in simulations.above_infonce.items()}


def falls_to_zero(simulations: Simulations) -> Statement:
    """Dissipation is there while negatives are nearer, and is gone at last."""
    nearer, at_last = least_before(simulations), least_at_last(simulations)
    return every([bounded(nearer, 0.9), bounded(at_last, 0.01, above=False)])


def quickly(simulations: Simulations) -> Statement:
    """Half of the dissipation is gone at a moderate gap, and most of it soon after."""
    half, width = gap_at_half(simulations), gaps_of_the_fall(simulations)
    return every(bounded(gap, radians(most), above=False, form=in_degrees) for gap, most in ((half, 45), (width, 30)))


SIMULATED_CLAIMS = (
    paradigm_claim(
        key="falls-to-zero",
        section="section 3.1",
        text="The dissipation terms of InfoNCE, ArcCon, MPT and MET fall to 0 once the negatives are far enough beyond "
        "the positive.",
        criterion="For each loss and mean angle of the positive, the term is above 0.9 while μ_neg <= μ_pos, and below "
        "0.01 from some μ_neg <= π on.",
        says=falls_to_zero,
    ),
    inadequacy_claim(
        key="quickly",
        section="section 1",
        text="The gradient signal of the contrastive loss quickly drops and vanishes as soon as the negative is "
        "adequately further away than the positive, by a rather moderate threshold.",
        criterion="InfoNCE's dissipation passes half at a gap of means below 45°, and falls from 0.9 to 0.1 within "
        "30°.",
        says=quickly,
    ),
    paradigm_claim(
        key="lower-temperature",
        section="section 3.1",
        text="The lower the temperature, the more weight the hardest negative has.",
        criterion="The largest weight of a softmax rises with every lower temperature: the logarithm of each other "
        "weight relative to it is −(difference of cosines) / τ.",
        kind="theorem",
        says=lambda simulations: bounded(rising_weights(simulations), 0, form=percent),
    ),
    paradigm_claim(
        key="dominates",
        section="section 3.1",
        text="The weight term puts the hardest negative in a dominant position (simulated angles).",
        criterion="At temperature 0.05, the hardest negative's mean weight is above half for every mean angle of the "
        "negatives. Half is our threshold: the paper names none.",
        says=lambda simulations: bounded(hardest_weight(simulations, 0.05), HALF),
    ),
    paradigm_claim(
        key="ratio-arccon",
        section="section 3.1, figure of the ratio",
        text="Where a gradient remains, the ratio of ArcCon is above 1, the ratio of InfoNCE and MPT.",
        criterion="Of the angles with the positive nearer than the negatives and a gradient that is not dissipated, "
        "the ratio is above 1 for more than 90%. The share is known up to the grid's squares through which a border "
        "runs.",
        says=lambda simulations: bounded(ratio_above_one(simulations, "arccon"), 0.9, form=percent),
    ),
    paradigm_claim(
        key="ratio-met",
        section="section 3.1, figure of the ratio",
        text="Where the positive is nearer than the negatives, the ratio of MET is above 1, the ratio of InfoNCE and "
        "MPT.",
        criterion="By definition: the ratio is the distance to the hardest negative divided by the distance to the "
        "positive.",
        kind="theorem",
        says=lambda simulations: bounded(median_ratio(simulations, "met"), 0),
    ),
    inadequacy_claim(
        key="bound",
        section="section 1",
        text="The losses that imitate dissipation by a margin (MPT, MET, MAT) are upper bounds of the standard "
        "contrastive loss.",
        criterion="Without constants: with the papers' margins the loss is at least τ times InfoNCE, in at least 95% "
        "of the random configurations.",
        says=lambda simulations: bounded(above_infonce(simulations), 0.95, form=percent),
    ),
)
"""About the parts of gradients."""

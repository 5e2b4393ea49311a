"""The papers' claims that simulations and random configurations of embeddings decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np

from multitask.evaluation.statistics import LEVEL, POWER
from studies.gradient_paradigm import INADEQUACY, UNIFIED
from studies.gradient_paradigm import simulation_outcomes as about
from studies.gradient_paradigm.simulation_outcomes import (
    DISSIPATED,
    NAMES,
    TEMPERATURE,
    Array,
    Estimate,
    Simulations,
    rate_of,
)
from studies.report.evidence import Above, Below, Every, Statement
from studies.report.format import score
from studies.report.verdicts import Judged, Verdict, judge, read_claims

Estimates = Sequence[Estimate]
ENSURED = 0.95
"""A claim that something is ensured needs a rate whose lower bound is at least this."""
MOST = 0.9
"""A claim about most cases needs a share above this."""
MODERATE_GAP, QUICK_FALL = np.radians(45), np.radians(30)
SMALL_STEPS = tuple(size for size in about.STEP_SIZES if size <= 0.3)
LARGE_STEPS = tuple(size for size in about.STEP_SIZES if size > 0.3)
NORMAL = NormalDist()
TOO_FEW = Verdict("not tested here", "too few configurations were drawn")


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


def _range(values: Array) -> str:
    return f"{values.min():.0f} to {values.max():.0f}"


@dataclass(frozen=True)
class Simulated:
    """A number that simulated batches tell up to chance.

    Args:
        at: the number if every simulated mean were off by so many standard errors; it must rise or fall throughout.
    """

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


def _degrees(angle: float) -> str:
    return f"{np.degrees(angle):.0f}°" if np.isfinite(angle) else "any angle"


def _falls_to_zero(simulations: Simulations) -> Verdict:
    nearer = simulations.negative_means <= simulations.positive_means[:, None]
    parts: list[Statement] = []
    for loss, map_ in simulations.dissipation.items():
        error = simulations.dissipation_error[loss]
        half, gone = (np.degrees(fall(map_, simulations, level)) for level in (0.5, DISSIPATED))

        def before(errors: float, map_: Array = map_, error: Array = error) -> float:
            return float((map_ + errors * error)[nearer].min())

        def beyond(errors: float, map_: Array = map_, error: Array = error) -> float:
            return float((map_ + errors * error).min(1).max())

        found = f"{NAMES[loss]} half at a gap of {_range(half)}°, gone from {_range(gone)}°, before"
        parts += [
            Above(found, Simulated(before), MOST, form=score),
            Below("at last", Simulated(beyond), DISSIPATED, form=score),
        ]
    return Verdict.of(Every(parts))


def _quickly_at_a_moderate_gap(simulations: Simulations) -> Verdict:
    map_, error = simulations.dissipation["infonce"], simulations.dissipation_error["infonce"]

    def half(errors: float) -> float:
        return float(fall(map_ + errors * error, simulations, 0.5).max())

    def width(errors: float) -> float:
        gone = fall(map_ + errors * error, simulations, 0.1)
        return (
            float((gone - fall(map_ - errors * error, simulations, 0.9)).max()) if np.isfinite(gone).all() else np.inf
        )

    return Verdict.of(
        Every(
            [
                Below("half at a gap of at most", Simulated(half), MODERATE_GAP, form=_degrees),
                Below("from 0.9 to 0.1 within", Simulated(width), QUICK_FALL, form=_degrees),
            ]
        )
    )


def _lower_temperature_more_weight(simulations: Simulations) -> Verdict:
    order = np.argsort(-simulations.temperatures)
    share = float((np.diff(simulations.weights[order], axis=0) > 0).mean())
    means = ", ".join(f"{simulations.weights[k].mean():.2f} at {simulations.temperatures[k]:g}" for k in order)
    return illustrated(f"rises in {share:.0%} of the comparisons; mean over μ_neg {means}")


def _simulated_weight_dominates(simulations: Simulations) -> Verdict:
    place = list(simulations.temperatures).index(TEMPERATURE)
    row, error, kept = simulations.weights[place], simulations.weights_error[place], simulations.kept_weights[place]
    means = zip(simulations.temperatures, simulations.weights.mean(1), strict=True)
    enough = [f"{temperature:g}" for temperature, mean in means if mean > 0.5]
    least = Above("at least", Simulated(lambda errors: float((row + errors * error).min())), 0.5, form=score)
    evidence = (
        f"{least.text}, mean {row.mean():.2f}, at most {row.max():.2f} (up to {np.nanmax(kept):.2f} in batches that "
        f"keep a gradient); the mean is above half at temperature {', '.join(enough) or 'none of those simulated'}"
    )
    return Verdict.of(least, evidence)


def _ratios_that_act(loss: str, simulations: Simulations) -> tuple[Array, Array, str]:
    """Where a gradient remains and the positive is nearer, [rows, columns]; the ratio there; its range as text."""
    nearer = simulations.positive_means[:, None] < simulations.negative_means
    acts = nearer & ~simulations.ratio_dissipated[loss]
    ratio = simulations.ratio[loss]
    there = ratio[acts]
    return acts, ratio, f"{there.min():.2f} to {there.max():.2f}, median {np.median(there):.2f}"


def _ratio_of_met(simulations: Simulations) -> Verdict:
    return illustrated(_ratios_that_act("met", simulations)[2])


def _ratio_above_one(loss: str, simulations: Simulations) -> Verdict:
    """Decided by the share of the area, which the grid tells up to the squares that a border runs through."""
    acts, ratio, shown = _ratios_that_act(loss, simulations)
    inside, above = _corners(acts).all(0), _corners(ratio > 1)

    def share(direction: float) -> float:
        corners = above[:, inside]
        counted = corners.any(0) if direction > 0 else corners.all(0) if direction < 0 else corners
        return float(counted.mean())

    statement = Above("share of the angles", Simulated(share), MOST, form=lambda value: f"{value:.1%}")
    evidence = f"{statement.text}; {shown}"
    if (ratio[acts] <= 1).any():
        from_ = np.degrees(np.where(acts & (ratio <= 1), simulations.positive_means[:, None], np.inf).min())
        evidence += f"; not above 1 from μ_pos {from_:.0f}° on"
    return Verdict.of(statement, evidence)


def _corners(cells: Array) -> Array:
    """The four corners of each square of a grid  # [4, rows - 1, columns - 1]."""
    return np.stack([cells[:-1, :-1], cells[1:, :-1], cells[:-1, 1:], cells[1:, 1:]])


def illustrated(found: str) -> Verdict:
    """What results show of a theorem, which they cannot decide."""
    return Verdict("theorem", found)


def _percent(rate: float) -> str:
    return f"{rate:.1%}"


def shown_rate(rate: Estimate) -> str:
    """A rate, its bounds and the number of trials."""
    low, high = rate.interval()
    return f"{rate.rate:.1%} [{low:.1%}, {high:.1%}] of {rate.trials:,}"


def _in_all(
    statement: str, names: Sequence[str], steps: Sequence[float], least: float, beside: str | None = None
) -> Callable[[Estimates], Verdict]:
    """The rate is above `least` for each loss or ratio, by name, and step size.

    The ratio `beside` is shown for comparison only.
    """

    def label(name: str) -> str:
        return NAMES.get(name, f"ratio {name}")

    def decide(estimates: Estimates) -> Verdict:
        rates = {
            name: {step: rate_of(estimates, statement, about.case_of(name, step)) for step in steps}
            for name in [*names, *([] if beside is None else [beside])]
        }
        decisive = [
            Above(f"{label(name)}, step {step:g}:", rate, least, form=_percent)
            for name in names
            for step, rate in rates[name].items()
        ]
        if not all(rate.trials for name in names for rate in rates[name].values()):
            return TOO_FEW
        lowest = {name: min(of.items(), key=lambda item: item[1].interval()[0]) for name, of in rates.items()}
        parts = [f"{label(name)}: {shown_rate(rate)}, step {step:g}" for name, (step, rate) in lowest.items()]
        return Verdict.of(Every(decisive), ("lowest over the steps: " if len(steps) > 1 else "") + "; ".join(parts))

    return decide


def _hardest(statement: str, estimates: Estimates) -> Verdict:
    case = f"{TEMPERATURE:g}"
    own = rate_of(estimates, statement, case)
    if not own.trials:
        return TOO_FEW
    sizes = [f"batch of {pairs}: {shown_rate(rate_of(estimates, statement, case, pairs))}" for pairs in about.PAIRS]
    others = [f"{rate_of(estimates, statement, f'{t:g}').rate:.1%} at {t:g}" for t in about.TEMPERATURES]
    evidence = f"{shown_rate(own)}; {'; '.join(sizes)}; by temperature {', '.join(others)}"
    return Verdict.of(Above("", own, ENSURED, form=_percent), evidence)


def _bounded(statement: str, estimates: Estimates) -> Verdict:
    """The rate is high enough for each loss with a margin."""
    rates = {label: rate_of(estimates, statement, name) for name, label in about.TRIPLETS.items()}
    if not all(rate.trials for rate in rates.values()):
        return TOO_FEW
    evidence = "; ".join(f"{label}: {shown_rate(rate)}" for label, rate in rates.items())
    return Verdict.of(Every([Above(label, rate, ENSURED, form=_percent) for label, rate in rates.items()]), evidence)


SIMULATION_DECISIONS: dict[str, Callable[[Simulations], Verdict]] = {
    "falls-to-zero": _falls_to_zero,
    "quickly": _quickly_at_a_moderate_gap,
    "lower-temperature": _lower_temperature_more_weight,
    "dominates": _simulated_weight_dominates,
    "ratio-arccon": partial(_ratio_above_one, "arccon"),
    "ratio-met": _ratio_of_met,
}
_ratios = about.DYNAMIC_RATIOS
CONJECTURE_DECISIONS: dict[str, Callable[[Estimates], Verdict]] = {
    "gap-small-steps": _in_all(about.GAP_AT_END, tuple(NAMES), SMALL_STEPS, ENSURED),
    "gap-large-steps": _in_all(about.GAP_AT_END, tuple(NAMES), LARGE_STEPS, ENSURED),
    "majority": partial(_hardest, about.MAJORITY),
    "largest": partial(_hardest, about.LARGEST),
    "more-often-small-steps": _in_all(about.MORE_OFTEN, _ratios, SMALL_STEPS, 0.5),
    "more-often-large-steps": _in_all(about.MORE_OFTEN, _ratios, LARGE_STEPS, 0.5),
    "closer-small-steps": _in_all(about.CLOSER, _ratios, SMALL_STEPS, ENSURED, beside="1"),
    "closer-large-steps": _in_all(about.CLOSER, _ratios, LARGE_STEPS, ENSURED, beside="1"),
    "lemma": _in_all(about.SUFFICIENT, ("1", *_ratios), about.STEP_SIZES, ENSURED),
    "bound": partial(_bounded, about.BOUND),
    "bound-with-constants": partial(_bounded, about.BOUND_WITH_CONSTANTS),
}
PAPERS = (UNIFIED, INADEQUACY)
IN_BRACES = {
    "MOST": MOST,
    "DISSIPATED": DISSIPATED,
    "TEMPERATURE": TEMPERATURE,
    "SMALL": f"steps up to {max(SMALL_STEPS):g}",
    "LARGE": f"steps from {min(LARGE_STEPS):g} on (embeddings have length 1)",
    "ALMOST_ALWAYS": f"in at least {ENSURED:.0%} of the random configurations, by the bounds of the rate (95%)",
}
"""What stands for names in braces in claims.toml."""
SIMULATION_CLAIMS = read_claims(__file__, "simulated", PAPERS, SIMULATION_DECISIONS, IN_BRACES)
CONJECTURE_CLAIMS = read_claims(__file__, "conjectured", PAPERS, CONJECTURE_DECISIONS, IN_BRACES)


def judged_simulations(simulations: Simulations | None, estimates: Estimates | None) -> list[Judged]:
    """The claims that simulations can decide; not tested without simulations."""
    return judge(SIMULATION_CLAIMS, simulations) + judge(CONJECTURE_CLAIMS, estimates)


def claims_text(judged: Sequence[Judged]) -> str:
    """Claims with verdict and evidence for the terminal."""
    return "\n".join(
        f"{one.verdict.status.upper()}: {one.claim.text} ({one.source})\n"
        f"  criterion: {one.claim.criterion}\n  found: {one.verdict.evidence}"
        for one in judged
    )

"""The papers' claims that simulations and random configurations of embeddings decide."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

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
from studies.report.verdicts import Judged, Verdict, judge, read_claims

Estimates = Sequence[Estimate]
ENSURED = 0.95
"""A claim that something is ensured needs a rate whose lower bound is at least this."""
MOST = 0.9
"""A claim about most cases needs a share above this."""
MODERATE_GAP, QUICK_FALL = np.radians(45), np.radians(30)
SMALL_STEPS = tuple(size for size in about.STEP_SIZES if size <= 0.3)
LARGE_STEPS = tuple(size for size in about.STEP_SIZES if size > 0.3)
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


def _falls_to_zero(simulations: Simulations) -> Verdict:
    nearer = simulations.negative_means <= simulations.positive_means[:, None]
    parts, holds = [], True
    for loss, map_ in simulations.dissipation.items():
        open_ = float(map_[nearer].min())
        gone = fall(map_, simulations, DISSIPATED)
        holds &= open_ > MOST and bool(np.isfinite(gone).all())
        half = np.degrees(fall(map_, simulations, 0.5))
        parts.append(
            f"{NAMES[loss]}: at least {open_:.2f} before, half at a gap of {_range(half)}°, "
            f"below {DISSIPATED} from {_range(np.degrees(gone))}°"
        )
    return Verdict.of(holds, "; ".join(parts))


def _quickly_at_a_moderate_gap(simulations: Simulations) -> Verdict:
    map_ = simulations.dissipation["infonce"]
    gone = fall(map_, simulations, 0.1)
    if not np.isfinite(gone).all():
        return Verdict.of(False, "for some positives it does not fall to 0.1")
    half, width = fall(map_, simulations, 0.5), gone - fall(map_, simulations, 0.9)
    holds = bool((half < MODERATE_GAP).all() and (width < QUICK_FALL).all())
    return Verdict.of(
        holds, f"half at a gap of {_range(np.degrees(half))}°; from 0.9 to 0.1 within {_range(np.degrees(width))}°"
    )


def _lower_temperature_more_weight(simulations: Simulations) -> Verdict:
    order = np.argsort(-simulations.temperatures)
    share = float((np.diff(simulations.weights[order], axis=0) > 0).mean())
    means = ", ".join(f"{simulations.weights[k].mean():.2f} at {simulations.temperatures[k]:g}" for k in order)
    return Verdict.of(share == 1, f"rises in {share:.0%} of the comparisons; mean over μ_neg {means}")


def _simulated_weight_dominates(simulations: Simulations) -> Verdict:
    place = list(simulations.temperatures).index(TEMPERATURE)
    row, kept = simulations.weights[place], simulations.kept_weights[place]
    means = zip(simulations.temperatures, simulations.weights.mean(1), strict=True)
    enough = [f"{temperature:g}" for temperature, mean in means if mean > 0.5]
    evidence = (
        f"{row.min():.2f} to {row.max():.2f}, mean {row.mean():.2f} (up to {np.nanmax(kept):.2f} in batches that keep "
        f"a gradient); the mean is above half at temperature {', '.join(enough) or 'none of those simulated'}"
    )
    return Verdict.of(bool((row > 0.5).all()), evidence)


def _ratio_above_one(loss: str, simulations: Simulations) -> Verdict:
    rows, columns = np.meshgrid(simulations.positive_means, simulations.negative_means, indexing="ij")
    acts = (rows < columns) & ~simulations.ratio_dissipated[loss]
    ratio = simulations.ratio[loss][acts]
    share = float((ratio > 1).mean())
    evidence = f"{share:.1%} of the cells; {ratio.min():.2f} to {ratio.max():.2f}, median {np.median(ratio):.2f}"
    if share < 1:
        evidence += f"; not above 1 from μ_pos {np.degrees(rows[acts][ratio <= 1]).min():.0f}° on"
    return Verdict.of(share > MOST, evidence)


def shown_rate(rate: Estimate) -> str:
    """A rate, its bounds and the number of trials."""
    low, high = rate.interval
    return f"{rate.rate:.1%} [{low:.1%}, {high:.1%}] of {rate.trials:,}"


def _in_all(
    statement: str, names: Sequence[str], steps: Sequence[float], least: float, beside: str | None = None
) -> Callable[[Estimates], Verdict]:
    """Whether the rate's lower bound is at least `least` for each loss or ratio, by name, and step size.

    The ratio `beside` is shown for comparison only.
    """

    def decide(estimates: Estimates) -> Verdict:
        lowest = {}
        for name in [*names, *([] if beside is None else [beside])]:
            rates = [(rate_of(estimates, statement, about.case_of(name, step)), step) for step in steps]
            lowest[name] = min(rates, key=lambda rate: rate[0].interval[0])
        if not all(lowest[name][0].trials for name in names):
            return TOO_FEW
        parts = [
            f"{NAMES.get(name, f'ratio {name}')}: {shown_rate(rate)}, step {step:g}"
            for name, (rate, step) in lowest.items()
        ]
        holds = all(lowest[name][0].interval[0] >= least for name in names)
        return Verdict.of(holds, ("lowest over the steps: " if len(steps) > 1 else "") + "; ".join(parts))

    return decide


def _hardest(statement: str, estimates: Estimates) -> Verdict:
    case = f"{TEMPERATURE:g}"
    own = rate_of(estimates, statement, case)
    if not own.trials:
        return TOO_FEW
    sizes = [f"batch of {pairs}: {shown_rate(rate_of(estimates, statement, case, pairs))}" for pairs in about.PAIRS]
    others = [f"{rate_of(estimates, statement, f'{t:g}').rate:.1%} at {t:g}" for t in about.TEMPERATURES]
    evidence = f"{shown_rate(own)}; {'; '.join(sizes)}; by temperature {', '.join(others)}"
    return Verdict.of(own.interval[0] >= ENSURED, evidence)


def _bounded(statement: str, estimates: Estimates) -> Verdict:
    """Whether the rate's lower bound is high enough for each loss with a margin."""
    rates = {label: rate_of(estimates, statement, name) for name, label in about.TRIPLETS.items()}
    if not all(rate.trials for rate in rates.values()):
        return TOO_FEW
    holds = all(rate.interval[0] >= ENSURED for rate in rates.values())
    return Verdict.of(holds, "; ".join(f"{label}: {shown_rate(rate)}" for label, rate in rates.items()))


SIMULATION_DECISIONS: dict[str, Callable[[Simulations], Verdict]] = {
    "falls-to-zero": _falls_to_zero,
    "quickly": _quickly_at_a_moderate_gap,
    "lower-temperature": _lower_temperature_more_weight,
    "dominates": _simulated_weight_dominates,
    **{f"ratio-{loss}": partial(_ratio_above_one, loss) for loss in about.RATIO_MAPS},
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
    "ALMOST_ALWAYS": f"in at least {ENSURED:.0%} of the random configurations, by the lower bound of the rate",
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

"""What the papers claim, and what results say of it: each verdict is computed from results, none is written down.

A claim is decided by a function of one kind of results. A new claim is one entry in a tuple of claims over its kind;
results of a new kind (trained models, say) need a tuple of their own and a call of `judge`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from studies.gradient_paradigm import simulation_outcomes as about
from studies.gradient_paradigm.simulation_outcomes import (
    DISSIPATED,
    NAMES,
    RATIO_MAPS,
    TEMPERATURE,
    Array,
    Estimate,
    Simulations,
    rate_of,
)

Status = Literal["reproduced", "not reproduced", "not tested here"]
Results = TypeVar("Results")

ENSURED = 0.95
"""What "ensures" means of a rate: its lower bound is at least this."""
MOST = 0.9
"""What "mostly" means of a share."""
MODERATE_GAP, QUICK_FALL = np.radians(45), np.radians(30)
SMALL_STEPS = tuple(size for size in about.STEP_SIZES if size <= 0.3)
LARGE_STEPS = tuple(size for size in about.STEP_SIZES if size > 0.3)


@dataclass(frozen=True)
class Verdict:
    """What results say of a claim."""

    status: Status
    evidence: str

    @classmethod
    def of(cls, holds: bool, evidence: str) -> "Verdict":
        """Reproduced or not."""
        return cls("reproduced" if holds else "not reproduced", evidence)


@dataclass(frozen=True)
class Claim(Generic[Results]):
    """A statement of a paper that results can decide.

    Args:
        text: what is claimed.
        source: paper and section.
        reading: what the results must show for the claim to be reproduced.
        decide: from results to the verdict.
    """

    text: str
    source: str
    reading: str
    decide: Callable[[Results], Verdict]


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict, as a study shows it."""

    text: str
    source: str
    reading: str
    status: Status
    evidence: str


def judge(claims: Sequence[Claim[Results]], results: Results | None) -> list[Judged]:
    """Every claim with its verdict; without results none was tested."""
    untested = Verdict("not tested here", "")
    verdicts = [untested if results is None else claim.decide(results) for claim in claims]
    return [
        Judged(claim.text, claim.source, claim.reading, verdict.status, verdict.evidence)
        for claim, verdict in zip(claims, verdicts, strict=True)
    ]


def fall(dissipation: Array, simulations: Simulations, level: float) -> Array:
    """By how much μ_neg exceeds μ_pos where the dissipation term falls to a level, in each row  # [rows] radians.

    Interpolated between columns; infinite in rows that never fall so low.
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
        return Verdict.of(False, "there are positives with which it does not fall to 0.1")
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
    enough = [
        f"{t:g}" for t, mean in zip(simulations.temperatures, simulations.weights.mean(1), strict=True) if mean > 0.5
    ]
    evidence = (
        f"{row.min():.2f} to {row.max():.2f}, mean {row.mean():.2f} (up to {np.nanmax(kept):.2f} in batches that keep "
        f"a gradient); the mean is above half at temperature {', '.join(enough) or 'none of those simulated'}"
    )
    return Verdict.of(bool((row > 0.5).all()), evidence)


def _ratio_above_one(loss: str) -> Callable[[Simulations], Verdict]:
    def decide(simulations: Simulations) -> Verdict:
        rows, columns = np.meshgrid(simulations.positive_means, simulations.negative_means, indexing="ij")
        acts = (rows < columns) & ~simulations.ratio_dissipated[loss]
        ratio = simulations.ratio[loss][acts]
        share = float((ratio > 1).mean())
        evidence = f"{share:.1%} of the cells; {ratio.min():.2f} to {ratio.max():.2f}, median {np.median(ratio):.2f}"
        if share < 1:
            evidence += f"; not above 1 from μ_pos {np.degrees(rows[acts][ratio <= 1]).min():.0f}° on"
        return Verdict.of(share > MOST, evidence)

    return decide


UP, GD = "arXiv 2402.18281, section 3.1", "Gradient dissipation paper (ICLR 2023)"
SIMULATION_CLAIMS: tuple[Claim[Simulations], ...] = (
    Claim(
        "The dissipation terms of InfoNCE, ArcCon, MPT and MET fall to 0 once the negatives are far enough beyond the "
        "positive.",
        UP,
        f"For each loss and mean angle of the positive, above {MOST} while μ_neg <= μ_pos and below {DISSIPATED} from "
        "some μ_neg < π on.",
        _falls_to_zero,
    ),
    Claim(
        "The gradient signal of the contrastive loss quickly drops and vanishes as soon as the negative is adequately "
        "further away than the positive, by a rather moderate threshold.",
        f"{GD}, section 1",
        "InfoNCE's dissipation passes half at a gap of means below 45°, and falls from 0.9 to 0.1 within 30°.",
        _quickly_at_a_moderate_gap,
    ),
    Claim(
        "The lower the temperature, the more weight the hardest negative has.",
        UP,
        "The mean weight rises with every lower temperature, for every mean angle of the negatives.",
        _lower_temperature_more_weight,
    ),
    Claim(
        "The weight term puts the hardest negative in a dominant position (simulated angles).",
        UP,
        "At temperature 0.05 its mean weight is more than half, for every mean angle of the negatives.",
        _simulated_weight_dominates,
    ),
    *(
        Claim(
            f"The ratio of {NAMES[loss]} is above 1, which is that of InfoNCE and MPT, where a gradient remains.",
            f"{UP}, figure of the ratio",
            f"In more than {MOST:.0%} of the cells where the positive is nearer than the negatives and the gradient is "
            "not dissipated.",
            _ratio_above_one(loss),
        )
        for loss in RATIO_MAPS
    ),
)  # fmt: skip


TOO_FEW = Verdict("not tested here", "too few configurations were drawn")


def shown_rate(rate: Estimate) -> str:
    """A rate with its bounds and of how many."""
    low, high = rate.interval
    return f"{rate.rate:.1%} [{low:.1%}, {high:.1%}] of {rate.trials:,}"


def _in_all(
    statement: str, names: Sequence[str], steps: Sequence[float], least: float, beside: str | None = None
) -> Callable[[Sequence[Estimate]], Verdict]:
    """The lower bound is at least so high for each loss or ratio and step size; `beside` for comparison alone."""

    def decide(estimates: Sequence[Estimate]) -> Verdict:
        lowest = {}
        for name in [*names, *([] if beside is None else [beside])]:
            rates = [(rate_of(estimates, statement, about.case_of(name, step)), step) for step in steps]
            lowest[name] = min(rates, key=lambda rate: rate[0].interval[0])
        parts = [
            f"{NAMES.get(name, f'ratio {name}')}: {shown_rate(rate)}, step {step:g}"
            for name, (rate, step) in lowest.items()
        ]
        if not all(lowest[name][0].trials for name in names):
            return TOO_FEW
        holds = all(lowest[name][0].interval[0] >= least for name in names)
        return Verdict.of(holds, ("lowest over the steps: " if len(steps) > 1 else "") + "; ".join(parts))

    return decide


def _hardest(statement: str) -> Callable[[Sequence[Estimate]], Verdict]:
    def decide(estimates: Sequence[Estimate]) -> Verdict:
        case = f"{TEMPERATURE:g}"
        sizes = [f"batch of {pairs}: {shown_rate(rate_of(estimates, statement, case, pairs))}" for pairs in about.PAIRS]
        others = [f"{rate_of(estimates, statement, f'{t:g}').rate:.1%} at {t:g}" for t in about.TEMPERATURES]
        own = rate_of(estimates, statement, case)
        if not own.trials:
            return TOO_FEW
        evidence = f"{shown_rate(own)}; {'; '.join(sizes)}; by temperature {', '.join(others)}"
        return Verdict.of(own.interval[0] >= ENSURED, evidence)

    return decide


def _bounded(statement: str) -> Callable[[Sequence[Estimate]], Verdict]:
    """The lower bound of the rate is high enough for each loss with a margin."""

    def decide(estimates: Sequence[Estimate]) -> Verdict:
        rates = {label: rate_of(estimates, statement, name) for name, label in about.TRIPLETS.items()}
        if not all(rate.trials for rate in rates.values()):
            return TOO_FEW
        holds = all(rate.interval[0] >= ENSURED for rate in rates.values())
        return Verdict.of(holds, "; ".join(f"{label}: {shown_rate(rate)}" for label, rate in rates.items()))

    return decide


CONJECTURE_1 = (
    "Conjecture 1: the effective gradient dissipation term ensures that the distance gap between μ_neg and μ_pos "
    "remains smaller than the situation trained without gradient dissipation."
)
CONJECTURE_2 = (
    "Conjecture 2: the effective weight term ensures that the hardest negative sample occupies a dominant position in "
    "the gradient compared to other negative samples."
)
CONJECTURE_3 = (
    "Conjecture 3: the effective ratio term can meet the condition in Lemma 1 more frequently, and ensure that the "
    "distance from the anchor to the positive sample is closer after optimization than that before optimization."
)
UPPER_BOUNDS = (
    "The losses that imitate dissipation by a margin (MPT, MET, MAT) are upper bounds of the standard contrastive loss."
)
_UP_TO, _FROM = f"steps up to {max(SMALL_STEPS):g}", f"steps from {min(LARGE_STEPS):g} on (embeddings have length 1)"
_ENSURED = f"in at least {ENSURED:.0%} of the random configurations by the lower bound of the rate"
_LOSSES = tuple(NAMES)

CONJECTURE_CLAIMS: tuple[Claim[Sequence[Estimate]], ...] = (
    *(
        Claim(
            CONJECTURE_1,
            UP,
            f"With {label} the gap is smaller after training with each loss's dissipation, {_ENSURED}.",
            _in_all(about.GAP_AT_END, _LOSSES, steps, ENSURED),
        )
        for label, steps in ((_UP_TO, SMALL_STEPS), (_FROM, LARGE_STEPS))
    ),
    Claim(
        CONJECTURE_2,
        UP,
        f"At temperature {TEMPERATURE:g} it makes up more than half of the negatives' gradient, {_ENSURED}.",
        _hardest(about.MAJORITY),
    ),
    Claim(
        CONJECTURE_2,
        UP,
        f"At temperature {TEMPERATURE:g} it makes up more than any other negative, {_ENSURED}.",
        _hardest(about.LARGEST),
    ),
    *(
        Claim(
            CONJECTURE_3,
            UP,
            f"More frequently: with {label}, of the anchors where the condition holds with just one of this ratio and "
            "ratio 1, it holds with this ratio in more than half by the lower bound of the rate.",
            _in_all(about.MORE_OFTEN, about.DYNAMIC_RATIOS, steps, 0.5),
        )
        for label, steps in ((_UP_TO, SMALL_STEPS), (_FROM, LARGE_STEPS))
    ),
    *(
        Claim(
            CONJECTURE_3,
            UP,
            f"Closer: with {label} the anchor is closer to its positive after the step, {_ENSURED}.",
            _in_all(about.CLOSER, about.DYNAMIC_RATIOS, steps, ENSURED, beside="1"),
        )
        for label, steps in ((_UP_TO, SMALL_STEPS), (_FROM, LARGE_STEPS))
    ),
    Claim(
        "Lemma 1: a ratio within the bounds brings the anchor closer to its positive.",
        UP,
        f"On the sphere too, whose curvature the bounds leave out, with the hardest negative alone, {_ENSURED}.",
        _in_all(about.SUFFICIENT, ("1", *about.DYNAMIC_RATIOS), about.STEP_SIZES, ENSURED),
    ),
    *(
        Claim(UPPER_BOUNDS, f"{GD}, section 1", f"{reading}, {_ENSURED}.", _bounded(statement))
        for statement, reading in (
            (about.BOUND, "As they are: with the papers' margins the loss is at least τ times InfoNCE"),
            (
                about.BOUND_WITH_CONSTANTS,
                "Up to constants: InfoNCE is at most c / τ times the loss, plus log(1 + (N − 1) exp(−k / τ)), with N "
                "pairs, c 1 (MPT, MAT) or 2 (MET), and k the gap of cosines that the margin ensures",
            ),
        )
    ),
)


def _range(values: Array) -> str:
    return f"{values.min():.0f} to {values.max():.0f}"

"""The gradient study for readers: its figures with captions, and its claims with their verdicts, as text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from minbert.files import read_json, write_text
from studies.gradient_paradigm import figures
from studies.gradient_paradigm import simulation_outcomes as about
from studies.gradient_paradigm.simulation_claims import (
    CONJECTURE_CLAIMS,
    ENSURED,
    SIMULATION_CLAIMS,
    Judged,
    fall,
    judge,
    shown_rate,
)
from studies.gradient_paradigm.simulation_outcomes import NAMES, RATIO_MAPS, Estimate, Simulations, rate_of
from studies.report.illustrations import Illustration


def read_simulations(folder: Path) -> tuple[Simulations, list[Estimate]]:
    """What the artefact of `simulate` holds."""
    return Simulations.load(folder / "simulations.npz"), about.from_json(read_json(folder / "conjectures.json"))


def judged_simulations(simulations: Simulations | None, estimates: Sequence[Estimate] | None) -> list[Judged]:
    """The claims that simulations can decide; not tested where there are none."""
    return judge(SIMULATION_CLAIMS, simulations) + judge(CONJECTURE_CLAIMS, estimates)


def simulation_figures(simulations: Simulations, estimates: Sequence[Estimate]) -> dict[str, Illustration]:
    """Every figure of the simulations by its file's name."""
    means = (simulations.positive_means, simulations.negative_means)
    middle = len(simulations.positive_means) // 2
    positive = np.degrees(simulations.positive_means[middle])
    halves = {
        loss: positive + np.degrees(fall(values, simulations, 0.5)[middle])
        for loss, values in simulations.dissipation.items()
    }
    described = ", ".join(f"{NAMES[loss]} {angle:.0f}" for loss, angle in halves.items())
    drawn = {
        "dissipation": (
            figures.dissipation_maps(
                simulations.dissipation,
                *means,
                "Four maps of gradient dissipation over the mean angles of negatives and positives. It is 1 while the "
                "negatives are near and falls to 0 along a curve beyond the diagonal; with positives at "
                f"{positive:.0f} degrees it passes one half with negatives at, in degrees, {described}.",
            ),
            "Gradient dissipation, the mean over simulated batches. White: one half. Dashed: both means are equal.",
        ),
        "weight": (
            figures.weight_curves(
                simulations.weights,
                simulations.kept,
                simulations.temperatures.tolist(),
                simulations.negative_means,
                "The hardest negative's weight over the mean angle of negatives. Largest weights: "
                + ", ".join(
                    f"{weights.max():.2f} at temperature {temperature:g}"
                    for temperature, weights in zip(simulations.temperatures, simulations.weights, strict=True)
                )
                + ".",
            ),
            "Weight of the hardest negative. Dotted: most batches with positives around 0.5 rad have no gradient left.",
        ),
        "ratio": (
            figures.ratio_maps(
                simulations.ratio,
                simulations.ratio_dissipated,
                *means,
                "Two maps of the ratio over the angles of negatives and positives, shown where a gradient remains. It "
                "is largest for near positives and close to 1 for far ones. Medians: "
                + ", ".join(f"{NAMES[loss]} {_acting_ratio(simulations, loss):.2f}" for loss in RATIO_MAPS)
                + ".",
            ),
            "Ratio of the pull on the positive to the push from the negatives, where it acts. InfoNCE and MPT: 1.",
        ),
        **_conjecture_figures(estimates),
    }
    return {name: Illustration(Markup(svg), caption) for name, (svg, caption) in drawn.items()}


def _acting_ratio(simulations: Simulations, loss: str) -> float:
    nearer = simulations.positive_means[:, None] < simulations.negative_means
    return float(np.median(simulations.ratio[loss][nearer & ~simulations.ratio_dissipated[loss]]))


def _conjecture_figures(estimates: Sequence[Estimate]) -> dict[str, tuple[str, str]]:
    steps, pooled = about.STEP_SIZES, "Bars: exact 95% bounds. Random configurations of all sizes together."
    ratios = ("1", "1.5", "2", *about.DYNAMIC_RATIOS)
    gaps = {
        statement: {NAMES[loss]: _over_steps(estimates, statement, loss) for loss in NAMES}
        for statement in (about.GAP_AT_END, about.GAP_THROUGHOUT)
    }
    parts = {
        statement: {
            f"batch of {pairs}": _bounds(
                [rate_of(estimates, statement, f"{temperature:g}", pairs) for temperature in about.TEMPERATURES]
            )
            for pairs in about.PAIRS
        }
        for statement in (about.MAJORITY, about.LARGEST)
    }
    closer = {
        statement: {f"r {NAMES.get(name, name)}": _over_steps(estimates, statement, name) for name in ratios}
        for statement in (about.CONDITION, about.CLOSER)
    }
    return {
        "conjecture-1": (
            figures.rate_curves(gaps, steps, "step size", _rates_described("Conjecture 1", gaps, steps), ENSURED),
            f"Conjecture 1: the gap with dissipation is smaller than without. {pooled}",
        ),
        "conjecture-2": (
            figures.rate_curves(
                parts,
                about.TEMPERATURES,
                "temperature",
                _rates_described("Conjecture 2", parts, about.TEMPERATURES),
                ENSURED,
            ),
            "Conjecture 2: the hardest negative dominates the gradient, read in two ways. Bars: exact 95% bounds.",
        ),
        "conjecture-3": (
            figures.rate_curves(closer, steps, "step size", _rates_described("Conjecture 3", closer, steps), ENSURED),
            f"Conjecture 3: Lemma 1's condition, and whether the anchor comes closer to its positive. {pooled}",
        ),
    }


def counter_examples(estimates: Sequence[Estimate]) -> tuple[tuple[str, ...], ...]:
    """Of each statement that did not always hold, the case with the lowest rate and a configuration; with a header."""
    rows = [("Statement", "Case", "Pairs", "Dimension", "Holds", "A configuration in which it does not")]
    for statement in dict.fromkeys(estimate.statement for estimate in estimates):
        failing = [e for e in estimates if e.statement == statement and e.counter_examples]
        if failing:
            worst = min(failing, key=lambda estimate: estimate.rate)
            number, *values = worst.counter_examples[0].items()
            found = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values)
            sizes = (str(worst.pairs), str(worst.dim))
            rows.append((statement, worst.case, *sizes, shown_rate(worst), f"number {number[1]:.0f}: {found}"))
    return tuple(rows)


def _over_steps(
    estimates: Sequence[Estimate], statement: str, name: str
) -> tuple[figures.Array, figures.Array, figures.Array]:
    return _bounds([rate_of(estimates, statement, about.case_of(name, step)) for step in about.STEP_SIZES])


def _bounds(rates: Sequence[Estimate]) -> tuple[figures.Array, figures.Array, figures.Array]:
    """Rate, lower and upper bound  # [rates] each."""
    low, high = np.array([rate.interval for rate in rates]).T
    return np.array([rate.rate for rate in rates]), low, high


def _rates_described(title: str, panels: figures.Panels, places: Sequence[float]) -> str:
    parts = [
        f"{statement}: " + "; ".join(f"{name} {rate[0]:.0%} to {rate[-1]:.0%}" for name, (rate, _, _) in lines.items())
        for statement, lines in panels.items()
    ]
    return f"{title}, rates from {places[0]:g} to {places[-1]:g}. " + ". ".join(parts) + "."


def write_figures(folder: Path) -> list[Path]:
    """Draw the figures of an artefact of `simulate` into its folder; returns their paths."""
    paths = []
    for name, illustration in simulation_figures(*read_simulations(folder)).items():
        paths.append(folder / f"{name}.svg")
        write_text(paths[-1], figures.standalone(str(illustration.svg)))
    return paths


def claims_text(judged: Sequence[Judged]) -> str:
    """Claims with verdict and evidence for the terminal."""
    return "\n".join(
        f"{claim.status.upper()}: {claim.text} ({claim.source})\n  read as: {claim.reading}\n  found: {claim.evidence}"
        for claim in judged
    )

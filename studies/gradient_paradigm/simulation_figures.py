"""Figures of the simulations and of the conjectures' rates, with captions, and their section of the study's page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from minbert.files import read_json, write_text
from studies.engine.record import duration
from studies.gradient_paradigm import simulation_outcomes as about
from studies.gradient_paradigm.simulation_claims import ENSURED, fall, shown_rate
from studies.gradient_paradigm.simulation_outcomes import (
    NAMES,
    RATIO_MAPS,
    Estimate,
    Simulations,
    rate_of,
    read_simulations,
)
from studies.report.figures import COLOURS, INK, MARKERS, render, standalone
from studies.report.preset_results import PresetResults
from studies.report.sections import Illustration, Section

Array = NDArray[np.floating]
Rates = tuple[Array, Array, Array]
"""Rate, lower and upper bound at each place."""
Panels = Mapping[str, Mapping[str, Rates]]
"""A panel's title -> a line's name -> its rates."""

TICKS = {np.pi * share: text for share, text in ((0.25, "π/4"), (0.5, "π/2"), (0.75, "3π/4"), (1, "π"))}
VIRIDIS = mpl.colormaps["viridis"]
BRIGHT = ListedColormap(VIRIDIS(np.linspace(0.3, 1, 256)), "bright")  # for maps with holes, on dark pages too
LARGEST_RATIO = 3.0
"""Where the ratio's colours end; MET's exceeds it where the positive is near the anchor."""


def simulation_section(results: PresetResults) -> Section | None:
    """All figures of the simulations, and counter-examples to the conjectures; None where nothing was simulated."""
    stage = results.last_stage("simulations")
    if stage is None:
        return None
    folder = results.folder / stage.artefact
    simulations, estimates = read_simulations(folder)
    seed = read_json(folder / "config.json")["seed"]
    return Section(
        "simulations",
        "Simulated embeddings",
        "No model is trained here: angles are drawn at random, and the components of the papers' losses follow from "
        "them (arXiv 2402.18281, section 3.1); its conjectures are checked on random configurations of embeddings. "
        "The table has of each statement the case in which it held least often; angles are in radians. A configuration "
        f"is drawn again by `studies.gradient_paradigm.random_configurations.configuration`, with seed {seed}. "
        f"Took {duration(stage.seconds)}.",
        tuple(simulation_figures(simulations, estimates).values()),
        wide=True,
        table=counter_examples(estimates),
    )


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
            dissipation_maps(
                simulations.dissipation,
                *means,
                "Four maps of gradient dissipation over the mean angles of negatives and positives. It is 1 while the "
                "negatives are near and falls to 0 along a curve beyond the diagonal; with positives at "
                f"{positive:.0f} degrees it passes one half with negatives at, in degrees, {described}.",
            ),
            "Gradient dissipation, the mean over simulated batches. White: one half. Dashed: both means are equal.",
        ),
        "weight": (
            weight_curves(
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
            ratio_maps(
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
            rate_curves(gaps, steps, "step size", _rates_described("Conjecture 1", gaps, steps), ENSURED),
            f"Conjecture 1: the gap with dissipation is smaller than without. {pooled}",
        ),
        "conjecture-2": (
            rate_curves(
                parts,
                about.TEMPERATURES,
                "temperature",
                _rates_described("Conjecture 2", parts, about.TEMPERATURES),
                ENSURED,
            ),
            "Conjecture 2: the hardest negative dominates the gradient, read in two ways. Bars: exact 95% bounds.",
        ),
        "conjecture-3": (
            rate_curves(closer, steps, "step size", _rates_described("Conjecture 3", closer, steps), ENSURED),
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


def _over_steps(estimates: Sequence[Estimate], statement: str, name: str) -> Rates:
    return _bounds([rate_of(estimates, statement, about.case_of(name, step)) for step in about.STEP_SIZES])


def _bounds(rates: Sequence[Estimate]) -> Rates:
    """Rate, lower and upper bound  # [rates] each."""
    low, high = np.array([rate.interval for rate in rates]).T
    return np.array([rate.rate for rate in rates]), low, high


def _percent(rate: float) -> str:
    return "unknown" if np.isnan(rate) else f"{rate:.0%}"


def _rates_described(title: str, panels: Panels, places: Sequence[float]) -> str:
    parts = [
        f"{statement}: "
        + "; ".join(f"{name} {_percent(rate[0])} to {_percent(rate[-1])}" for name, (rate, _, _) in lines.items())
        for statement, lines in panels.items()
    ]
    return f"{title}, rates from {places[0]:g} to {places[-1]:g}. " + ". ".join(parts) + "."


def write_figures(folder: Path) -> list[Path]:
    """Draw the figures of an artefact of `simulate` into its folder; returns their paths."""
    paths = []
    for name, illustration in simulation_figures(*read_simulations(folder)).items():
        paths.append(folder / f"{name}.svg")
        write_text(paths[-1], standalone(str(illustration.svg)))
    return paths


def dissipation_maps(maps: Mapping[str, Array], positive_means: Array, negative_means: Array, description: str) -> str:
    """A panel for each loss: dissipation from 0 to 1 over the mean angles, and the line where it is one half.

    Args:
        maps: [positive_means, negative_means] each.
        positive_means: radians.
        negative_means: radians.
        description: alternative text.
    """

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (loss, values) in zip(panels.flat, maps.items(), strict=True):
            _map(axes, values, positive_means, negative_means, Normalize(0, 1), VIRIDIS)
            axes.plot(positive_means, positive_means, color="black", linewidth=1, linestyle="--")
            axes.contour(negative_means, positive_means, values, [0.5], colors="white", linewidths=1.2)
            axes.set_title(NAMES[loss], fontsize=11)
        _label(panels)
        _colour_bar(figure, panels, Normalize(0, 1), VIRIDIS, "gradient dissipation")

    return render(draw, (7.2, 5.2), description)


def ratio_maps(
    maps: Mapping[str, Array],
    dissipated: Mapping[str, NDArray[np.bool_]],
    positive_means: Array,
    negative_means: Array,
    description: str,
) -> str:
    """A panel for each loss: the ratio over the angles; empty where no gradient is left or the positive is farther.

    Args:
        maps: [positive_means, negative_means] each.
        dissipated: of the same shape.
        positive_means: radians.
        negative_means: radians.
        description: alternative text.
    """
    scale = Normalize(1, LARGEST_RATIO)
    farther = positive_means[:, None] > negative_means

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True, squeeze=False)
        for axes, (loss, values) in zip(panels.flat, maps.items(), strict=True):
            acting = np.ma.masked_array(values, dissipated[loss] | farther)
            _map(axes, acting, positive_means, negative_means, scale, BRIGHT)
            axes.set_title(NAMES[loss], fontsize=11)
            axes.text(0.97, 0.12, "dissipated", transform=axes.transAxes, ha="right", fontsize=9)
            axes.text(0.03, 0.84, "positive\nfarther", transform=axes.transAxes, fontsize=9)
        _label(panels)
        _colour_bar(figure, panels, scale, BRIGHT, "ratio", extend="both")

    return render(draw, (7.2, 3.0), description)


def weight_curves(
    weights: Array, kept: Array, temperatures: Sequence[float], negative_means: Array, description: str
) -> str:
    """The hardest negative's mean weight over the mean angle of negatives, a line for each temperature.

    Solid where at least half of the batches keep a gradient, dotted where it is dissipated in most.

    Args:
        weights: [temperatures, negative_means].
        kept: share of the batches that keep a gradient, of the same shape.
        temperatures: of the softmax.
        negative_means: radians.
        description: alternative text.
    """

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, temperature in enumerate(temperatures):
            style: dict[str, Any] = {"color": COLOURS[place], "markersize": 4}
            axes.plot(negative_means, weights[place], **style, linestyle=":", linewidth=1.5)
            acting = np.where(kept[place] >= 0.5, weights[place], np.nan)
            every = max(1, len(negative_means) // 12)
            axes.plot(
                negative_means, acting, **style, marker=MARKERS[place], markevery=every, label=f"τ = {temperature:g}"
            )
        axes.axhline(0.5, color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.set(xlabel="mean angle of negatives", ylabel="weight of the hardest negative", ylim=(0, 1))
        axes.set_xticks(list(TICKS), TICKS.values())
        axes.grid(axis="y", alpha=0.15, color=INK)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    return render(draw, (6.4, 3.4), description)


def rate_curves(
    panels: Panels, places: Sequence[float], xlabel: str, description: str, least: float | None = None
) -> str:
    """Rates with their confidence bounds over a parameter on a logarithmic axis, a panel for each statement.

    Args:
        panels: a statement -> its lines; all panels have the same lines.
        places: values of the parameter.
        xlabel: its name.
        description: alternative text.
        least: a rate to draw a dashed line at.
    """

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, lines) in zip(drawn, panels.items(), strict=True):
            for number, (name, (rate, low, high)) in enumerate(lines.items()):
                nudged = np.asarray(places) * 1.04 ** (number - (len(lines) - 1) / 2)  # so that bounds stay apart
                axes.errorbar(
                    nudged, rate, yerr=[rate - low, high - rate], label=name, color=COLOURS[number],
                    marker=MARKERS[number], markersize=4, linewidth=1.2, capsize=2,
                )  # fmt: skip
            if least is not None:
                axes.axhline(least, color=INK, alpha=0.4, linewidth=1, linestyle="--")
            axes.set_title(title, fontsize=10)
            axes.set(xscale="log", xlabel=xlabel, ylim=(-0.02, 1.02))
            axes.set_xticks(places, [f"{place:g}" for place in places], fontsize=8)
            axes.minorticks_off()
            axes.grid(axis="y", alpha=0.15, color=INK)
        drawn[0].set_ylabel("share of configurations")
        drawn[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    return render(draw, (3.4 * len(panels) + 1.2, 3.0), description)


def _map(
    axes: Axes, values: Array, positive_means: Array, negative_means: Array, scale: Normalize, colours: Colormap
) -> None:
    # An image, since a hundred by a hundred vector rectangles would be megabytes; means are the pixels' centres.
    half_row, half_column = np.diff(positive_means)[0] / 2, np.diff(negative_means)[0] / 2
    extent = (
        negative_means[0] - half_column,
        negative_means[-1] + half_column,
        positive_means[0] - half_row,
        positive_means[-1] + half_row,
    )
    axes.imshow(values, cmap=colours, norm=scale, origin="lower", extent=extent, aspect="auto", interpolation="nearest")


def _label(panels: NDArray[np.object_]) -> None:
    for axes in panels[-1]:
        axes.set_xlabel("mean angle of negatives")
        axes.set_xticks(list(TICKS), TICKS.values())
    for axes in panels[:, 0]:
        axes.set_ylabel("of positives")
        axes.set_yticks(list(TICKS)[:2], list(TICKS.values())[:2])


def _colour_bar(
    figure: Figure,
    panels: NDArray[np.object_],
    scale: Normalize,
    colours: Colormap,
    label: str,
    extend: str = "neither",
) -> None:
    bar = figure.colorbar(ScalarMappable(scale, colours), ax=panels, label=label, extend=extend, aspect=30)
    bar.outline.set_visible(False)

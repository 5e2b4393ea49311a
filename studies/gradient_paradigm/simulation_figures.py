"""Figures of the simulations and of the conjectures' rates, with captions, and their section of the study's page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

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
from studies.gradient_paradigm.simulation_claims import ENSURED, Estimates, fall, shown_rate
from studies.gradient_paradigm.simulation_outcomes import NAMES, Estimate, Simulations, rate_of, read_simulations
from studies.report.cost import machines_of
from studies.report.figures import INK, line_style, render, render_panels, standalone
from studies.report.preset_results import PresetResults
from studies.report.sections import Illustration, Section

Array = NDArray[np.floating]
Rates = tuple[Array, Array, Array]
"""Rate, lower and upper bound at each place."""
Panels = Mapping[str, Mapping[str, Rates]]
"""A panel's title -> a line's name -> its rates."""

TICKS = {np.pi * share: text for share, text in ((0.25, "π/4"), (0.5, "π/2"), (0.75, "3π/4"), (1, "π"))}
VIRIDIS = mpl.colormaps["viridis"]
BRIGHT = ListedColormap(VIRIDIS(np.linspace(0.3, 1, 256)), "bright")  # maps with holes stay visible on dark pages
LARGEST_RATIO = 3.0
"""The end of the ratio's colours. MET's ratio exceeds it where the positive is near the anchor."""


def simulation_section(results: PresetResults) -> Section | None:
    """All figures of the simulations, and counter-examples to the conjectures. None if nothing was simulated."""
    stage = results.last_stage("simulations")
    if stage is None:
        return None
    folder = results.folder / stage.artefact
    simulations, estimates = read_simulations(folder)
    seed = read_json(folder / "config.json")["seed"]
    machine = "".join(f" on {name}" for name in machines_of([stage.artefact], results.folder))
    return Section(
        "simulations",
        "Simulated embeddings",
        "No model is trained here. Angles are drawn at random, and the components of the papers' losses are computed "
        "from them (arXiv 2402.18281, section 3.1). The conjectures of that paper are checked on random configurations "
        "of embeddings. For each statement, the table shows the case in which it held least often; angles are in "
        "radians. `studies.gradient_paradigm.random_configurations.configuration` draws a configuration again, with "
        f"seed {seed}. The simulations took {duration(stage.seconds)}{machine}.",
        tuple(simulation_figures(simulations, estimates).values()),
        wide=True,
        table=counter_examples(estimates),
    )


def write_figures(folder: Path) -> list[Path]:
    """Draw the figures of an artefact of `simulate` into its folder. Returns their paths."""
    paths = []
    for name, illustration in simulation_figures(*read_simulations(folder)).items():
        paths.append(folder / f"{name}.svg")
        write_text(paths[-1], standalone(illustration.svg, illustration.caption))
    return paths


def simulation_figures(simulations: Simulations, estimates: Estimates) -> dict[str, Illustration]:
    """Every figure of the simulations by its file's name."""
    return {
        "dissipation": Illustration(
            _dissipation_maps(simulations),
            "Gradient dissipation, the mean over simulated batches. White: one half. Dashed: both means are equal.",
        ),
        "weight": Illustration(
            _weight_curves(simulations),
            "Weight of the hardest negative. Dotted: most batches with positives around 0.5 rad have no gradient left.",
        ),
        "ratio": Illustration(
            _ratio_maps(simulations),
            "Ratio of the pull on the positive to the push from the negatives, where a gradient remains. InfoNCE and "
            "MPT: 1.",
        ),
        **_conjecture_figures(estimates),
    }


def _conjecture_figures(estimates: Estimates) -> dict[str, Illustration]:
    def over_steps(statement: str, name: str) -> Rates:
        return _bounds([rate_of(estimates, statement, about.case_of(name, step)) for step in about.STEP_SIZES])

    def over_temperatures(statement: str, pairs: int) -> Rates:
        return _bounds([rate_of(estimates, statement, f"{value:g}", pairs) for value in about.TEMPERATURES])

    pooled = "Bars: exact 95% bounds. Random configurations of all sizes together."
    gaps = {
        statement: {label: over_steps(statement, loss) for loss, label in NAMES.items()}
        for statement in (about.GAP_AT_END, about.GAP_THROUGHOUT)
    }
    parts = {
        statement: {f"batch of {pairs}": over_temperatures(statement, pairs) for pairs in about.PAIRS}
        for statement in (about.MAJORITY, about.LARGEST)
    }
    closer = {
        statement: {
            f"r {NAMES.get(name, name)}": over_steps(statement, name)
            for name in ("1", "1.5", "2", *about.DYNAMIC_RATIOS)
        }
        for statement in (about.CONDITION, about.CLOSER)
    }
    return {
        "conjecture-1": Illustration(
            _rate_curves("Conjecture 1", gaps, about.STEP_SIZES, "step size"),
            f"Conjecture 1: the gap with dissipation is smaller than without. {pooled}",
        ),
        "conjecture-2": Illustration(
            _rate_curves("Conjecture 2", parts, about.TEMPERATURES, "temperature"),
            "Conjecture 2: the hardest negative dominates the gradient, in two readings. Bars: exact 95% bounds.",
        ),
        "conjecture-3": Illustration(
            _rate_curves("Conjecture 3", closer, about.STEP_SIZES, "step size"),
            f"Conjecture 3: Lemma 1's condition, and whether the anchor comes closer to its positive. {pooled}",
        ),
    }


def _bounds(rates: Sequence[Estimate]) -> Rates:
    low, high = np.array([rate.interval() for rate in rates]).T
    return np.array([rate.rate for rate in rates]), low, high


def counter_examples(estimates: Estimates) -> tuple[tuple[str, ...], ...]:
    """For each statement with counter-examples, the case with the lowest rate and one configuration; with a header."""
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


def _dissipation_maps(simulations: Simulations) -> Markup:
    """A panel for each loss: dissipation from 0 to 1 over the mean angles, and the line where it is one half."""
    positives, maps = simulations.positive_means, simulations.dissipation
    middle = len(positives) // 2
    at = np.degrees(positives[middle])
    halves = {loss: at + np.degrees(fall(values, simulations, 0.5)[middle]) for loss, values in maps.items()}
    description = (
        "Four maps of gradient dissipation over the mean angles of negatives and positives. It is 1 while the "
        "negatives are near and falls to 0 along a curve beyond the diagonal; with positives at "
        f"{at:.0f} degrees it passes one half with negatives at, in degrees, "
        + ", ".join(f"{NAMES[loss]} {angle:.0f}" for loss, angle in halves.items())
        + "."
    )

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (loss, values) in zip(panels.flat, maps.items(), strict=True):
            _map(axes, loss, values, simulations, Normalize(0, 1), VIRIDIS)
            axes.plot(positives, positives, color="black", linewidth=1, linestyle="--")
            axes.contour(simulations.negative_means, positives, values, [0.5], colors="white", linewidths=1.2)
        _label(figure, panels, Normalize(0, 1), VIRIDIS, "gradient dissipation")

    return render_panels(draw, (7.2, 5.2), description)


def _ratio_maps(simulations: Simulations) -> Markup:
    """A panel for each loss: the ratio over the angles. Empty where no gradient is left or the positive is farther."""
    scale = Normalize(1, LARGEST_RATIO)
    nearer = simulations.positive_means[:, None] < simulations.negative_means
    farther = simulations.positive_means[:, None] > simulations.negative_means
    medians = {
        loss: float(np.median(values[nearer & ~simulations.ratio_dissipated[loss]]))
        for loss, values in simulations.ratio.items()
    }
    description = (
        "Two maps of the ratio over the angles of negatives and positives, shown where a gradient remains. It "
        "is largest for near positives and close to 1 for far ones. Medians: "
        + ", ".join(f"{NAMES[loss]} {medians[loss]:.2f}" for loss in about.RATIO_MAPS)
        + "."
    )

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True, squeeze=False)
        for axes, (loss, values) in zip(panels.flat, simulations.ratio.items(), strict=True):
            acting = np.ma.masked_array(values, simulations.ratio_dissipated[loss] | farther)
            _map(axes, loss, acting, simulations, scale, BRIGHT)
            axes.text(0.97, 0.12, "dissipated", transform=axes.transAxes, ha="right", fontsize=9)
            axes.text(0.03, 0.84, "positive\nfarther", transform=axes.transAxes, fontsize=9)
        _label(figure, panels, scale, BRIGHT, "ratio", extend="both")

    return render_panels(draw, (7.2, 3.0), description)


def _weight_curves(simulations: Simulations) -> Markup:
    """The hardest negative's mean weight over the mean angle of negatives, a line for each temperature.

    Lines are solid where at least half of the batches keep a gradient, dotted elsewhere.
    """
    means = simulations.negative_means
    lines = list(zip(simulations.temperatures.tolist(), simulations.weights, simulations.kept, strict=True))
    largest = ", ".join(f"{weights.max():.2f} at temperature {temperature:g}" for temperature, weights, _ in lines)
    description = f"The hardest negative's weight over the mean angle of negatives. Largest weights: {largest}."

    def draw(axes: Axes) -> None:
        for place, (temperature, weights, kept) in enumerate(lines):
            style = line_style(place)
            axes.plot(means, weights, color=style["color"], linestyle=":", linewidth=1.5)
            acting, every = np.where(kept >= 0.5, weights, np.nan), max(1, len(means) // 12)
            axes.plot(means, acting, **style, markersize=4, markevery=every, label=f"τ = {temperature:g}")
        axes.axhline(0.5, color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.set(xlabel="mean angle of negatives", ylabel="weight of the hardest negative", ylim=(0, 1))
        axes.set_xticks(list(TICKS), TICKS.values())
        axes.grid(axis="y")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return render(draw, (6.4, 3.4), description)


def _percent(rate: float) -> str:
    return "unknown" if np.isnan(rate) else f"{rate:.0%}"


def _rate_curves(title: str, panels: Panels, places: Sequence[float], xlabel: str) -> Markup:
    """Rates with exact bounds over a parameter on a logarithmic axis, a panel for each statement.

    All panels have the same lines. A dashed line marks the rate that a claim demands.
    """
    parts = [
        f"{statement}: "
        + "; ".join(f"{name} {_percent(rate[0])} to {_percent(rate[-1])}" for name, (rate, _, _) in lines.items())
        for statement, lines in panels.items()
    ]
    description = f"{title}, rates from {places[0]:g} to {places[-1]:g}. " + ". ".join(parts) + "."

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (statement, lines) in zip(drawn, panels.items(), strict=True):
            for number, (name, (rate, low, high)) in enumerate(lines.items()):
                nudged = np.asarray(places) * 1.04 ** (number - (len(lines) - 1) / 2)  # so that bounds do not overlap
                axes.errorbar(
                    nudged, rate, yerr=[rate - low, high - rate], label=name, **line_style(number),
                    markersize=4, linewidth=1.2, capsize=2,
                )  # fmt: skip
            axes.axhline(ENSURED, color=INK, alpha=0.4, linewidth=1, linestyle="--")
            axes.set_title(statement, fontsize=10)
            axes.set(xscale="log", xlabel=xlabel, ylim=(-0.02, 1.02))
            axes.set_xticks(places, [f"{place:g}" for place in places], fontsize=8)
            axes.minorticks_off()
            axes.grid(axis="y")
        drawn[0].set_ylabel("share of configurations")
        drawn[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))

    return render_panels(draw, (3.4 * len(panels) + 1.2, 3.0), description)


def _map(axes: Axes, loss: str, values: Array, simulations: Simulations, scale: Normalize, colours: Colormap) -> None:
    # An image: a hundred by a hundred vector rectangles would take megabytes. Means are the pixels' centres.
    rows, columns = simulations.positive_means, simulations.negative_means
    half_row, half_column = np.diff(rows)[0] / 2, np.diff(columns)[0] / 2
    extent = (columns[0] - half_column, columns[-1] + half_column, rows[0] - half_row, rows[-1] + half_row)
    axes.imshow(values, cmap=colours, norm=scale, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    axes.set_title(NAMES[loss])


def _label(
    figure: Figure,
    panels: NDArray[np.object_],
    scale: Normalize,
    colours: Colormap,
    label: str,
    extend: str = "neither",
) -> None:
    for axes in panels[-1]:
        axes.set_xlabel("mean angle of negatives")
        axes.set_xticks(list(TICKS), TICKS.values())
    for axes in panels[:, 0]:
        axes.set_ylabel("of positives")
        axes.set_yticks(list(TICKS)[:2], list(TICKS.values())[:2])
    bar = figure.colorbar(ScalarMappable(scale, colours), ax=panels, label=label, extend=extend, aspect=30)
    bar.outline.set_visible(False)

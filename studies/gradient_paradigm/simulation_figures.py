"""Figures of the simulations with captions, and their section of the study's page."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from minbert.files import write_text
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.figures import DASHED, Picture, line_style, render, standalone
from multitask.experiments.report_page import Section
from studies.gradient_paradigm.simulation_outcomes import SIMULATED, Simulations

Array = NDArray[np.floating]
TICKS = {np.pi * share: text for share, text in ((0.25, "π/4"), (0.5, "π/2"), (0.75, "3π/4"), (1, "π"))}
VIRIDIS = mpl.colormaps["viridis"]
BRIGHT = ListedColormap(VIRIDIS(np.linspace(0.3, 1, 256)), "bright")  # maps with holes stay visible on dark pages
LARGEST_RATIO = 3.0
"""The end of the ratio's colours. MET's ratio exceeds it where the positive is near the anchor."""


def simulation_section(results: PresetResults) -> Section | None:
    """All figures of the simulations. None if nothing was simulated."""
    stage = results.last_stage("simulations")
    if stage is None:
        return None
    return Section(
        "simulations",
        "Simulated embeddings",
        "No model is trained here. Angles are drawn at random, and the components of the papers' losses are computed "
        "from them (arXiv 2402.18281, section 3.1).",
        tuple(simulation_figures(Simulations.load(stage.folder)).values()),
    )


def write_figures(folder: Path) -> list[Path]:
    """Draw the figures of an artefact of `simulate` into its folder. Returns their paths."""
    paths = []
    for name, picture in simulation_figures(Simulations.load(folder)).items():
        paths.append(folder / f"{name}.svg")
        write_text(paths[-1], standalone(picture))
    return paths


def simulation_figures(simulations: Simulations) -> dict[str, Picture]:
    """Every figure of the simulations by its file's name."""
    return {
        "dissipation": _dissipation_maps(simulations),
        "weight": _weight_curves(simulations),
        "ratio": _ratio_maps(simulations),
    }


def _dissipation_maps(simulations: Simulations) -> Picture:
    """A panel for each loss: dissipation from 0 to 1 over the mean angles, and the line where it is one half."""
    positives = simulations.positive_means

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (loss, values) in zip(panels.flat, simulations.dissipation.items(), strict=True):
            _map(axes, loss, values, simulations, Normalize(0, 1), VIRIDIS)
            axes.plot(positives, positives, color="black", linewidth=1, linestyle="--")
            axes.contour(simulations.negative_means, positives, values, [0.5], colors="white", linewidths=1.2)
        _label(figure, panels, Normalize(0, 1), VIRIDIS, "gradient dissipation")

    title = "Gradient dissipation, the mean over simulated batches. White: one half. Dashed: both means are equal."
    return Picture(render(draw, (7.2, 5.2), title), title, title)


def _ratio_maps(simulations: Simulations) -> Picture:
    """A panel for each loss: the ratio over the angles. Empty where no gradient is left or the positive is farther."""
    farther = simulations.positive_means[:, None] > simulations.negative_means

    def draw(figure: Figure) -> None:
        panels, scale = figure.subplots(1, 2, sharex=True, sharey=True, squeeze=False), Normalize(1, LARGEST_RATIO)
        for axes, (loss, values) in zip(panels.flat, simulations.ratio.items(), strict=True):
            acting = np.ma.masked_array(values, simulations.ratio_dissipated[loss] | farther)
            _map(axes, loss, acting, simulations, scale, BRIGHT)
            axes.text(0.97, 0.12, "dissipated", transform=axes.transAxes, ha="right", fontsize=9)
            axes.text(0.03, 0.84, "positive\nfarther", transform=axes.transAxes, fontsize=9)
        _label(figure, panels, scale, BRIGHT, "ratio", extend="both")

    title = "Ratio of the pull on the positive to the push from the negatives, where a gradient remains"
    return Picture(render(draw, (7.2, 3.0), title), title, title)


def _weight_curves(simulations: Simulations) -> Picture:
    """The hardest negative's mean weight over the mean angle of negatives, a line for each temperature.

    Lines are solid where at least half of the batches keep a gradient, dotted elsewhere.
    """
    means = simulations.negative_means

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, temperature in enumerate(simulations.temperatures):
            style, weights = line_style(place), simulations.weights[place]
            axes.plot(means, weights, color=style["color"], linestyle=":", linewidth=1.5)
            acting, every = np.where(simulations.kept[place] >= 0.5, weights, np.nan), max(1, len(means) // 12)
            axes.plot(means, acting, **style, markersize=4, markevery=every, label=f"τ = {temperature:g}")
        axes.axhline(0.5, **DASHED)
        axes.set(xlabel="mean angle of negatives", ylabel="weight of the hardest negative", ylim=(0, 1))
        axes.set_xticks(list(TICKS), TICKS.values())
        axes.grid(axis="y")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    title = "Weight of the hardest negative. Dotted: most batches with positives around 0.5 rad have no gradient left."
    return Picture(render(draw, (6.4, 3.4), title), title, title)


def _map(axes: Axes, loss: str, values: Array, simulations: Simulations, scale: Normalize, colours: Colormap) -> None:
    # An image: a hundred by a hundred vector rectangles would take megabytes. Means are the pixels' centres.
    rows, columns = simulations.positive_means, simulations.negative_means
    half_row, half_column = np.diff(rows)[0] / 2, np.diff(columns)[0] / 2
    extent = (columns[0] - half_column, columns[-1] + half_column, rows[0] - half_row, rows[-1] + half_row)
    axes.imshow(values, cmap=colours, norm=scale, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    axes.set_title(SIMULATED[loss])


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

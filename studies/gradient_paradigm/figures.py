"""Figures of the gradient study: from arrays to SVG. What the arrays are is said where they are made."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from studies.gradient_paradigm.simulation_outcomes import NAMES
from studies.report.figures import COLOURS, INK, MARKERS, render

Array = NDArray[np.floating]
Panels = Mapping[str, Mapping[str, tuple[Array, Array, Array]]]
"""A panel's title -> a line's name -> rate, lower and upper bound at each place."""

Bounded = tuple[float, float, float]
"""A value, its lower and its upper bound."""

TICKS = {np.pi * share: text for share, text in ((0.25, "π/4"), (0.5, "π/2"), (0.75, "3π/4"), (1, "π"))}
VIRIDIS = mpl.colormaps["viridis"]
BRIGHT = ListedColormap(VIRIDIS(np.linspace(0.3, 1, 256)), "bright")  # for maps with holes, on dark pages too
GRADED = LinearSegmentedColormap.from_list("graded", [COLOURS[0], COLOURS[3], COLOURS[4], COLOURS[1]])
LARGEST_RATIO = 3.0
"""Where the ratio's colours end; MET's exceeds it where the positive is near the anchor."""


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


def forest(estimates: Mapping[str, Bounded], xlabel: str, description: str, title: str = "", zero: bool = False) -> str:
    """A row for each estimate, the first at the top: its value and its interval.

    Args:
        estimates: a row's name -> value, lower and upper bound.
        xlabel: what the values are.
        description: alternative text.
        title: of the panel.
        zero: draw a line at zero, and fill the marks of intervals that leave it out.
    """

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, (value, low, high) in enumerate(estimates.values()):
            filled = COLOURS[0] if not zero or low > 0 or high < 0 else "none"
            axes.plot([low, high], [place, place], color=COLOURS[0], linewidth=1.6)
            axes.plot(value, place, marker="o", markersize=6, markerfacecolor=filled, markeredgecolor=COLOURS[0])
        if zero:
            axes.axvline(0, color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(estimates)), list(estimates))
        axes.set(ylim=(len(estimates) - 0.5, -0.5), xlabel=xlabel)
        axes.grid(axis="x", alpha=0.15, color=INK)
        axes.set_title(title, fontsize=11)

    return render(draw, (4.2, 0.9 + 0.27 * len(estimates)), description)


def sweep(
    lines: Mapping[str, Sequence[tuple[float, float | None] | None]],
    places: Sequence[str],
    xlabel: str,
    ylabel: str,
    description: str,
    ordered: bool = True,
) -> str:
    """Means over seeds at places in order, equally far apart; a bar of one standard deviation where there is one.

    Args:
        lines: a line's name -> mean and deviation at each place, None where there is none.
        places: their names.
        xlabel: what the places are.
        ylabel: what the means are of.
        description: alternative text.
        ordered: whether a line from place to place means anything.
    """
    turned = max(map(len, places)) > 6

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, points) in enumerate(lines.items()):
            there = [(place, *point) for place, point in enumerate(points) if point is not None]
            axes.errorbar(
                [place for place, _, _ in there],
                [mean for _, mean, _ in there],
                yerr=[deviation or 0 for _, _, deviation in there],
                label=name, color=COLOURS[number], marker=MARKERS[number], markersize=4, linewidth=1.2, capsize=2,
                linestyle="-" if ordered else "none",
            )  # fmt: skip
        axes.set_xticks(range(len(places)), places, rotation=25 if turned else 0, ha="right" if turned else "center")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(axis="y", alpha=0.15, color=INK)
        if len(lines) > 1:
            _legend(figure, axes)

    return render(draw, (4.2, 2.7 + 0.15 * len(lines) + 0.4 * turned), description)


def bands(
    panels: Mapping[str, Mapping[str, Sequence[Bounded | None]]], places: Sequence[str], xlabel: str, description: str
) -> str:
    """Values with a band between their bounds at places in order, equally far apart; three panels a row.

    Args:
        panels: a panel's title -> a line's name -> value and bounds at each place, None where there are none.
        places: their names.
        xlabel: what the places are.
        description: alternative text.
    """
    rows = -(-len(panels) // 3)

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(rows, 3, sharex=True, squeeze=False)
        for axes in drawn.flat[len(panels) :]:
            axes.remove()
        for axes, (title, lines) in zip(drawn.flat, panels.items(), strict=False):
            for number, (name, points) in enumerate(lines.items()):
                there = [(place, *point) for place, point in enumerate(points) if point is not None]
                if not there:
                    continue
                at, values, low, high = zip(*there, strict=True)
                colour = COLOURS[number]
                axes.plot(at, values, color=colour, marker=MARKERS[number], markersize=3, linewidth=1.2, label=name)
                axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.set_title(title, fontsize=10)
            axes.set_xticks(range(len(places)), places, fontsize=8, rotation=45)
            axes.tick_params(axis="y", labelsize=8)
            axes.tick_params(labelbottom=True)
            axes.grid(axis="y", alpha=0.15, color=INK)
        figure.supxlabel(xlabel, fontsize=10)
        labelled = (axes.get_legend_handles_labels() for axes in drawn.flat[: len(panels)])
        handles, names = max(labelled, key=lambda found: len(found[1]))
        figure.legend(handles, names, frameon=False, loc="outside upper left", ncols=len(names), fontsize=9)

    return render(draw, (8.4, 0.5 + 2.1 * rows), description)


def trajectories(
    lines: Mapping[str, Sequence[Sequence[tuple[int, float]]]], ylabel: str, description: str, graded: bool = False
) -> str:
    """A value over the steps of training: the mean over seeds, with a band of one standard deviation.

    Args:
        lines: a line's name -> for each seed, steps and values.
        ylabel: what the values are.
        description: alternative text.
        graded: colour the lines by their order, as those of a parameter.
    """
    colours = [to_hex(colour) for colour in GRADED(np.linspace(0, 1, len(lines)))] if graded else COLOURS

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, seeds) in enumerate(lines.items()):
            shortest = min(seeds, key=len)
            steps = [step for step, _ in shortest]
            values = np.array([[value for _, value in seed[: len(steps)]] for seed in seeds])  # [seeds, steps]
            style: dict[str, Any] = {"color": colours[number % len(colours)]}
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(steps, values.mean(0), **style, marker=marker, markersize=4, linewidth=1.2, label=name)
            if len(seeds) > 1:
                spread = values.std(0, ddof=1)
                axes.fill_between(
                    steps, values.mean(0) - spread, values.mean(0) + spread, **style, alpha=0.15, linewidth=0
                )
        axes.set(xlabel="step", ylabel=ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", alpha=0.15, color=INK)
        _legend(figure, axes)

    return render(draw, (4.2, 3.4), description)


def _legend(figure: Figure, axes: Axes) -> None:
    """Above the axes, in as many columns as there is room for."""
    handles, names = axes.get_legend_handles_labels()
    columns = 4 if max(map(len, names)) < 8 else 2
    figure.legend(handles, names, frameon=False, loc="outside upper left", ncols=columns, fontsize=9)


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


def standalone(svg: str) -> str:
    """An <svg> element as a file of its own: with its namespaces, and ink that suits a light or a dark viewer."""
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    style = "<style>svg { color: #1b1f24 } @media (prefers-color-scheme: dark) { svg { color: #e6e9ed } }</style>"
    head, _, rest = svg.partition(">")
    return f"{head.replace('<svg', f'<svg {namespaces}', 1)}>{style}{rest}\n"

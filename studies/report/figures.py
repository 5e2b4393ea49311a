"""Drawing: numbers become SVG figures within a page, transparent, in the page's text colour, with alternative text."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

# Mid-tones with a contrast of at least 3 to white and to near-black. Each has a marker for readers who see no colours.
COLOURS = ("#3b82d6", "#d9731a", "#2f9e6e", "#9b6ad6", "#d6455d", "#7f8790", "#a88a00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # one more than colours, so that the eighth line looks like no other
GLYPHS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")

GRADED = LinearSegmentedColormap.from_list("graded", [COLOURS[0], COLOURS[3], COLOURS[4], COLOURS[1]])


Bounded = tuple[float, float, float]
"""A value, its lower and its upper bound."""

# matplotlib has no currentColor. Text and axes are drawn in this colour, which the SVG replaces by currentColor.
INK = "#010203"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
}


def line_style(place: int, colours: Sequence[str] = COLOURS) -> dict[str, Any]:
    """The colour and mark of a line by its place. Of the first 56 in the usual colours no two are alike."""
    return {"color": colours[place % len(colours)], "marker": MARKERS[place % len(MARKERS)]}


LARGE = 5.6, 3.6
"""Inches of a panel with a legend."""


def learning_curve(
    title: str, curves: Mapping[int, Sequence[Sequence[float]]], description: str, legend: Sequence[str] = ()
) -> Markup:
    """Dev score after every epoch: the mean over seeds, with a band of one standard deviation.

    Args:
        title: of the panel.
        curves: a line's place, which decides its colour and mark -> for each seed its score after every epoch.
        description: alternative text.
        legend: a name for every place, for a large panel with a legend.
    """

    def draw(axes: Axes) -> None:
        for place, seeds in curves.items():
            numbered = [list(enumerate(seed, start=1)) for seed in seeds]
            _mean_and_band(axes, place, numbered, COLOURS, legend[place] if legend else None)
        several = any(len(seeds) > 1 for seeds in curves.values())
        axes.set(title=title, xlabel="epoch (bands: one standard deviation)" if several else "epoch")
        if legend:
            axes.set_ylabel("overall dev score")
            axes.legend()

    return render(draw, LARGE if legend else (3.2, 2.4), description)


def _mean_and_band(
    axes: Axes, place: int, seeds: Sequence[Sequence[tuple[int, float]]], colours: Sequence[str], label: str | None
) -> None:
    """A line of the mean over seeds, with a band of one standard deviation. Its place decides its colour and mark.

    A logarithmic axis has no band where it would reach below 0.
    """
    shortest = min(seeds, key=len)  # early stopping may end seeds at different epochs
    x = [at for at, _ in shortest]
    values = np.array([[value for _, value in seed[: len(x)]] for seed in seeds])  # [seeds, points]
    mean, style = values.mean(0), line_style(place, colours)
    axes.plot(x, mean, **style, markersize=4, linewidth=1.2, label=label)
    if len(seeds) > 1:
        spread = values.std(0, ddof=1)
        drawn = mean > spread if axes.get_yscale() == "log" else None
        axes.fill_between(x, mean - spread, mean + spread, drawn, color=style["color"], alpha=0.15, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="y")


def confusion_matrix(counts: Sequence[Sequence[int]], description: str) -> Markup:
    """Rows are gold classes, columns are predicted classes. A deeper colour is a larger share of the row."""
    matrix = np.asarray(counts)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)

    def draw(axes: Axes) -> None:
        for (gold, predicted), count in np.ndenumerate(matrix):
            cell = Rectangle(
                (predicted - 0.5, gold - 0.5), 1, 1, facecolor=COLOURS[0], alpha=0.75 * float(shares[gold, predicted])
            )
            axes.add_patch(cell)
            axes.text(predicted, gold, str(count), ha="center", va="center")
        axes.set(xlim=(-0.5, len(matrix) - 0.5), ylim=(len(matrix) - 0.5, -0.5), aspect="equal")
        axes.set(xticks=range(len(matrix)), yticks=range(len(matrix)), xlabel="predicted", ylabel="gold")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    return render(draw, (3.4, 3.2), description)


def heat_maps(
    panels: Mapping[str, NDArray[np.float64]],
    rows: Sequence[str],
    columns: Sequence[str],
    ylabel: str,
    xlabel: str,
    description: str,
) -> Markup:
    """Shares in percent by row and column. A deeper colour is a larger share.

    Args:
        panels: a panel's title -> shares of 0 to 1, [rows, columns].
        rows: their names, the first at the top.
        columns: their names.
        ylabel: what the rows are.
        xlabel: what the columns are.
        description: alternative text.
    """

    def draw(figure: Figure) -> None:
        for axes, (title, matrix) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            for (row, column), share in np.ndenumerate(matrix):
                corner = (column - 0.5, row - 0.5)
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=COLOURS[0], alpha=0.75 * float(share)))
                axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=8)
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), title=title)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set(xlabel=xlabel, ylabel=ylabel)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)

    return render_panels(draw, (len(panels) * (1 + 0.33 * len(columns)), 0.9 + 0.28 * len(rows)), description)


def scatter(labels: NDArray[np.float32], predictions: NDArray[np.float32], description: str) -> Markup:
    """Predicted against gold values, and the line of equal values."""

    def draw(axes: Axes) -> None:
        ends = [min(0.0, labels.min(), predictions.min()), max(labels.max(), predictions.max())]
        axes.plot(ends, ends, color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.scatter(labels, predictions, s=10, color=COLOURS[0], alpha=0.6, linewidths=0)
        axes.set(xlabel="gold", ylabel="predicted")

    return render(draw, (3.4, 3.2), description)


def forest(estimates: Mapping[str, Bounded], xlabel: str, description: str, title: str) -> Markup:
    """A row with value and interval for each difference, the first at the top. Marks of intervals without 0 are filled.

    Args:
        estimates: a row's name -> value, lower and upper bound.
        xlabel: what the values are.
        description: alternative text.
        title: of the panel.
    """

    def draw(axes: Axes) -> None:
        for place, (value, low, high) in enumerate(estimates.values()):
            filled = COLOURS[0] if low > 0 or high < 0 else "none"
            axes.plot([low, high], [place, place], color=COLOURS[0], linewidth=1.6)
            axes.plot(value, place, "o", markersize=6, markerfacecolor=filled, markeredgecolor=COLOURS[0])
        axes.axvline(0, color=INK, alpha=0.4, linewidth=1, linestyle="--")
        axes.set_yticks(range(len(estimates)), list(estimates))
        axes.set(title=title, ylim=(len(estimates) - 0.5, -0.5), xlabel=xlabel)
        axes.grid(axis="x")

    return render(draw, (4.2, 0.9 + 0.27 * len(estimates)), description)


def sweep(
    lines: Mapping[str, Sequence[tuple[float, float | None] | None]],
    places: Sequence[str],
    xlabel: str,
    ylabel: str,
    description: str,
    ordered: bool = True,
) -> Markup:
    """Means over seeds at equidistant places, with bars of one standard deviation.

    Args:
        lines: a line's name -> mean and deviation at each place, None if missing.
        places: their names.
        xlabel: of the places.
        ylabel: of the means.
        description: alternative text.
        ordered: whether to connect the places.
    """
    turned = max(map(len, places)) > 6

    def draw(axes: Axes) -> None:
        for number, (name, points) in enumerate(lines.items()):
            there = [(place, *point) for place, point in enumerate(points) if point is not None]
            axes.errorbar(
                [place for place, _, _ in there],
                [mean for _, mean, _ in there],
                yerr=[deviation or 0 for _, _, deviation in there],
                label=name, **line_style(number), markersize=4, linewidth=1.2, capsize=2,
                linestyle="-" if ordered else "none",
            )  # fmt: skip
        axes.set_xticks(range(len(places)), places, rotation=25 if turned else 0, ha="right" if turned else "center")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(axis="y")
        if len(lines) > 1:
            _legend(axes)

    return render(draw, (4.2, 2.7 + 0.15 * len(lines) + 0.4 * turned), description)


def bands(
    panels: Mapping[str, Mapping[str, Sequence[Bounded | None]]], places: Sequence[str], xlabel: str, description: str
) -> Markup:
    """Values at equidistant places with a band between their bounds, up to three panels beside each other.

    Args:
        panels: a panel's title -> a line's name -> value and bounds at each place, None if missing.
        places: their names.
        xlabel: of the places.
        description: alternative text.
    """
    wide = min(len(panels), 3)
    rows = -(-len(panels) // 3)

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(rows, wide, sharex=True, squeeze=False)
        for axes in drawn.flat[len(panels) :]:
            axes.remove()
        for axes, (title, lines) in zip(drawn.flat, panels.items(), strict=False):
            for number, (name, points) in enumerate(lines.items()):
                there = [(place, *point) for place, point in enumerate(points) if point is not None]
                if not there:
                    continue
                at, values, low, high = zip(*there, strict=True)
                style = line_style(number)
                axes.plot(at, values, **style, markersize=3, linewidth=1.2, label=name)
                axes.fill_between(at, low, high, color=style["color"], alpha=0.18, linewidth=0)
            axes.set_title(title, fontsize=10)
            axes.set_xticks(range(len(places)), places, fontsize=8, rotation=45)
            axes.tick_params(axis="y", labelsize=8)
            axes.tick_params(labelbottom=True)
            axes.grid(axis="y")
        figure.supxlabel(f"{xlabel} (bands: 95% intervals)", fontsize=10)
        labelled = (axes.get_legend_handles_labels() for axes in drawn.flat[: len(panels)])
        handles, names = max(labelled, key=lambda found: len(found[1]))
        figure.legend(handles, names, loc="outside upper left", ncols=len(names) if wide > 1 else 1, fontsize=9)

    return render_panels(draw, (2.8 * wide, 0.5 + 2.1 * rows), description)


def trajectories(
    lines: Mapping[str, Sequence[Sequence[tuple[int, float]]]],
    ylabel: str,
    description: str,
    graded: bool = False,
    logarithmic: bool = False,
) -> Markup:
    """A value over the steps of training: the mean over seeds, with a band of one standard deviation.

    Args:
        lines: a line's name -> for each seed, steps and values.
        ylabel: what the values are.
        description: alternative text.
        graded: colour the lines by their order, for values of a parameter.
        logarithmic: whether the values are on a logarithmic axis.
    """
    colours = [to_hex(colour) for colour in GRADED(np.linspace(0, 1, len(lines)))] if graded else COLOURS

    def draw(axes: Axes) -> None:
        axes.set(xlabel="step", ylabel=ylabel, yscale="log" if logarithmic else "linear")
        for place, (name, seeds) in enumerate(lines.items()):
            _mean_and_band(axes, place, seeds, colours, name)
        _legend(axes)

    return render(draw, (4.2, 3.4), description)


def _legend(axes: Axes) -> None:
    """A legend above the axes, in as many columns as fit."""
    handles, names = axes.get_legend_handles_labels()
    columns = 4 if max(map(len, names)) < 8 else 2
    axes.figure.legend(handles, names, loc="outside upper left", ncols=columns, fontsize=9)


def render(draw: Callable[[Axes], None], inches: tuple[float, float], description: str) -> Markup:
    """A figure of one panel as an <svg> element."""
    return render_panels(lambda figure: draw(figure.subplots()), inches, description)


def render_panels(
    draw: Callable[[Figure], None],
    inches: tuple[float, float],
    description: str,
    margins: Mapping[str, float] | None = None,
) -> Markup:
    """A figure as an <svg> element.

    Args:
        draw: draws the panels.
        inches: width and height.
        description: alternative text.
        margins: as `Figure.subplots_adjust` takes them. If None, matplotlib searches for a layout, which can
            take longer than the drawing.
    """
    # The salt makes ids differ between the figures of a page, and makes a figure equal in every run.
    with mpl.rc_context({**STYLE, "svg.hashsalt": description}):
        figure = Figure(figsize=inches, layout=None if margins else "constrained")
        if margins:
            figure.subplots_adjust(**margins)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_inline(buffer.getvalue(), description))


def _inline(document: str, description: str) -> str:
    """The <svg> element without prologue, metadata, namespaces, unused ids and size, with INK as currentColor."""
    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg[: svg.index(">")]) + svg[svg.index(">") :]
    svg = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", svg)
    svg = svg.replace(INK, "currentColor")
    text = escape(description)
    return svg.replace("<svg", f'<svg role="img" aria-label="{text}"', 1).replace(">", f"><title>{text}</title>", 1)


def standalone(svg: str, caption: str = "") -> str:
    """An <svg> element as the text of a file: with namespaces, size, and a text colour for light and dark viewers.

    A caption becomes the file's <desc>, from which pages can take it.
    """
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    style = "<style>svg { color: #1b1f24 } @media (prefers-color-scheme: dark) { svg { color: #e6e9ed } }</style>"
    about = f"<desc>{escape(caption)}</desc>" if caption else ""
    head, _, rest = str(svg).partition(">")  # Markup would escape what is inserted
    size = re.sub(r'.*viewBox="0 0 (\S+) (\S+)".*', r'width="\1pt" height="\2pt"', head, flags=re.DOTALL)
    return f"{head.replace('<svg', f'<svg {namespaces} {size}', 1)}>{style}{about}{rest}\n"

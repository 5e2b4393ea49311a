"""Drawing: numbers become SVG figures within a page, transparent, in the page's text colour, with alternative text."""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from multitask.experiments.results_file import TableScores

# Mid-tones with a contrast of at least 3 to white and to near-black. Each has a marker for readers who see no colours.
COLOURS = ("#3b82d6", "#d9731a", "#2f9e6e", "#9b6ad6", "#d6455d", "#7f8790", "#a88a00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # one more than colours, so that the eighth line looks like no other
GRADED = LinearSegmentedColormap.from_list("graded", [COLOURS[0], COLOURS[3], COLOURS[4], COLOURS[1]])
OURS, THEIRS = COLOURS[0], COLOURS[1]
ACROSS = 4  # the most panels beside each other
LETTERS = 11  # letters of a legend in an inch

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
    "axes.titlesize": 10,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
}
DASHED: dict[str, Any] = {"color": INK, "alpha": 0.4, "linewidth": 1, "linestyle": "--"}

CurvePoints = Sequence[tuple[float, float, float, float]]
"""A line: place, value, lower and upper bound of each point. Bounds are NaN or the value itself without any."""


@dataclass(frozen=True)
class Interval:
    """A row of `intervals`: a value with its bounds, single values that it is a mean of, and a published value."""

    value: float
    low: float
    high: float
    singles: Sequence[float] = ()
    published: float = np.nan
    hollow: bool = False


@dataclass(frozen=True)
class Picture:
    """An SVG, its alternative text, and a caption."""

    svg: Markup
    title: str
    caption: str = ""


def line_style(place: int, colours: Sequence[str] = COLOURS) -> dict[str, Any]:
    """The colour and mark of a line by its place. Of the first 56 in the usual colours no two are alike."""
    return {"color": colours[place % len(colours)], "marker": MARKERS[place % len(MARKERS)]}


def over_seeds(seeds: Sequence[Sequence[tuple[float, float]]]) -> CurvePoints:
    """The mean over seeds with one standard deviation to each side, from places and values of each seed.

    Early stopping may end seeds at different places: the shortest decides.
    """
    shortest = min(seeds, key=len)
    values = np.array([[value for _, value in seed[: len(shortest)]] for seed in seeds])  # [seeds, points]
    mean = values.mean(0)
    spread = values.std(0, ddof=1) if len(seeds) > 1 else np.zeros_like(mean)
    return [(at, m, m - s, m + s) for (at, _), m, s in zip(shortest, mean, spread, strict=True)]


def lines(
    panels: Mapping[str, Mapping[str, CurvePoints]],
    xlabel: str,
    title: str,
    *,
    ylabel: str = "",
    places: Sequence[str] = (),
    graded: bool = False,
    scale: tuple[str, str] = ("linear", "linear"),
    size: tuple[float, float] = (2.8, 2.1),
    level: float | None = None,
) -> Markup:
    """Panels of lines with bands between their bounds, by their titles and names, and one legend above all.

    Args:
        panels: a panel's title -> a line's name -> its points.
        xlabel: what the places are.
        title: alternative text.
        ylabel: what the values are.
        places: names of the places 0, 1 and so on; otherwise places are numbers.
        graded: colour the lines by their order, for values of a parameter.
        scale: of both axes. A logarithmic axis has no band where it would reach below 0.
        size: inches of a panel.
        level: draw a dashed line here.
    """
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    colours = [to_hex(colour) for colour in GRADED(np.linspace(0, 1, len(names)))] if graded else COLOURS
    wide = 2 if len(panels) == 4 else min(len(panels), 3)  # four stand in two rows
    high = -(-len(panels) // max(wide, 1))
    columns = max(1, int(size[0] * wide * LETTERS / (4 + max(map(len, names), default=0))))

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(high, wide, squeeze=False)
        for axes in drawn.flat[len(panels) :]:
            axes.remove()
        for axes, (heading, curves) in zip(drawn.flat, panels.items(), strict=False):
            axes.set(title=fill(heading, 40), xscale=scale[0], yscale=scale[1])
            for name in curves:
                style = {"markersize": 3.5, "linewidth": 1.2, **line_style(names.index(name), colours)}
                _line(axes, curves[name], name, style)
            if level is not None:
                axes.axhline(level, **DASHED)
            if places:
                axes.set_xticks(range(len(places)), places, rotation=45 if max(map(len, places)) > 3 else 0)
            elif scale[0] == "linear":
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.tick_params(labelsize=8)
            axes.grid(axis="y")
        figure.supxlabel(xlabel, fontsize=10)
        figure.supylabel(ylabel, fontsize=10)
        labelled = {n: h for axes in figure.axes for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
        if len(labelled) > 1:
            figure.legend(labelled.values(), labelled, loc="outside upper left", ncols=columns, fontsize=9)

    return render(draw, (size[0] * wide, 0.5 + 0.2 * -(-len(names) // columns) + size[1] * high), title)


def _line(axes: Axes, points: CurvePoints, name: str, style: dict[str, Any]) -> None:
    x, y, low, high = np.array(points, float).T if len(points) else np.empty((4, 0))
    axes.plot(x, y, label=name, **style)
    drawn = low > 0 if axes.get_yscale() == "log" else None
    axes.fill_between(x, low, high, drawn, color=style["color"], alpha=0.16, linewidth=0)


def intervals(
    panels: Mapping[str, Mapping[str, Interval]], title: str, marked: Mapping[str, float] | None = None
) -> Markup:
    """Panels by their titles that share rows by their names, the first at the top: each a value with its interval.

    The title is the alternative text; `marked` tells where a panel has a dashed line.
    """
    names = list(dict.fromkeys(name for intervals in panels.values() for name in intervals))
    labels = [fill(name, 40) for name in names]
    heights = [1 + label.count("\n") for label in labels]
    places = {name: sum(heights[:n]) + (heights[n] - 1) / 2 for n, name in enumerate(names)}
    wide, high = min(len(panels), ACROSS), -(-len(panels) // ACROSS)
    # The layout is given: matplotlib's search for one takes longer than the drawing.
    left = 0.07 * max(len(part) for label in labels for part in label.split("\n")) + 0.15
    panel, rows, top, bottom, between = {1: 3.6, 2: 2.6, 3: 2.0, 4: 1.7}[wide], 0.3 * sum(heights), 0.35, 0.6, 0.25
    width, height = left + panel * wide + between * (wide - 1) + 0.15, top + high * (rows + bottom)
    margins = {"left": left / width, "right": 1 - 0.15 / width, "wspace": between / panel}
    margins |= {"bottom": bottom / height, "top": 1 - top / height, "hspace": bottom / rows}

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(high, wide, sharey=True, squeeze=False)
        for axes in drawn.flat[len(panels) :]:
            axes.remove()
        for axes, (heading, intervals) in zip(drawn.flat, panels.items(), strict=False):
            for name, found in intervals.items():
                _interval(axes, places[name], found)
            if marked and heading in marked:
                axes.axvline(marked[heading], zorder=0, **DASHED)
            axes.set(ylim=(sum(heights) - 0.5, -0.5))
            axes.set_xlabel(fill(heading, 24), fontsize=9)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.tick_params(axis="x", labelsize=8)
            axes.tick_params(axis="y", length=0, labelsize=9)
            axes.grid(axis="x")
        for axes in drawn[:, 0]:
            axes.set_yticks(list(places.values()), labels)
        of_all = [found for intervals in panels.values() for found in intervals.values()]
        marks = drawn[0, 0].plot([], [], "o-", color=OURS, markersize=5, label="mean and 95% interval")
        if any(len(found.singles) > 1 for found in of_all):
            marks += drawn[0, 0].plot([], [], ".", color=OURS, alpha=0.45, label="each seed")
        if any(np.isfinite(found.published) for found in of_all):
            marks += drawn[0, 0].plot([], [], "D", color=THEIRS, markerfacecolor="none", label="published")
        figure.legend(handles=marks, loc="upper left", ncols=4, fontsize=9, borderaxespad=0)

    return render(draw, (width, height), title, margins)


def _interval(axes: Axes, place: float, found: Interval) -> None:
    if len(found.singles) > 1:  # below their mean, so that it does not hide them
        axes.plot(found.singles, [place + 0.28] * len(found.singles), ".", color=OURS, alpha=0.45, markersize=5)
    axes.plot([found.low, found.high], [place, place], color=OURS, linewidth=1.6)
    axes.plot(found.value, place, "o", color=OURS, markersize=5, markerfacecolor="none" if found.hollow else OURS)
    axes.plot(found.published, place, "D", color=THEIRS, markerfacecolor="none", markersize=6)


def render(
    draw: Callable[[Figure], None], inches: tuple[float, float], title: str, margins: Mapping[str, float] | None = None
) -> Markup:
    """A figure as an <svg> element. The title is its alternative text; figures of one page have different ones.

    Margins are those of `Figure.subplots_adjust`; without any, matplotlib searches for a layout.
    """
    # The salt makes ids differ between the figures of a page, and makes a figure equal in every run.
    with mpl.rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=inches, layout=None if margins else "constrained")
        if margins:
            figure.subplots_adjust(**margins)
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_inline(buffer.getvalue(), title, inches[0]))


def _inline(document: str, title: str, width: float) -> str:
    """The <svg> element without prologue, metadata, namespaces, unused ids and size, with INK as currentColor."""
    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg[: svg.index(">")]) + svg[svg.index(">") :]
    svg = re.sub(r' id="[A-Za-z][\w.]*_\d+"', "", svg)
    svg = svg.replace(INK, "currentColor")
    text = escape(title)
    head = f'<svg role="img" style="max-width: {width:.1f}in" aria-label="{text}"'
    return svg.replace("<svg", head, 1).replace(">", f"><title>{text}</title>", 1)


def standalone(picture: Picture) -> str:
    """A picture as the text of a file: with namespaces, size, and a text colour for light and dark viewers."""
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    style = "<style>svg { color: #1b1f24 } @media (prefers-color-scheme: dark) { svg { color: #e6e9ed } }</style>"
    head, _, rest = str(picture.svg).partition(">")  # Markup would escape what is inserted
    size = re.sub(r'.*viewBox="0 0 (\S+) (\S+)".*', r'width="\1pt" height="\2pt"', head, flags=re.DOTALL)
    return f"{head.replace('<svg', f'<svg {namespaces} {size}', 1)}>{style}{rest}\n"


LEAST = 3  # values that a parameter needs for a picture of its own
PARAMETERS = {
    "rate": "learning rate, multiples of the default one",
    "share": "share removed",
    "limit": "sentences",
    "pretraining": "batch size of pre-training",
    "finetuning": "batch size of fine-tuning",
}
"""Names of parameters for readers. Others are called as in the rows' points."""


def table_pictures(table: TableScores) -> dict[str, Picture]:
    """All pictures of a table by their files."""
    name = f"figures/{table.description.name}"
    drawn = {f"{name}-{parameter}.svg": picture for parameter, picture in sweeps(table).items()}
    return {f"{name}.svg": table_picture(table), **drawn}


def table_picture(table: TableScores) -> Picture:
    """Every row's mean with its interval, each seed, and the published score; a panel for each pictured column."""
    panels, marked = {}, {}
    for place in table.pictured:
        cells, heading = table.column(place), table.description.columns[place].heading
        panels[heading] = {_label(table, row): as_interval(cells.loc[row]) for row in table.rows.index}
        if table.description.reference in cells.index:
            marked[heading] = cells["mean"][table.description.reference]
    return Picture(intervals(panels, table.description.title, marked), table.description.title)


def _label(table: TableScores, row: str) -> str:
    return f"{table.rows.label[row]}{' (reference)' if row == table.description.reference else ''}"


def as_interval(cell: "pandas.Series[Any]") -> Interval:
    """A cell of a table's scores for a picture."""
    return Interval(cell["mean"], cell.low, cell.high, cell["values"], cell.published)


def sweeps(table: TableScores) -> dict[str, Picture]:
    """A picture for each parameter that has at least three numbers as values, by the parameter's name.

    Rows whose points differ in other parameters, too, are lines of their own. No picture has more lines than colours.
    """
    names = dict.fromkeys(name for point in table.rows.point for name, value in point.items() if _is_number(value))
    found = {name: _lines(table, name) for name in names}
    return {name: _sweep(table, name, rows) for name, rows in found.items() if 0 < len(rows) <= len(COLOURS)}


def _sweep(table: TableScores, parameter: str, rows: Mapping[str, Mapping[float, str]]) -> Picture:
    """The pictured columns against a parameter: means with 95% bands at equidistant places."""
    values = sorted({value for line in rows.values() for value in line})
    panels: dict[str, dict[str, CurvePoints]] = {}
    for place in table.pictured:
        cells, heading = table.column(place), table.description.columns[place].heading
        drawn = {
            name: [(values.index(v), *_bounds(cells.loc[r])) for v, r in line.items()] for name, line in rows.items()
        }
        panels[heading] = {name: sorted(p for p in points if np.isfinite(p[1])) for name, points in drawn.items()}
    axis, title = PARAMETERS.get(parameter, parameter.replace("_", " ")), f"{table.description.title}, by {parameter}"
    svg = lines(panels, f"{axis} (95% intervals)", title, places=[f"{value:g}" for value in values])
    return Picture(svg, title)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lines(table: TableScores, parameter: str) -> dict[str, dict[float, str]]:
    """Keys of rows by the parameter's value, by the values of the others; lines with at least three values."""
    lines: defaultdict[str, dict[float, str]] = defaultdict(dict)
    for row, point in table.rows.point.items():
        if _is_number(point.get(parameter)):
            others = {name: value for name, value in point.items() if name != parameter}
            name = ", ".join(f"{PARAMETERS.get(k, k)} {v}" if _is_number(v) else str(v) for k, v in others.items())
            lines[name or parameter][point[parameter]] = str(row)
    return {name: line for name, line in lines.items() if len(line) >= LEAST}


def _bounds(cell: "pandas.Series[Any]") -> tuple[float, float, float]:
    """Mean and interval; a measure without an interval has no band."""
    mean = float(cell["mean"])
    return (mean, float(cell.low), float(cell.high)) if np.isfinite(cell.low) else (mean, mean, mean)

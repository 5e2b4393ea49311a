"""The picture at the head of a table: every row's mean with its interval, each seed, and the published score."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from studies.report.figures import COLOURS, INK, render_panels
from studies.report.format import score
from studies.results import Cell, Column, RowScores, TableScores

PANELS = 4
"""The most panels beside each other."""
BELOW = 0.28
"""How far below its row's mean a seed is drawn, so that the mean does not hide it."""
LABEL = 40
"""Characters of a label's line."""
OURS, PUBLISHED = COLOURS[0], COLOURS[1]
ROW, LETTER = 0.3, 0.07  # inches of a row, of a label's letter
PANEL = {1: 3.6, 2: 2.6, 3: 2.0, 4: 1.7}  # inches of a panel's width, by the number beside each other
TOP, BOTTOM, BETWEEN, RIGHT = 0.35, 0.6, 0.25, 0.15  # inches of margins


@dataclass(frozen=True)
class Picture:
    """An SVG, its natural width in inches, and its alternative text."""

    svg: Markup
    width: float
    description: str


def forest_plot(table: TableScores) -> Picture:
    """The picture of a table with a score: a panel for each pictured column, a row for each row of the table."""
    labels = [fill(_labelled(table, row), LABEL) for row in table.rows]
    lines = [1 + label.count("\n") for label in labels]
    places = [sum(lines[:number]) + (count - 1) / 2 for number, count in enumerate(lines)]
    wide = min(len(table.pictured), PANELS)
    high = -(-len(table.pictured) // PANELS)

    left = LETTER * max(len(part) for label in labels for part in label.split("\n")) + 0.15
    rows = ROW * sum(lines)
    width = left + PANEL[wide] * wide + BETWEEN * (wide - 1) + RIGHT
    height = TOP + high * (rows + BOTTOM)
    margins = {
        "left": left / width,
        "right": 1 - RIGHT / width,
        "wspace": BETWEEN / PANEL[wide],
        "bottom": BOTTOM / height,
        "top": 1 - TOP / height,
        "hspace": BOTTOM / rows,
    }

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(high, wide, sharey=True, squeeze=False)
        for axes in drawn.flat[len(table.pictured) :]:
            axes.remove()
        for axes, place in zip(drawn.flat, table.pictured, strict=False):
            cells = {at: row.cells[place] for at, row in zip(places, table.rows, strict=True)}
            _panel(axes, table.description.columns[place], cells)
            if (of := table.reference) and (cell := of.cells[place]) and cell.values:
                axes.axvline(cell.mean, color=INK, alpha=0.4, linewidth=1, linestyle="--", zorder=0)
            axes.set_ylim(sum(lines) - 0.5, -0.5)
        for axes in drawn[:, 0]:
            axes.set_yticks(places, labels)
        figure.legend(handles=_legend(drawn[0, 0], table), loc="upper left", ncols=4, fontsize=9, borderaxespad=0)

    description = _described(table)
    return Picture(render_panels(draw, (width, height), description, margins), width, description)


def _labelled(table: TableScores, row: RowScores) -> str:
    return f"{row.label} (reference)" if row.key == table.description.reference else row.label


def _panel(axes: Axes, column: Column, cells: Mapping[float, Cell | None]) -> None:
    """The cells of a column by their rows' places."""
    for place, cell in cells.items():
        if cell is None:
            continue
        if len(cell.values) > 1:
            axes.plot(cell.values, [place + BELOW] * len(cell.values), ".", color=OURS, alpha=0.45, markersize=5)
        if cell.low is not None and cell.high is not None:
            axes.plot([cell.low, cell.high], [place, place], color=OURS, linewidth=1.6)
        if cell.values:
            axes.plot(cell.mean, place, "o", color=OURS, markersize=5)
        if cell.published is not None:
            axes.plot(cell.published, place, "D", color=PUBLISHED, markerfacecolor="none", markersize=6)
    axes.set_xlabel(fill(column.heading, 24), fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.grid(axis="x")


def _legend(axes: Axes, table: TableScores) -> list[Line2D]:
    """The marks that the picture has, drawn without data."""
    found = [cell for row in table.rows for place in table.pictured if (cell := row.cells[place])]
    marks = axes.plot([], [], "o-", color=OURS, markersize=5, linewidth=1.6, label="mean and 95% interval")
    if any(len(cell.values) > 1 for cell in found):
        marks += axes.plot([], [], ".", color=OURS, alpha=0.45, markersize=5, label="each seed")
    if any(cell.published is not None for cell in found):
        marks += axes.plot([], [], "D", color=PUBLISHED, markerfacecolor="none", markersize=6, label="published")
    return marks


def _described(table: TableScores) -> str:
    """Alternative text: the numbers of the first column. The table below the picture has all."""
    first = table.pictured[0]
    described = "; ".join(f"{row.label} {_numbers(cell)}" for row in table.rows if (cell := row.cells[first]))
    heading = table.description.columns[first].heading
    return f"{table.description.title}. {heading}, means with 95% intervals: {described or 'none'}"


def _numbers(cell: Cell) -> str:
    ours = f"{score(cell.mean)} [{score(cell.low)}, {score(cell.high)}]" if cell.values else "not run"
    return ours if cell.published is None else f"{ours}, published {score(cell.published)}"

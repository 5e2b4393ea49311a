"""Pictures of a table of results: its rows with intervals, and its scores against a parameter of the rows."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas

from studies.report.figures import COLOURS, Interval, Picture, Points, intervals, lines
from studies.results import TableScores

LEAST = 3
"""Values that a parameter needs for a picture of its own."""
NAMES = {
    "rate": "learning rate, multiples of the default one",
    "share": "share removed",
    "limit": "sentences",
    "pretraining": "batch size of pre-training",
    "finetuning": "batch size of fine-tuning",
}
"""Of parameters, for readers. Others are called as in the rows' points."""


def table_pictures(table: TableScores, prefix: str = "figures/") -> dict[str, Picture]:
    """All pictures of a table by their files."""
    name = f"{prefix}{table.description.name}"
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
    return {name: _sweep(table, name, of) for name, of in found.items() if 0 < len(of) <= len(COLOURS)}


def _sweep(table: TableScores, parameter: str, rows: Mapping[str, Mapping[float, str]]) -> Picture:
    """The pictured columns against a parameter: means with 95% bands at equidistant places."""
    values = sorted({value for line in rows.values() for value in line})
    panels: dict[str, dict[str, Points]] = {}
    for place in table.pictured:
        cells, heading = table.column(place), table.description.columns[place].heading
        drawn = {name: [(values.index(v), *_bounds(cells.loc[r])) for v, r in of.items()] for name, of in rows.items()}
        panels[heading] = {name: sorted(p for p in of if np.isfinite(p[1])) for name, of in drawn.items()}
    axis, title = NAMES.get(parameter, parameter.replace("_", " ")), f"{table.description.title}, by {parameter}"
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
            name = ", ".join(f"{NAMES.get(k, k)} {v}" if _is_number(v) else str(v) for k, v in others.items())
            lines[name or parameter][point[parameter]] = str(row)
    return {name: of for name, of in lines.items() if len(of) >= LEAST}


def _bounds(cell: "pandas.Series[Any]") -> tuple[float, float, float]:
    """Mean and interval; a measure without an interval has no band."""
    mean = float(cell["mean"])
    return (mean, float(cell.low), float(cell.high)) if np.isfinite(cell.low) else (mean, mean, mean)

"""Parts of a page with figures. A section is a function of the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import pandas

from studies.engine.table import OVERALL
from studies.report.figures import Interval, Picture, lines, over_seeds
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.table_results import TableResults

CURVES = "-curves"
"""Follows a table's name in the file of its curves over the epochs."""


@dataclass(frozen=True)
class Section:
    """A part of a page: its key in the names of files, heading, text, figures, and a table of text below them."""

    key: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    table: pandas.DataFrame | None = None


def table_section(results: TableResults, pictures: Sequence[Picture | None]) -> Section | None:
    """A section with a table's title and note. None without figures."""
    table, there = results.table, tuple(picture for picture in pictures if picture)
    return Section(table.key, table.numbered_title, table.note, there) if there else None


def as_intervals(tests: pandas.DataFrame) -> dict[str, Interval]:
    """Differences of `table_results.compared` by name for a picture; those that are not significant are hollow."""
    return {
        str(name): Interval(test.difference, test.low, test.high, hollow=not test.significant)
        for name, test in tests.iterrows()
    }


def learning_curves(results: TableResults) -> Picture | None:
    """The dev scores after every epoch, a panel for each column that training measured. None without curves.

    A table that is shown as curves has one large panel of the overall score, as the report's Figure 2.
    """
    large = results.table.kind == "curves"
    panels = {
        results.heading(column): {
            row.label: over_seeds([[*enumerate(seed, start=1)] for seed in curves])
            for row in results.table.rows
            if (curves := results.curves(row.key, column))
        }
        for column in ((OVERALL,) if large else results.table.score_columns)
    }
    panels = {heading: of for heading, of in panels.items() if of}
    if not panels:
        return None
    title, size = f"{results.table.numbered_title}, after every epoch", (5.6, 3.2) if large else (2.8, 2.1)
    xlabel = "epoch (bands: one standard deviation over seeds)"
    return Picture(lines(panels, xlabel, title, ylabel="dev score", size=size), title)


def conflicts(results: PresetResults) -> Section | None:
    """A panel for each row that measured the cosine between the gradients of every two tasks; means over seeds."""
    panels: dict[tuple[str, ...], tuple[str, list[RunResult]]] = {}
    for row, finished in (line for table in results.tables for line in table.rows):
        if runs := [run for run in finished if any(map(_cosines, run.history))]:
            # Rows of several tables can have the same runs.
            panels.setdefault(tuple(run.folder.name for run in runs), (row.label, runs))
    drawn = {}
    for number, (label, runs) in enumerate(panels.values()):
        pairs = dict.fromkeys(pair for run in runs for line in run.history for pair in _cosines(line))
        drawn[label if label not in drawn else f"{label} ({number})"] = {
            pair: over_seeds(
                [[(n, _cosines(line).get(pair, nan)) for n, line in enumerate(run.history, 1)] for run in runs]
            )
            for pair in pairs
        }
    title = "Cosine between the gradients of two tasks"
    text = (
        "Of their losses over the shared parameters, averaged over the measured steps since the last evaluation. "
        "Below 0, a step that helps one task harms the other."
    )
    picture = Picture(lines(drawn, "evaluation", title, level=0.0), title) if drawn else None
    return Section("conflicts", title, text, (picture,)) if picture else None


def _cosines(line: dict[str, Any]) -> dict[str, float]:
    """The cosines in a line of metrics.jsonl, by pair of tasks; the line calls them `cosine TASK/TASK`."""
    seen = line["training"].items()
    return {name.removeprefix("cosine "): value for name, value in seen if name.startswith("cosine ")}


SECTIONS: tuple[Callable[[PresetResults], Section | None], ...] = (conflicts,)

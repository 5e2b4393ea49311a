"""The report's figures with captions and alternative text, in sections. A section is a function of the results."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from multitask.evaluation.text_tables import capitalized
from studies.engine.table import OVERALL
from studies.report.figures import GLYPHS, LARGE, confusion_matrix, learning_curve, scatter
from studies.report.forest_plot import Picture
from studies.report.format import score
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.table_results import TableResults

CURVES = "-curves"
"""Follows a table's name in the file of its curves over the epochs."""
SHOWN_CLASSES = 12  # a larger confusion matrix cannot be read


@dataclass(frozen=True)
class Illustration:
    """An SVG and its caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        key: the page's anchor.
        title: its heading.
        text: a sentence or two.
        figures: its figures.
        wide: put the figures below each other.
        table: cells of a table below the figures; the first row is the header.
    """

    key: str
    title: str
    text: str
    figures: tuple[Illustration, ...]
    wide: bool = False
    table: tuple[tuple[str, ...], ...] = ()


def table_section(results: TableResults, figures: Sequence[Illustration], wide: bool = False) -> Section | None:
    """A section with a table's title and note. None without figures."""
    table = results.table
    return Section(table.key, table.numbered_title, table.note, tuple(figures), wide) if figures else None


def learning_curves(results: TableResults) -> list[Markup]:
    """A panel for each column that training measured. Lines have the marks of the rows in the table."""
    return [
        learning_curve(results.heading(column), curves, _described(results, column, curves))
        for column in results.table.score_columns
        if (curves := _curves(results, column))
    ]


def overall_curves(results: TableResults) -> Picture | None:
    """A large panel of the overall dev score after every epoch, as the report's Figure 2. None without runs."""
    curves = _curves(results, OVERALL)
    if not curves:
        return None
    labels, description = [row.label for row in results.table.rows], _described(results, OVERALL, curves)
    return Picture(learning_curve("", curves, description, labels), LARGE[0], description)


def best_predictions(results: PresetResults) -> Section | None:
    """Confusion matrices and scatters of the model with the best overall dev score."""
    if results.best is None:
        return None
    label, run = results.best
    figures = [figure for task in results.record.tasks if (figure := _predictions(run, task))]
    return Section(
        "predictions",
        "Predictions of the best model",
        f"{label}, seed {run.seed}: overall {score(run.evaluation[OVERALL])} on the dev sets, the highest of all runs.",
        tuple(figures),
    )


def _predictions(run: RunResult, task: str) -> Illustration | None:
    """Gold labels and predictions of a task. None of several labels a row, and of many classes."""
    metrics, name = run.evaluation["metrics"][task], capitalized(task)
    if "confusion" in metrics:
        counts = metrics["confusion"]
        right, total = sum(row[i] for i, row in enumerate(counts)), sum(map(sum, counts))
        described = f"Confusion matrix of {task}: {right} of {total} dev rows on the diagonal"
        caption = f"{name}: dev rows by gold class and prediction; classes have the order of the task's labels."
        return Illustration(confusion_matrix(counts, described), caption) if len(counts) <= SHOWN_CLASSES else None
    if "pearson" not in metrics:
        return None
    labels, predictions = run.predictions(task)
    described = f"Predicted against gold {task} of {len(labels)} dev rows; Pearson correlation"
    return Illustration(
        scatter(labels, predictions, f"{described} {score(metrics['pearson'])}"),
        f"{name}: each point is a dev row. On the dashed line, prediction and gold are equal.",
    )


def conflicts(results: PresetResults) -> Section | None:
    """A panel for each row that measured the cosine between the gradients of every two tasks; means over seeds."""
    panels: dict[tuple[str, ...], Illustration] = {}
    for row, finished in (line for table in results.tables for line in table.rows):
        runs = [run for run in finished if any(map(_cosines, run.history))]
        if runs:
            # Rows of several tables can have the same runs.
            panels.setdefault(tuple(run.folder.name for run in runs), _conflicts(row.label, runs))
    if not panels:
        return None
    return Section(
        "conflicts",
        "Conflicts between the tasks",
        "Cosine between the gradients of two tasks' losses over their shared parameters, averaged over the measured "
        "steps since the last evaluation. Below 0, a step that helps one task harms the other.",
        tuple(panels.values()),
    )


def _conflicts(label: str, runs: list[RunResult]) -> Illustration:
    pairs = list(dict.fromkeys(pair for run in runs for line in run.history for pair in _cosines(line)))
    curves = {
        place: [[_cosines(line).get(pair, math.nan) for line in run.history] for run in runs]
        for place, pair in enumerate(pairs)
    }
    means = {pair: np.nanmean([value for seed in curves[place] for value in seed]) for place, pair in enumerate(pairs)}
    described = ", ".join(f"{pair} {mean:.2f}" for pair, mean in means.items())
    marks = ", ".join(f"{GLYPHS[place % len(GLYPHS)]} {pair}" for place, pair in enumerate(pairs))
    svg = learning_curve(label, curves, f"Cosines between tasks' gradients by epoch, {label}; their means: {described}")
    return Illustration(svg, marks)


def _cosines(line: dict[str, Any]) -> dict[str, float]:
    """The cosines in a line of metrics.jsonl, by pair of tasks; the line calls them `cosine TASK/TASK`."""
    seen = line["training"].items()
    return {name.removeprefix("cosine "): value for name, value in seen if name.startswith("cosine ")}


SECTIONS: tuple[Callable[[PresetResults], Section | None], ...] = (best_predictions, conflicts)


def _curves(results: TableResults, column: str) -> dict[int, list[list[float]]]:
    """Curves of each row that has any, by its place in the table."""
    rows = enumerate(results.table.rows)
    return {place: curves for place, row in rows if (curves := results.curves(row.key, column))}


def _described(results: TableResults, column: str, curves: dict[int, list[list[float]]]) -> str:
    table = results.table
    ends = ", ".join(
        f"{table.rows[place].label} {score(sum(seed[-1] for seed in seeds) / len(seeds))}"
        for place, seeds in curves.items()
    )
    title = f"{table.numbered_title}: {results.heading(column)}"
    return f"{title} on the dev set after every epoch; after the last: {ends}"

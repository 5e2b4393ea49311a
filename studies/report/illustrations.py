"""Which figures a report shows, with captions and alternative text. Each section is a function of the results."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from studies.report.analysis import TableAnalysis
from studies.report.figures import GLYPHS, confusion_matrix, learning_curve, scatter
from studies.report.format import score
from studies.report.results import OVERALL, Results, RunResult, TableResult


@dataclass(frozen=True)
class Illustration:
    """An SVG and its caption."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and figures."""

    key: str  # the page's anchor
    title: str
    text: str
    figures: tuple[Illustration, ...]
    wide: bool = False  # figures stand below each other
    table: tuple[tuple[str, ...], ...] = ()  # below the figures, its first row the header


def learning_curves(analysis: TableAnalysis) -> list[Markup]:
    """A panel for each column that any row has a history of; lines are marked as rows are in the table."""
    return [
        Markup(learning_curve(analysis.table.heading(column), curves, _described(analysis.table, column, curves)))
        for column in analysis.table.columns
        if (curves := _curves(analysis.table, column))
    ]


def overall_curves(analysis: TableAnalysis) -> Markup | None:
    """One large panel of the overall dev score after every epoch, with a legend (report, Figure 2); None of no runs."""
    table = analysis.table
    curves = _curves(table, OVERALL)
    if not curves:
        return None
    names = [row.label for row in table.rows]
    return Markup(learning_curve("", curves, _described(table, OVERALL, curves), names))


def best_predictions(results: Results) -> Section | None:
    """Confusion matrix and scatter of the model with the best overall dev score."""
    if results.best is None:
        return None
    label, run = results.best
    counts = run.evaluation["metrics"]["sentiment"]["confusion"]
    right, total = sum(row[i] for i, row in enumerate(counts)), sum(map(sum, counts))
    labels, predictions = run.predictions("similarity")
    confusion = confusion_matrix(
        counts, f"Confusion matrix of sentiment: {right} of {total} dev sentences on the diagonal"
    )
    points = scatter(
        labels,
        predictions,
        f"Predicted against gold similarity of {len(labels)} dev pairs; "
        f"Pearson correlation {score(run.evaluation['scores']['similarity'])}",
    )
    return Section(
        "predictions",
        "Predictions of the best model",
        f"{label}, seed {run.seed}: overall {score(run.evaluation[OVERALL])} on the dev sets, the highest of all runs.",
        (
            Illustration(
                Markup(confusion),
                "Sentiment: how many dev sentences of each gold class got which prediction.",
            ),
            Illustration(
                Markup(points), "Similarity: a point a dev pair; on the dashed line prediction and gold are equal."
            ),
        ),
    )


def conflicts(results: Results) -> Section | None:
    """A panel for each row whose runs looked at the tasks' gradients: the cosine of every two tasks, seeds' mean."""
    panels: dict[tuple[str, ...], Illustration] = {}
    for row in (row for table in results.tables for row in table.rows):
        runs = [run for run in row.runs if any(map(_cosines, run.history))]
        if runs:
            # Rows of several tables are the same runs.
            panels.setdefault(tuple(run.folder.name for run in runs), _conflicts(row.label, runs))
    if not panels:
        return None
    return Section(
        "conflicts",
        "Conflicts between the tasks",
        "Cosine between the gradients of two tasks' losses over the parameters that they share, averaged over the "
        "steps at which it was taken since the last evaluation. Below 0 what serves one task harms the other.",
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
    return Illustration(Markup(svg), marks)


def _cosines(line: dict[str, Any]) -> dict[str, float]:
    """The cosines of an evaluation's line, by pair of tasks."""
    seen = line["training"].items()
    return {name.removeprefix("cosine "): value for name, value in seen if name.startswith("cosine ")}


SECTIONS: tuple[Callable[[Results], Section | None], ...] = (best_predictions, conflicts)


def _curves(table: TableResult, column: str) -> dict[int, list[list[float]]]:
    return {place: curves for place, row in enumerate(table.rows) if (curves := row.curves(column))}


def _described(table: TableResult, column: str, curves: dict[int, list[list[float]]]) -> str:
    ends = ", ".join(
        f"{table.rows[place].label} {score(sum(seed[-1] for seed in seeds) / len(seeds))}"
        for place, seeds in curves.items()
    )
    return f"{table.title}: {table.heading(column)} on the dev set after every epoch; after the last: {ends}"

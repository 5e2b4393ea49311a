"""The report of a preset: one self-contained page and the same tables as Markdown, from the store alone."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from minbert.files import write_text
from multitask.reporting.figures import COLOURS, GLYPHS, confusion_matrix, learning_curve, scatter
from multitask.reporting.results import Results, RunResult, TableResult, mean_and_deviation


def write_report(runs: Path, preset: str, output: Path) -> Path:
    """Write index.html and report.md.

    Args:
        runs: folder of all artefacts.
        preset: name of the preset that was run.
        output: folder to write to.

    Returns:
        The page.

    Raises:
        InputError: the preset was never run.
    """
    results = Results.read(runs, preset)
    values: dict[str, Any] = {
        "record": results.record,
        "tables": results.tables,
        "runs": list(results.labelled_runs.values()),
        "best": results.best,
        "cell": mean_and_deviation,
        "legend": lambda place: (GLYPHS[place % len(GLYPHS)], COLOURS[place % len(COLOURS)]),
        "to_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    page = (
        _environment(html=True)
        .get_template("report.html.jinja")
        .render(**values, curves=_curves, confusion=_confusion, scatter=_scatter)
    )
    text = _environment(html=False).get_template("report.md.jinja").render(**values)
    write_text(output / "report.md", text)
    write_text(output / "index.html", page)
    return output / "index.html"


def _environment(html: bool) -> Environment:
    return Environment(
        loader=PackageLoader("multitask", "reporting"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _curves(table: TableResult) -> list[Markup]:
    """A panel of learning curves for each column."""
    panels = []
    for column in table.columns:
        curves = {place: row.curves(column) for place, row in enumerate(table.rows) if table.scores(row, column)}
        ends = ", ".join(
            f"{table.rows[place].label} {mean_and_deviation([seed[-1] for seed in seeds])}"
            for place, seeds in curves.items()
        )
        title = table.heading(column)
        description = f"{table.title}: {title} after every epoch; after the last: {ends}"
        panels.append(Markup(learning_curve(title, curves, description)))
    return panels


def _confusion(run: RunResult) -> Markup:
    counts = run.evaluation["metrics"]["sentiment"]["confusion"]
    right, total = sum(row[i] for i, row in enumerate(counts)), sum(map(sum, counts))
    description = f"Confusion matrix of sentiment: {right} of {total} dev sentences on the diagonal"
    return Markup(confusion_matrix(counts, description))


def _scatter(run: RunResult) -> Markup:
    labels, predictions = run.predictions("similarity")
    pearson = run.evaluation["scores"]["similarity"]
    description = f"Predicted against gold similarity of {len(labels)} dev pairs; Pearson correlation {pearson:.3f}"
    return Markup(scatter(labels, predictions, description))

"""The report of a preset: a self-contained page, the same as Markdown, and LaTeX tables, from the artefacts alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minbert.files import read_json, write_text
from multitask.evaluation import markup
from multitask.evaluation.statistics import SAMPLES
from studies.engine.record import duration
from studies.engine.table import OVERALL
from studies.report import format as formats
from studies.report.comparisons import Agreement
from studies.report.cost import StageDetails, cost_of, stages_of
from studies.report.curves_as_data import curves_as_data, save_curves
from studies.report.figures import COLOURS, GLYPHS, standalone
from studies.report.forest_plot import forest_plot
from studies.report.further_columns import about, further_columns
from studies.report.meaning import first_stage, meaning, significant_sizes
from studies.report.preset_results import PresetResults
from studies.report.scores_as_data import scores_as_data
from studies.report.sections import CURVES, SECTIONS, learning_curves, overall_curves
from studies.report.study_page import write_study
from studies.report.table_results import TableResults
from studies.report.templates import environment
from studies.results import Results


def write_report(runs: Path, preset: str, output: Path) -> Path:
    """Write index.html, report.md, results.parquet, curves.parquet, tables in LaTeX and as pictures, and the study.

    Args:
        runs: folder of all artefacts.
        preset: name of the preset that was run.
        output: folder to write to; LaTeX tables go into its folder `tables`, pictures of report.md into `figures`.

    Returns:
        The page.

    Raises:
        InputError: the preset was never run.
    """
    results = PresetResults.read(runs, preset)
    stages, data = stages_of(results), scores_as_data(results)
    warnings = [*results.record.notes, *_warnings(results, stages)]
    shown = {**_shown(results, data), "warnings": warnings, "study": write_study(results, warnings, output)}
    data.save(output / "results.parquet")
    save_curves(curves_as_data(results), output / "curves.parquet")
    drawn = {**shown["pictures"], **{f"{name}{CURVES}": picture for name, picture in shown["curves"].items()}}
    for name, picture in drawn.items():
        write_text(output / "figures" / f"{name}.svg", standalone(picture.svg))
    for found in _tables(results):
        text = environment("latex").get_template("table.tex.jinja").render(results=found, **shown)
        write_text(output / "tables" / f"{found.table.name}.tex", text)
    write_text(output / "report.md", environment("markdown").get_template("report.md.jinja").render(**shown))
    page = environment("html").get_template("report.html.jinja")
    html = page.render(
        **shown,
        stages=stages,
        sections=[section for build in SECTIONS if (section := build(results))],
        learning_curves=learning_curves,
        legend=lambda place: (GLYPHS[place % len(GLYPHS)], COLOURS[place % len(COLOURS)]),
        to_json=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    write_text(output / "index.html", html)
    return output / "index.html"


def _tables(results: PresetResults) -> list[TableResults]:
    """Those that are shown as tables, not as curves."""
    return [found for found in results.tables if found.table.kind == "table"]


def _shown(results: PresetResults, data: Results) -> dict[str, Any]:
    """What the templates of all formats need."""
    tables = _tables(results)
    names = {found.table.name for found in tables}
    pictured = {table.description.name: table for table in data.tables if table.description.name in names}
    curves = {found.table.name: overall_curves(found) for found in results.tables if found.table.kind == "curves"}
    overall = [o for found in results.tables for o in found.orderings if o.column == OVERALL]
    return {
        "record": results.record,
        "tables": results.tables,
        "compared": [found for found in tables if found.orderings],
        "agreement_of_all": Agreement.of(overall),
        "cost": cost_of(results),
        "samples": SAMPLES,
        "format": formats,
        "duration": duration,
        "markup": markup,
        "Latex": markup.Latex,
        "further_columns": further_columns,
        "about": about,
        "pictures": {name: forest_plot(table) for name, table in pictured.items()},
        "curves": {name: drawn for name, drawn in curves.items() if drawn},
        "suffix_of_curves": CURVES,
        "meanings": {name: meaning(table) for name, table in pictured.items()},
        "first_stages": {name: first_stage(table) for name, table in pictured.items()},
        "significant_sizes": {name: significant_sizes(table) for name, table in pictured.items()},
    }


def _warnings(results: PresetResults, stages: Sequence[StageDetails]) -> list[str]:
    """What a reader must know in addition to the preset's notes."""
    found = []
    seeds = {len(runs) for found in results.tables for runs in found.runs.values() if runs}
    if seeds == {1}:
        found.append(
            "Every row was trained with a single seed, so there is no spread over seeds. Intervals and tests tell how "
            "these models would differ on other dev examples, not whether another seed would give the same result."
        )
    elif any(len(set(map(len, filter(None, found.runs.values())))) > 1 for found in results.tables):
        found.append("Some rows of a table have fewer seeds than others.")
    unknown = {line for _, run in results.finished_runs.values() for line in run.evaluation.get("unknown", ())}
    found += [f"Not known of the training data: {line}." for line in sorted(unknown)]
    configs = [stage.config for stage in stages]
    configs += [read_json(run.evaluation_folder / "config.json") for _, run in results.finished_runs.values()]
    sizes = [
        meaning.format(" or ".join(f"{size:,}" for size in sorted(values)))
        for name, meaning in SUB_SAMPLED.items()
        if (values := {config[name] for config in configs if config.get(name) is not None})
    ]
    if sizes:
        found.append(f"Sub-sampled data: {'; '.join(sizes)}.")
    return found


SUB_SAMPLED = {
    "train_limit": "training sets are cut to {} rows",
    "epoch_size": "an epoch of fine-tuning takes {} examples of each task",
    "limit": "SentEval's tasks are cut to about {} pairs, or rows of each split, drawn at random",
}

"""The report of a preset: one self-contained page, the same as Markdown, and its tables for LaTeX; from the store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minbert.files import read_json, write_text
from multitask.evaluation import markup
from multitask.evaluation.statistics import SAMPLES
from studies.report import format as formats
from studies.report.analysis import analyse, overall_agreement
from studies.report.cost import StageDetails, cost_of, stages_of
from studies.report.figures import COLOURS, GLYPHS
from studies.report.illustrations import SECTIONS, learning_curves, overall_curves
from studies.report.results import Results
from studies.report.study_page import write_study
from studies.report.templates import environment


def write_report(runs: Path, preset: str, output: Path) -> Path:
    """Write index.html, report.md, and a LaTeX file for each table; the study, if there is anything for it.

    Args:
        runs: folder of all artefacts.
        preset: name of the preset that was run.
        output: folder to write to; the LaTeX tables go into its folder `tables`.

    Returns:
        The page.

    Raises:
        InputError: the preset was never run.
    """
    results = Results.read(runs, preset)
    analyses, stages = analyse(results), stages_of(results)
    tables = [analysis for analysis in analyses if analysis.table.recorded.kind == "table"]
    warnings = [*results.record.notes, *_warnings(results, stages)]
    values: dict[str, Any] = {
        "record": results.record,
        "warnings": warnings,
        "analyses": analyses,
        "compared": [analysis for analysis in tables if analysis.orderings],
        "agreement_of_all": overall_agreement(analyses),
        "cost": cost_of(results),
        "samples": SAMPLES,
        "format": formats,
        "markup": markup,
        "Latex": markup.Latex,
        "study": write_study(results, analyses, warnings, output),
    }
    for analysis in tables:
        table = environment("latex").get_template("table.tex.jinja").render(analysis=analysis, **values)
        write_text(output / "tables" / f"{analysis.table.name}.tex", table)
    write_text(output / "report.md", environment("markdown").get_template("report.md.jinja").render(**values))
    page = environment("html").get_template("report.html.jinja")
    html = page.render(
        **values,
        stages=stages,
        sections=[section for build in SECTIONS if (section := build(results))],
        learning_curves=learning_curves,
        overall_curves=overall_curves,
        legend=lambda place: (GLYPHS[place % len(GLYPHS)], COLOURS[place % len(COLOURS)]),
        to_json=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    write_text(output / "index.html", html)
    return output / "index.html"


def _warnings(results: Results, stages: Sequence[StageDetails]) -> list[str]:
    """What a reader must know beside the preset's own notes."""
    found = []
    seeds = {len(row.runs) for table in results.tables for row in table.rows if row.runs}
    if seeds == {1}:
        found.append(
            "Every row was trained with a single seed: there is no spread over seeds. Intervals and tests say how far "
            "these models would differ on other dev examples, not whether another seed would give the same."
        )
    elif len(seeds) > 1:
        found.append("Some rows have fewer seeds than others.")
    unknown = {line for _, run in results.finished.values() for line in run.evaluation.get("unknown", ())}
    found += [f"Not known of the training data: {line}." for line in sorted(unknown)]
    configs = [stage.config for stage in stages]
    configs += [read_json(run.evaluation_folder / "config.json") for _, run in results.finished.values()]
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

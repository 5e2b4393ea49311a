"""The report of a preset: pages, LaTeX tables, pictures and data, from the artefacts alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas

from minbert.files import write_text
from multitask.evaluation.statistics import SAMPLES
from multitask.evaluation.text_tables import SEEN, capitalized, markdown_table, markdown_text
from studies.engine.presets import SAMPLE
from studies.report.command import Report
from studies.report.figures import Picture, standalone
from studies.report.pages import html_page, markdown_page, section_markdown, section_pictures
from studies.report.pictures import table_pictures
from studies.report.preset_results import PresetResults
from studies.report.scores_as_data import curves_as_data, save_curves, scores_as_data
from studies.report.sections import CURVES, SECTIONS, learning_curves
from studies.report.summary import best_model, overview
from studies.report.table_results import TableResults
from studies.report.text import difference, difference_table, latex_table, score, score_table, signed
from studies.results import STEPS, TableScores
from studies.study import all_studies, studies_by_name, study_of_tables

MARKS = {
    "shown": "✓",
    "shown, perhaps smaller than the margin": "(✓)",
    "equivalent or opposite": "✗",
    "open": "?",
    "not tested here": "–",
    "theorem": "∎",
}
SILENT = ("not tested here", "theorem")
"""Verdicts that need no results."""


def report(options: Report) -> int:
    """`multitask report`: write the report; print its path."""
    print(f"report: {write_report(options.runs, options.preset, options.report).resolve()}")
    return 0


def write_report(runs: Path, preset: str, output: Path) -> Path:
    """Write index.html, report.md, results.parquet, curves.parquet, tables in LaTeX and as pictures, and the study.

    Returns the page. Raises InputError if the preset was never run.
    """
    results, drawn = PresetResults.read(runs, preset), dict[str, Picture]()
    data = scores_as_data(results)
    data.save(output / "results.parquet")
    save_curves(curves_as_data(results), output / "curves.parquet")
    scores = {table.description.table: table for table in data.tables}
    tables = [_table(found, scores.get(found.table.key)) for found in results.tables]
    for found in results.tables:
        if found.table.kind == "table" and found.table.key in scores:
            text = latex_table(scores[found.table.key], results.record.subject)
            write_text(output / "tables" / f"{found.table.name}.tex", text)
    for table in tables:
        drawn |= table.pictures | ({table.curves_file: table.curves} if table.curves else {})
    warnings = [*results.record.notes, *_warnings(results)]
    with_rows = [found.table.key for found in results.tables if found.table.kind == "table"]
    if over := overview([scores[key] for key in with_rows if key in scores]):
        drawn["figures/overview.svg"] = over
    sections = [section for build in SECTIONS if (section := build(results))]
    drawn |= {path: of for section in sections for path, of in section_pictures(section, "figures").items()}
    folders = dict.fromkeys(study_of_tables(SAMPLE).get(found.table.key) for found in results.tables)
    papers = [paper for folder in folders if folder for paper in studies_by_name()[folder].papers]
    shown = {
        "papers": "; ".join(f"“{markdown_text(paper.title)}” ({markdown_text(paper.reference)})" for paper in papers),
        "single_seed": all(found.single_seed for found in results.tables if any(found.runs.values())),
        "tables": tables,
        "record": results.record,
        "best": best_model(results),
        "overview": over,
        "warnings": warnings,
        "sections": [SimpleNamespace(title=of.title, markdown=section_markdown(of, "figures")) for of in sections],
        "study": _write_study(results, warnings, output),
        "samples": SAMPLES,
        "seen": SEEN,
    }
    _write(output, "report", "index", shown, drawn)
    return output / "index.html"


def _write(output: Path, name: str, html: str, shown: dict[str, Any], drawn: dict[str, Picture]) -> None:
    """A page in both formats, and its figures."""
    for path, picture in drawn.items():
        write_text(output / path, standalone(picture))
    write_text(output / f"{name}.md", markdown_page(f"{name}.md.jinja", **shown, suffix="md"))
    page = markdown_page(f"{name}.md.jinja", **shown, suffix="html").replace("](report.html)", "](index.html)")
    write_text(output / f"{html}.html", html_page(page, drawn))


def _write_study(results: PresetResults, warnings: list[str], output: Path) -> bool:
    """Write study.html and study.md if a claim was tested or a section has figures. Returns whether it did."""
    studies = all_studies()
    judged = pandas.concat([study.judge(results) for study in studies], ignore_index=True)
    sections = [section for study in studies for build in study.sections if (section := build(results))]
    if not sections and judged.status.isin(SILENT).all():
        return False
    papers = {paper.key: paper for study in studies for paper in study.papers}
    names = judged.paper.map(lambda key: papers[key].citation)
    names += judged.kind.eq("beyond the paper").map({True: ", beyond the paper", False: ""})
    order = names.loc[judged.paper.sort_values(key=lambda of: of.map(list(papers).index), kind="stable").index].unique()
    counts = pandas.crosstab(names, judged.status).reindex(order).reindex(columns=list(MARKS), fill_value=0)
    counts.columns = [capitalized(status) for status in MARKS]
    shown = {
        "record": results.record,
        "warnings": warnings,
        "counts": markdown_table(counts.astype(str).rename_axis("Claims of").reset_index()),
        "papers": [(papers[key], _claims(of)) for key, of in judged.groupby("paper", sort=False)],
        "sections": [SimpleNamespace(markdown=section_markdown(section, "study")) for section in sections],
    }
    drawn = {path: picture for section in sections for path, picture in section_pictures(section, "study").items()}
    _write(output, "study", "study", shown, drawn)
    return True


def _claims(judged: pandas.DataFrame) -> str:
    """Claims of a paper with their verdicts."""
    beyond = judged.kind.eq("beyond the paper").map({True: "*Beyond the paper.* ", False: ""})
    columns = {
        "Verdict": judged.status.map(MARKS) + " " + judged.status,
        "Claim": beyond + judged.text.map(markdown_text) + " (" + judged.section.map(markdown_text) + ")",
        "Criterion": judged.criterion.map(markdown_text),
        "Found": judged.evidence.map(markdown_text),
    }
    return markdown_table(pandas.DataFrame(columns), 4)


def _table(found: TableResults, scores: TableScores | None) -> SimpleNamespace:
    """What the page shows of a table."""
    table = found.table
    shown = scores if table.kind == "table" else None
    return SimpleNamespace(
        name=table.name,
        title=table.numbered_title,
        note=table.note if scores is not None else f"{table.note} No run has finished.",
        pictures=table_pictures(shown) if shown else {},
        curves=learning_curves(found),
        curves_file=f"figures/{table.name}{CURVES if table.kind == 'curves' else '-epochs'}.svg",
        single_seed=found.single_seed,
        steps=shown is not None and any(column.metric == STEPS for column in shown.description.columns),
        scores=score_table(shown, range(len(shown.description.columns))) if shown else "",
        reference=table.label(table.reference) if table.reference else "",
        differences=difference_table(shown) if shown else "",
        chosen=", ".join(row.label for row in found.chosen_on_dev),
        overlaps=_overlaps(found),
        orderings=_orderings(found),
    )


def _overlaps(found: TableResults) -> str:
    """How many of the scored examples the rows were trained on."""
    lines = [
        {
            "Row": markdown_text(found.table.label(row)),
            "Task": markdown_text(capitalized(task)),
            "Trained on": f"{f'{of.seen:,.1f}'.removesuffix('.0')} of {of.rows:,.0f} ({of.seen / of.rows:.1%})",
            "Score": score(of.score),
            "On the other examples": score(of.clean),
        }
        for (row, task), of in found.overlaps.iterrows()
    ]
    return markdown_table(pandas.DataFrame(lines), 2) if lines else ""


def _orderings(found: TableResults) -> str:
    """Every pair of rows with different published scores."""
    lines = [
        {
            "Better as published": markdown_text(found.table.label(better)),
            "Worse": markdown_text(found.table.label(worse)),
            "Column": markdown_text(capitalized(column)),
            "Published": signed(of.published),
            "Ours": difference(of),
            "Same order": "✓" if of.agrees else "✗",
        }
        for (column, better, worse), of in found.orderings.iterrows()
    ]
    return markdown_table(pandas.DataFrame(lines), 3) if lines else ""


def _warnings(results: PresetResults) -> list[str]:
    """What a reader must know in addition to the preset's notes."""
    runs = [run for table in results.tables for of in table.runs.values() for run in of]
    seeds = [{len(of) for of in table.runs.values() if of} for table in results.tables]
    found = ["One seed: intervals and tests do not cover other seeds."] if set().union(*seeds) == {1} else []
    if any(len(of) > 1 for of in seeds):
        found.append("Some rows of a table have fewer seeds than others. Rows are compared on the seeds they share.")
    unknown = {line for run in runs for line in run.evaluation.get("unknown", ())}
    if unknown:
        found.append(f"Not all sentences that the models were trained on are known. {'; '.join(sorted(unknown))}.")
    return found

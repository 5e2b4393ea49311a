"""The page of the studies: verdicts on the papers' claims and their figures; and the report with it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas

from multitask.data.markup import markdown_table, markdown_text, text_rows
from multitask.evaluation.text_tables import capitalized
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.figures import Interval, Picture
from multitask.experiments.report_page import (
    Section,
    pictures_of,
    remove_page,
    report_of,
    results_in,
    warnings_of,
    write_pages,
)
from studies.engine.presets import SAMPLE
from studies.study import all_studies, studies_by_name, study_of_tables

MARKS = {
    "shown": "✓",
    "shown, perhaps smaller than the margin": "(✓)",
    "equivalent or opposite": "✗",
    "open": "?",
    "not tested here": "–",
    "theorem": "∎",
}
SILENT = ("not tested here", "theorem")  # verdicts that need no results


def write_report(runs: Path, preset: str, output: Path) -> Path:
    """Write the frames and the report of a preset. Returns its page. Raises InputError if it was never run."""
    return render_study(results_in(runs, preset, output), output)


def render_study(results: PresetResults, output: Path) -> Path:
    """Write the report with the papers of its tables, and the study's page. Returns the report's page."""
    studies = study_of_tables(SAMPLE)
    folders = dict.fromkeys(studies.get(found.table.key) for found in results.tables)
    papers = [paper for folder in folders if folder for paper in studies_by_name()[folder].papers]
    named = "; ".join(f"“{markdown_text(paper.title)}” ({markdown_text(paper.reference)})" for paper in papers)
    return report_of(results, output, studies, named, write_study(results, output))


def write_study(results: PresetResults, output: Path) -> bool:
    """Write study.html and study.md if a claim was tested or a section has figures. Returns whether it did."""
    studies = all_studies()
    judged = pandas.concat([study.judge(results) for study in studies], ignore_index=True)
    sections = [section for study in studies for build in study.sections if (section := build(results))]
    if not sections and judged.status.isin(SILENT).all():
        remove_page(output, "study")
        return False
    papers = {paper.key: paper for study in studies for paper in study.papers}
    names = judged.paper.map(lambda key: papers[key].citation)
    names += judged.kind.eq("beyond the paper").map({True: ", beyond the paper", False: ""})
    order = names.loc[
        judged.paper.sort_values(key=lambda keys: keys.map(list(papers).index), kind="stable").index
    ].unique()
    counts = pandas.crosstab(names, judged.status).reindex(order).reindex(columns=list(MARKS), fill_value=0)
    counts.columns = [capitalized(status) for status in MARKS]
    shown = {
        "record": results.record,
        "warnings": warnings_of(results),
        "counts": markdown_table(text_rows(counts.astype(str).rename_axis("Claims of").reset_index())),
        "papers": [(papers[key], _claims(claims)) for key, claims in judged.groupby("paper", sort=False)],
        "sections": sections,
    }
    template = Path(__file__).with_name("study.md.jinja")
    write_pages(output, template, "study", shown, pictures_of(sections, "study"))
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
    return markdown_table(text_rows(pandas.DataFrame(columns)), 4)


def section_of(key: str, build: Callable[[TableResults], Section | None]) -> Callable[[PresetResults], Section | None]:
    """The section that is built from a table's results. None if the table was not run."""

    def section(results: PresetResults) -> Section | None:
        found = results.finished_tables.get(key)
        return None if found is None else build(found)

    return section


def table_section(results: TableResults, pictures: Sequence[Picture | None]) -> Section | None:
    """A section with a table's title and note. None without figures."""
    table, there = results.table, tuple(picture for picture in pictures if picture)
    return Section(table.key, table.numbered_title, table.note, there) if there else None


def as_intervals(tests: pandas.DataFrame) -> dict[str, Interval]:
    """Differences of `compare_rows.compared` by name for a picture; those that are not significant are hollow."""
    return {
        str(name): Interval(test.difference, test.low, test.high, hollow=not test.significant)
        for name, test in tests.iterrows()
    }

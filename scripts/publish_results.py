"""Take a report's results into docs/studies/: `python -m scripts.publish_results REPORT NAME ...`.

A NAME stands in the pages' lines `<!-- results: NAME TABLE ... -->`. docs/studies/results/NAME.parquet takes these
tables from REPORT/results.parquet, and keeps those that the report lacks; so does results/curves/NAME.parquet from
REPORT/curves.parquet. Their curves over the epochs, and figures of their sections of study.md, become figures of the
pages. The name `claims` stands for the page docs/studies/claims.md instead, which becomes the report's study.md without
the sections that have figures of such a table alone.
`python -m scripts.refresh_study_pages` then fills the pages.
"""

import re
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pyarrow
from pyarrow import compute, parquet

from minbert.errors import InputError
from minbert.files import read_text, write_text
from multitask.runs.artefact import without_folders
from scripts.refresh_study_pages import BEGIN, PAGES, STUDY, numbered
from studies.report.scores_as_data import save_curves
from studies.report.sections import CURVES
from studies.results import Description, Results, TableScores

CLAIMS = "claims"
FIGURES = "figures/study"
LINKS = re.compile(r"\[The report\]\(report\.md\) has all tables\.")
"""What study.md says of the report's other files."""
SECTION = re.compile(r"^(?=## )", re.MULTILINE)
FIGURE = re.compile(r"\]\(study/((?P<section>[\w-]+)-\d+\.svg)\)")
ABOUT = (
    "[Verdicts](../reference/verdicts.md) explains how each was decided. Figures of a table are on its\n"
    "[paper's page](index.md)."
)
FOLDER = re.compile(r"`/\S*/(?=[^/`]+`)")
"""A folder in which data lay."""


def publish_tables(report: Path, name: str, pages: Path) -> None:
    """Write the file of results NAME with the tables that the pages name.

    Raises:
        InputError: no page names the file, or neither the report nor the file has a table.
    """
    found = [place for page in sorted(pages.glob("*.md")) for place in BEGIN.finditer(read_text(page))]
    keys = dict.fromkeys(key for place in found if place["name"] == name for key in place["tables"].split())
    if not keys:
        raise InputError(f"no page in {pages} has a line <!-- results: {name} TABLE ... -->")
    file = pages / "results" / f"{name}.parquet"
    earlier = Results.load(file).tables if file.is_file() else ()
    of_report = list(map(_without_folders, Results.load(report / "results.parquet").tables))
    known = Results(tuple({of.description.table: of for of in (*earlier, *of_report)}.values()))
    Results(tuple(map(known.table, keys))).save(file)
    _publish_curves(report / "curves.parquet", pages / "results" / "curves" / file.name, keys)
    for of in of_report:
        if of.description.table in keys:
            _publish_figures(report, of.description, pages / "figures", name)


def _without_folders(table: TableScores) -> TableScores:
    """The table without the folder in which its data lay."""
    return replace(table, lines=table.lines.assign(data=table.lines.data.map(without_folders)))


def _publish_curves(new: Path, file: Path, tables: Collection[str]) -> None:
    """Replace what trainings of these tables measured, and keep that of the tables that the report lacks."""
    of_report = parquet.read_table(new)
    found = [of_report.filter(compute.field("table").isin(list(tables)))]
    if file.is_file():
        replaced = compute.field("table").isin(of_report["table"].unique())
        found.append(parquet.read_table(file).filter(~replaced & compute.field("table").isin(list(tables))))
    save_curves(pyarrow.concat_tables(found), file)


def _publish_figures(report: Path, table: Description, figures: Path, name: str) -> None:
    """Bring the figures of a table that are not drawn from its results, in place of an earlier report's."""
    curves = f"{table.name}{CURVES}.svg"
    drawn = {curves: report / "figures" / curves}
    for number, figure in enumerate(numbered(report / "study", table.table), start=1):
        drawn[f"{table.name}{STUDY}-{number}.svg"] = figure
    for earlier in (figures / f"{name}-{curves}", *numbered(figures, f"{name}-{table.name}{STUDY}")):
        earlier.unlink(missing_ok=True)
    for file, figure in drawn.items():
        if figure.is_file():
            write_text(figures / f"{name}-{file}", read_text(figure))


def publish_claims(report: Path, pages: Path) -> None:
    """Write the page of claims with its figures, then remove figures that the page no longer has.

    Raises:
        InputError: the report has no study.md.
    """
    published = [Results.load(file) for file in (pages / "results").glob("*.parquet")]
    elsewhere = {table.description.table for results in published for table in results.tables}
    parts = SECTION.split(read_text(report / "study.md"))
    text = "".join(part for part in parts if not _shown_by(part, elsewhere))
    figures = {found[1]: read_text(report / "study" / found[1]) for found in FIGURE.finditer(text)}
    for name, figure in figures.items():
        write_text(pages / FIGURES / name, figure)
    text = LINKS.sub(ABOUT, text)
    text = text.replace("# The study, ", "# Claims and verdicts, ", 1)
    text = FOLDER.sub("`", text).replace("](study/", f"]({FIGURES}/")
    write_text(pages / f"{CLAIMS}.md", text)
    for earlier in (pages / FIGURES).glob("*.svg"):
        if earlier.name not in figures:
            earlier.unlink()


def _shown_by(section: str, tables: Collection[str]) -> bool:
    """Whether a section has only figures, of one of these tables. A table of effects is on no other page."""
    figure = FIGURE.search(section)
    return figure is not None and figure["section"] in tables and "\n|" not in section


if __name__ == "__main__":
    _, folder, *names = sys.argv
    for name in names:
        if name == CLAIMS:
            publish_claims(Path(folder), PAGES)
        else:
            publish_tables(Path(folder), name, PAGES)

"""Take tables of a report into docs/studies/results/: `python -m scripts.publish_results REPORT NAME TABLE ...`.

results/NAME.parquet and results/curves/NAME.parquet take these tables from REPORT/results.parquet and
REPORT/curves.parquet, in place of earlier ones, and keep the others. `python -m scripts.refresh_study_pages` then
writes the pages' figures and verdicts.
"""

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pyarrow
from pyarrow import compute, parquet

from multitask.runs.artefact import without_folders
from scripts.refresh_study_pages import PAGES
from studies.report.scores_as_data import save_curves
from studies.results import Results


def publish(report: Path, file: Path, keys: Collection[str]) -> None:
    """Write a file of results and that of its curves. Raises InputError if the report lacks a table."""
    of_report = Results.load(report / "results.parquet")
    new = [
        replace(of, lines=of.lines.assign(data=of.lines.data.map(without_folders))) for of in map(of_report.table, keys)
    ]
    earlier = Results.load(file).tables if file.is_file() else ()
    Results(tuple({of.description.table: of for of in (*earlier, *new)}.values())).save(file)
    curves, chosen = file.parent / "curves" / file.name, compute.field("table").isin(list(keys))
    found = [parquet.read_table(report / "curves.parquet").filter(chosen)]
    if curves.is_file():
        found.append(parquet.read_table(curves).filter(~chosen))
    save_curves(pyarrow.concat_tables(found), curves)


if __name__ == "__main__":
    _, report, name, *keys = sys.argv
    publish(Path(report), PAGES / "results" / f"{name}.parquet", keys)

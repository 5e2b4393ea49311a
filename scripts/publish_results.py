"""Take tables of a report into docs/studies/results/: `python -m scripts.publish_results REPORT NAME TABLE ...`.

    python -m scripts.publish_results REPORT NAME TABLE ... [--runs RUNS --preset PRESET]

results/NAME.parquet and results/curves/NAME.parquet take these tables from REPORT/results.parquet and
REPORT/curves.parquet, in place of earlier ones, and keep the others. `python -m scripts.refresh_study_pages` then
writes the pages' figures and verdicts. With --runs, results/predictions/NAME.npz gets the dev predictions
of the tables' rows, so that intervals over dev examples can be computed again: for each task an array [runs, examples],
of classes or of float16, and the table, row and seed of each run.
"""

import argparse
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import compute, parquet

from minbert.files import atomic_file
from multitask.evaluation.score_intervals import Answers
from multitask.runs.artefact import without_folders
from scripts.refresh_study_pages import PAGES
from studies.report.preset_results import PresetResults
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


def publish_predictions(runs: PresetResults, file: Path, keys: Collection[str]) -> None:
    """Write the dev predictions of tables whose rows are scored on the same dev sets. Rows may lack tasks."""
    found = [
        ((key, row, str(run.seed)), {task: _compact(of) for task, of in run.answers.items()})
        for key in keys
        for row, of_row in runs.finished_tables[key].runs.items()
        for run in of_row
    ]
    names = dict.fromkeys(task for _, answers in found for task in answers)
    missing = {task: np.zeros_like(next(of[task] for _, of in found if task in of)) for task in names}
    with atomic_file(file) as path, path.open("wb") as out:
        np.savez_compressed(
            out,
            allow_pickle=False,
            runs=np.array([run for run, _ in found]),  # table, row, seed
            **{f"{task}_answered": np.array([task in of for _, of in found]) for task in names},
            **{task: np.stack([of.get(task, missing[task]) for _, of in found]) for task in names},
        )


def _compact(answers: Answers) -> NDArray[Any]:
    """Classes as bytes, other predictions with three digits."""
    return answers.predictions.astype(np.float16 if answers.classes is None else np.uint8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("name")
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--preset", default="small")
    options = parser.parse_args()
    publish(options.report, PAGES / "results" / f"{options.name}.parquet", options.tables)
    if options.runs is not None:
        results = PresetResults.read(options.runs, options.preset)
        publish_predictions(results, PAGES / "results" / "predictions" / f"{options.name}.npz", options.tables)

"""Take tables of a report into docs/studies/results/: `python -m scripts.publish_results REPORT NAME TABLE ...`.

    python -m scripts.publish_results REPORT NAME TABLE ... [--runs RUNS --preset PRESET]

results/NAME.parquet and results/curves/NAME.parquet take these tables from REPORT/results.parquet and
REPORT/curves.parquet, in place of earlier ones, and keep the others. `python -m scripts.refresh_study_pages` then
writes the pages' figures and verdicts. With --runs, results/runs/NAME.tar.xz takes the runs of these tables of a
preset, with their dev predictions and without their models: after `tar -xf NAME.tar.xz -C RUNS`, `experiments run`
computes only what is new, such as more seeds.
"""

import argparse
import shutil
import tarfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow
from pyarrow import compute, parquet

from minbert.files import atomic_file, read_arrays, read_json, write_json
from multitask.runs.artefact import DONE, KEEP, Artefact, without_folders
from scripts.refresh_study_pages import PAGES
from studies.engine.record import Record
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


def publish_runs(folder: Path, preset: str, file: Path, keys: Collection[str]) -> None:
    """Pack the runs of a preset's tables into a tar file, without their models and without the folders of this machine.

    Raises InputError if the preset was never run, or a run is damaged.
    """
    record = Record.read(folder, preset)
    chosen = {table.key: table for table in record.tables if table.key in keys}
    runs = tuple(run for run in record.runs if run.table in chosen)
    record = replace(record, data=without_folders(record.data), tables=tuple(chosen.values()), runs=runs)
    with TemporaryDirectory() as temporary, atomic_file(file) as path:
        record.write(Path(temporary))
        for name in sorted(record.artefacts()):
            _copy_without_model(Artefact(folder / name), Path(temporary, name))
        with tarfile.open(path, "w:xz") as archive:
            archive.add(temporary, ".")


def _copy_without_model(run: Artefact, copy: Path) -> None:
    """A complete run that keeps no model and has its predictions with the digits of float16."""
    run.require_complete()
    shutil.copytree(run.folder, copy, ignore=shutil.ignore_patterns("checkpoints", KEEP, DONE))
    inputs = read_json(copy / "inputs.json", dict)
    inputs["labels"] = {name: without_folders(label) for name, label in inputs.get("labels", {}).items()}
    write_json(copy / "inputs.json", inputs)
    if (copy / "best.json").is_file():
        write_json(copy / "best.json", {})
    if (copy / "predictions.npz").is_file():
        arrays = read_arrays(copy / "predictions.npz")
        for name in [name for name in arrays if name.endswith("_predictions")]:
            arrays[name] = arrays[name].astype(np.float16).astype(arrays[name].dtype)
        np.savez(copy / "predictions.npz", allow_pickle=False, **arrays)
    Artefact(copy).finish(run.seconds)


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
        file = PAGES / "results" / "runs" / f"{options.name}.tar.xz"
        publish_runs(options.runs, options.preset, file, options.tables)

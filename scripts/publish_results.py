"""Take tables of a report into docs/studies/results/: `python -m scripts.publish_results REPORT NAME TABLE ...`.

    python -m scripts.publish_results REPORT NAME TABLE ... [--runs RUNS --preset PRESET]

results/NAME.parquet and results/scores/NAME.parquet take these tables from REPORT/results.parquet and
REPORT/scores.parquet, in place of earlier ones, and keep the others. `python -m scripts.refresh_study_pages` then
writes the pages' figures and verdicts. With --runs, results/runs/NAME.parquet takes the runs of these tables of a
preset, with their dev predictions and without their models: after `python -m scripts.published_runs NAME RUNS` into a
new folder, `experiments run` computes only further seeds of these tables. Other tables whose rows start from these runs
need their models, and so new runs.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from minbert.errors import InputError
from minbert.files import read_arrays, read_text, write_json, write_text
from multitask.base.runs import DONE, Run, without_folders
from multitask.cli.main import exit_code
from multitask.data.contamination import RECORD
from multitask.experiments.grid_frames import SCORES, GridFrames
from multitask.experiments.results_file import Results
from multitask.experiments.table_definitions import PresetRecord
from scripts.published_runs import PUBLISHED, pack, unpack
from scripts.refresh_study_pages import PAGES
from studies.engine.presets import OTHER_SETTINGS


def publish(report: Path, file: Path, keys: Collection[str]) -> None:
    """Write a file of results and the frame of scores. Raises InputError if the report lacks a table."""
    new = [*map(Results.load(report / "results.parquet").table, keys)]
    new_scores = GridFrames.load(report / SCORES).of_tables(keys)
    for place, table in enumerate(new):
        lines = table.lines.assign(**{name: table.lines[name].map(without_folders) for name in ("start", "data")})
        described = replace(table.description, start=without_folders(table.description.start))
        new[place] = replace(table, description=described, lines=lines)
    earlier = Results.load(file).tables if file.is_file() else ()
    Results(tuple({table.description.table: table for table in (*earlier, *new)}.values())).save(file)
    scores = file.parent / "scores" / file.name
    published = GridFrames.load(scores) if scores.is_file() else None
    _united(new_scores, published, file.stem).save_scores(scores)


def _united(new: GridFrames, earlier: GridFrames | None, name: str) -> GridFrames:
    """New tables and earlier ones, which they replace, without what is of this machine alone."""
    start, tables = without_folders(new.record.start), new.record.tables
    runs = tuple(replace(run, start=without_folders(run.start)) for run in new.runs)
    if earlier is not None:
        kept = earlier.of_tables({table.key for table in earlier.record.tables} - {table.key for table in tables})
        tables, runs = (*kept.record.tables, *tables), (*kept.runs, *runs)
    return GridFrames(replace(new.record, start=start, data=name, notes=(), tables=tables, runs=()), runs)


ONE_PAGE = {"compression_level": 19} | dict.fromkeys(("max_rows_per_page", "row_group_size", "data_page_size"), 1 << 26)
"""How answers are published: runs have the same labels, but compression finds that within a page only. Older versions
of pyarrow, which the library supports, lack one of these settings."""


def publish_runs(folder: Path, preset: str, file: Path, keys: Collection[str], **pages: int) -> None:
    """Write the runs of a preset's tables as frames, without their models and without the folders of this machine.

    Other tables that the file has, of the same preset, stay in it. `pages` is for `write_answers`. Raises InputError if
    the preset was never run, a run is damaged, or the file's runs have another start or other data.
    """
    record = _without_folders(PresetRecord.read(folder, preset)).of_tables(keys)
    with TemporaryDirectory() as temporary:
        packed = Path(temporary)
        if file.is_file():
            unpack(file, packed)
            if not PresetRecord.path(packed, preset).is_file():
                raise InputError(f"{file}: has runs of another preset than {preset}; take another name")
            earlier = PresetRecord.read(packed, preset)
            changed = [name for name, value in earlier.inputs.items() if record.inputs.get(name, value) != value]
            if changed:
                raise InputError(f"{file}: has runs of another version of {', '.join(changed)}; take another name")
            if _made_from(earlier) != _made_from(record):
                has, found = (", ".join(_made_from(each)) for each in (earlier, record))
                raise InputError(f"{file}: has runs of {has}, not of {found}; take another name")
            others = earlier.of_tables({table.key for table in earlier.tables} - set(keys))
            record = replace(
                record,
                tables=(*others.tables, *record.tables),
                runs=(*others.runs, *record.runs),
                inputs={**earlier.inputs, **record.inputs},
            )
        for name in record.artefacts(*keys):
            shutil.rmtree(packed / name, ignore_errors=True)
            _copy_without_model(Run(folder / name), packed / name)
        for unneeded in {run.name for run in packed.glob("*/")} - record.artefacts():
            shutil.rmtree(packed / unneeded)
        record.write(packed)
        pack(packed, file, **pages)


def _made_from(record: PresetRecord) -> tuple[str, ...]:
    """Start weights, data, and the notes on settings that are not the preset's own."""
    return record.start, record.data, *(note for note in record.notes if note.startswith(OTHER_SETTINGS))


def _without_folders(record: PresetRecord) -> PresetRecord:
    """A record without the folders of this machine."""
    runs = tuple(replace(run, error=run.error and without_folders(run.error)) for run in record.runs)
    return replace(record, start=without_folders(record.start), data=without_folders(record.data), runs=runs)


def _copy_without_model(run: Run, copy: Path) -> None:
    """A complete run without its model and what that was trained on, and with predictions in the digits of float16."""
    run.require_complete()
    shutil.copytree(run.folder, copy, ignore=shutil.ignore_patterns("checkpoints", RECORD, DONE, "scores.npz"))
    for path in copy.glob("*.json"):  # labels name the data's folder, ensembles those of their members
        text = read_text(path).replace(f"{run.folder.parent}/", "")
        write_text(path, re.sub(r'"/[^"]*/([^"/]*)"', r'"\1"', text))
    if (copy / "best.json").is_file():
        write_json(copy / "best.json", {})
    if (copy / "predictions.npz").is_file():
        arrays: dict[str, Any] = read_arrays(copy / "predictions.npz")
        for name in [name for name in arrays if name.endswith("_predictions")]:
            arrays[name] = arrays[name].astype(np.float16).astype(arrays[name].dtype)
        np.savez(copy / "predictions.npz", **arrays)
    Run(copy).finish(run.seconds)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("name")
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--preset", default="small")
    options = parser.parse_args()
    if options.runs is not None:
        computed = [table.key for table in PresetRecord.read(options.runs, options.preset).tables]
        if missing := [key for key in options.tables if key not in computed]:
            raise InputError(
                f"{options.runs}: the preset {options.preset} has no table {', '.join(missing)}; it has "
                f"{', '.join(computed)}"
            )
    published = Results.load(options.report / "results.parquet")
    for key in options.tables:
        published.table(key)  # refuses before anything is written
    if options.runs is not None:
        publish_runs(options.runs, options.preset, PUBLISHED / f"{options.name}.parquet", options.tables, **ONE_PAGE)
    publish(options.report, PAGES / "results" / f"{options.name}.parquet", options.tables)


if __name__ == "__main__":
    sys.exit(exit_code(main))

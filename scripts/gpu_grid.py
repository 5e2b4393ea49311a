"""Compute tables of a preset without their report, and pack the runs without models.

    python -m scripts.gpu_grid PRESET TABLE,... FILE --data FOLDER [--start MODEL] [--seeds N] [--workers N]
        [--runs RUNS] [--device DEVICE] [--epoch-size N] [--suites-data FOLDER]

FILE becomes the runs as `scripts.publish_results` publishes them, of all rows that are finished, also when the grid is
stopped. The same call goes on. Where the report is to be written, `python -m scripts.published_runs FILE RUNS`
unpacks them, and `multitask report PRESET --runs RUNS` needs no model.
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

from minbert.errors import InputError
from multitask.base.options import Device, RunOptions
from multitask.cli.main import exit_code
from multitask.experiments.engines import local_engine
from multitask.experiments.grid import run_preset
from multitask.experiments.table_definitions import PresetRecord
from scripts.publish_results import publish_runs
from studies.engine.presets import PRESETS, load_preset

NEVER = 1e9  # seconds: stages take less than a minute on a GPU, and their states are large


def main() -> int:
    """Compute and pack; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("tables", type=lambda text: text.split(","))
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--start")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--device", choices=get_args(Device), default="auto")
    parser.add_argument("--epoch-size", type=int)
    parser.add_argument("--suites-data", type=Path)
    given = parser.parse_args()
    for name in ("seeds", "workers", "epoch_size"):
        if (number := getattr(given, name)) is not None and number < 1:
            raise InputError(f"--{name.replace('_', '-')} is {number}; expected at least 1")
    changes = {} if given.epoch_size is None else {"epoch_size": given.epoch_size}
    preset = load_preset(given.preset, given.start, given.data, given.tables, given.suites_data, changes)
    options = RunOptions(device=given.device, runs=given.runs, save_every=NEVER, threads=1)
    try:
        record = run_preset(preset, given.seeds, options, local_engine(given.workers, given.device))
    finally:
        if PresetRecord.path(given.runs, given.preset).is_file():
            publish_runs(given.runs, given.preset, given.file, given.tables)
    for row, run in record.failures:
        print(f"error: {row}, seed {run.seed}: {run.error}", file=sys.stderr)
    return 1 if record.failures else 0


if __name__ == "__main__":
    sys.exit(exit_code(main))

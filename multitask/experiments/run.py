"""Running a preset: its grid computed, its tables recorded, the report, and prediction files of the best models."""

import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.base.options import RunOptions
from multitask.base.runs import Run, locate_model
from multitask.experiments.engines import Engine, Failed
from multitask.experiments.grid import Grid, Outcomes, compute_grid
from multitask.experiments.record import PresetRecord, RecordedRun
from multitask.experiments.table_results import PresetResults
from multitask.experiments.tables import Preset
from multitask.stages.registry import stage_named
from multitask.stages.run_stage import run_stage
from multitask.stages.settings import ENSEMBLE, EnsembleConfig

logger = logging.getLogger("multitask")


def run_preset(preset: Preset, seeds: int, options: RunOptions, engine: Engine) -> PresetRecord:
    """Compute every row with every seed, from 0. What is in the folder of runs already is not computed again.

    Returns the record of these tables, with the errors of failed rows. The record that is written also keeps the tables
    of earlier runs that this run leaves out.

    Raises:
        InputError: the data folder or the start weights are missing.
        Interrupted: a signal asked to stop; the same call resumes.
    """
    check_preset(preset)
    grid = Grid(preset.experiments, seeds, options)
    rows = [(e.table.key, row, seed) for e in preset.experiments for row in e.models for seed in range(seeds)]
    tables = tuple(e.table for e in preset.experiments)
    nothing = PresetRecord(preset.name, preset.start.name, str(preset.data), preset.notes, tables, ())

    def recorded(place: tuple[str, str, int], outcomes: Outcomes) -> RecordedRun:
        """A row and a seed so far. While it is unfinished it has neither scores nor an error."""
        *before, last = [outcomes.get(node) for node in grid.chains[place]]
        run = RecordedRun(*place, tuple(of.folder.name for of in (*before, last) if isinstance(of, Run)))
        if not isinstance(last, Failed):
            return run
        return replace(run, error=last.error, log=last.log.relative_to(options.runs).as_posix())

    def record_so_far(outcomes: Outcomes) -> PresetRecord:
        record = united = replace(nothing, runs=tuple(recorded(place, outcomes) for place in rows))
        with suppress(InputError):  # no earlier record, or none that can be read
            united = record.with_tables_of(PresetRecord.read(options.runs, preset.name), options.runs, preset.order)
        united.write(options.runs)  # after every stage, so that results can be reported while the others run
        return record

    with engine:
        return record_so_far(compute_grid(grid, engine, record_so_far))


def check_preset(preset: Preset) -> None:
    """Raise one error for missing files before the first stage, instead of one error for each row."""
    if preset.data.suffix != ".toml" and not preset.data.is_dir():
        raise InputError(f"{preset.data}: no such folder; pass one with --data, or run `multitask data fetch` first")
    locate_model(preset.start.name, preset.start.revision)
    scored = (of.evaluation(model) for of in preset.experiments for model in of.models.values())
    for stage, config, folder in dict.fromkeys((node.stage, node.config, node.data) for node in scored):
        if check := getattr(stage_named(stage).functions, "check", None):
            check(config, folder)


def write_best_predictions(preset: Preset, results: PresetResults, options: RunOptions, output: Path) -> list[Path]:
    """Write prediction files of the best model of each group of tasks that the preset names, in its tables.

    Returns the files. A group of tasks has none if no run succeeded, or if a file is missing; a warning says so.
    """
    paths: list[Path] = []
    for tasks in preset.predicted:
        if best := results.best_run(tasks, {of.table.key for of in preset.experiments}):
            try:
                files = _predictions(Run(options.runs / best.model), preset.data, options)
            except InputError as error:
                logger.warning("no predictions for %s: %s", ", ".join(tasks), error)
                continue
            for path in files:
                with atomic_file(output / path.name) as temporary:
                    shutil.copyfile(path, temporary)
                paths.append(output / path.name)
    return paths


def _predictions(model: Run, data: Path, options: RunOptions) -> list[Path]:
    """A model's prediction files, which ensembles write: the model is one, or makes one alone. Computed once."""
    if not (model.folder / "predictions").is_dir():
        where = replace(options, name="best")
        model = run_stage(ENSEMBLE, [model.folder], data, EnsembleConfig("average"), where)
    return sorted((model.folder / "predictions").iterdir())

"""Running a preset: its grid computed, its tables recorded, prediction files of the best models."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.inference.prediction_files import write_prediction_files
from multitask.runs.artefact import Artefact, Weights, locate_model, lock_file
from multitask.runs.locks import shared
from multitask.runtime.lazy import function_named
from multitask.runtime.options import RunOptions
from multitask.stages.registry import SCORING, Stage, stage_named
from multitask.stages.run_stage import OpenRun, run_stage
from studies.engine.experiments import Experiment
from studies.engine.grid import Grid, Outcomes, compute_grid
from studies.engine.jobs import Engine, Failed
from studies.engine.presets import NOTES, Preset
from studies.engine.recipes import Node
from studies.engine.record import Record, RecordedRun
from studies.engine.store import GRIDS, Store
from studies.engine.table import MAIN_TASKS, OWN_TASKS
from studies.study import all_experiments

logger = logging.getLogger("multitask")


def run_preset(preset: Preset, seeds: int, options: RunOptions, engine: Engine) -> Record:
    """Compute every row with every seed. What is in the store already is not computed again.

    Args:
        preset: what to run.
        seeds: the number of seeds, from 0. A seed applies to all stages of a row.
        options: where to compute and to write; its name is replaced by the rows' keys.
        engine: computes the stages.

    Returns:
        The record of these tables, with the errors of failed rows. The record that is written also keeps the tables of
        earlier runs that this run leaves out.

    Raises:
        InputError: the data folder or the start weights are missing.
        Interrupted: a signal asked to stop; the same call resumes.
    """
    check_preset(preset, seeds)
    grid, store = Grid.of(preset.experiments, seeds), Store(options)
    order = [experiment.table.key for experiment in all_experiments(preset.recipes)]
    planned = list(_planned_runs(preset.experiments, seeds))
    data, start = str(preset.recipes.data), preset.recipes.start.name
    notes = tuple(NOTES[name] for name in (data, start.lower(), preset.name) if name in NOTES)
    nothing = Record(preset.name, start, data, notes, tuple(e.table for e in preset.experiments), ())

    def record_so_far(outcomes: Outcomes) -> Record:
        record = united = replace(nothing, runs=tuple(run.recorded(outcomes, options.runs) for run in planned))
        with suppress(InputError):  # no earlier record, or none that can be read
            united = record.with_tables_of(Record.read(options.runs, preset.name), options.runs, order)
        united.write(options.runs)  # after every stage, so that results can be reported while the others run
        return record

    with shared(lock_file(options.runs, GRIDS)), engine:
        return record_so_far(compute_grid(grid, store, engine, options, record_so_far))


def check_preset(preset: Preset, seeds: int) -> None:
    """Raise one error for missing files before the first stage, instead of one error for each row."""
    data = preset.recipes.data
    if data.suffix != ".toml" and not data.is_dir():
        remedy = "pass a data folder with --data" if preset.name == "sample" else "run `multitask data fetch` first"
        raise InputError(f"{data}: no such folder; {remedy}")
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: expected at least 1")
    locate_model(preset.recipes.start.name, preset.recipes.start.revision)
    scored = (of.evaluation(model) for of in preset.experiments for model in of.models.values())
    for stage, config, folder in dict.fromkeys((node.stage, node.config, node.data) for node in scored):
        if check := stage_named(stage).check:
            function_named(check)(config, folder)


@dataclass(frozen=True)
class _PlannedRun:
    """A row with a seed, and its stages: parents before children, the one that scores last."""

    table: str
    row: str
    seed: int
    chain: tuple[Node, ...]

    def recorded(self, outcomes: Outcomes, folder: Path) -> RecordedRun:
        """The run so far. An unfinished run has neither scores nor an error."""
        found = [outcomes.get(node) for node in self.chain]
        chain = tuple(run.folder.name for run in found if isinstance(run, Artefact))
        run = RecordedRun(self.table, self.row, self.seed, chain)
        last = found[-1]
        return (
            replace(run, error=last.error, log=last.log.relative_to(folder).as_posix())
            if isinstance(last, Failed)
            else run
        )


def _planned_runs(experiments: Sequence[Experiment], seeds: int) -> Iterator[_PlannedRun]:
    for experiment in experiments:
        for row, seed in product(experiment.models, range(seeds)):
            model = experiment.models[row].seeded(seed)
            yield _PlannedRun(experiment.table.key, row, seed, tuple(experiment.evaluation(model).chain()))


def write_best_predictions(preset: Preset, record: Record, options: RunOptions, output: Path) -> list[Path]:
    """Write prediction files: of the best model of all tasks, and of the best model of the course's reviews.

    Returns:
        The files written. A group of tasks has none if no run succeeded, or if a test file is missing; a warning says
        so.
    """
    paths: list[Path] = []
    for tasks in (record.tasks,) if preset.name == OWN_TASKS else (MAIN_TASKS, ("reviews",)):
        if best := record.best_model(options.runs, tasks):
            try:
                files = _predictions(Artefact(options.runs / best), preset.recipes.data, options)
            except InputError as error:
                logger.warning("no predictions for %s: %s", ", ".join(tasks), error)
                continue
            for path in files:
                with atomic_file(output / path.name) as temporary:
                    shutil.copyfile(path, temporary)
                paths.append(output / path.name)
    return paths


@dataclass(frozen=True)
class PredictionFiles:
    """How prediction files are computed: nothing can be set."""


PREDICT = Stage(
    "predict",
    PredictionFiles,
    "studies.engine.run:predict",
    "multitask.stages.reads:of_predictions",
    computing=SCORING,
)


def predict(models: Sequence[Weights], data: Path, _config: PredictionFiles, run: OpenRun) -> None:
    """Write a model's prediction files into a run's folder."""
    options = run.options
    output = run.folder / "predictions"
    write_prediction_files(Path(models[0].name), data, output, device=options.device, precision=options.precision)


def _predictions(model: Artefact, data: Path, options: RunOptions) -> list[Path]:
    """A model's prediction files, computed once. An ensemble has them already."""
    if (model.folder / "predictions").is_dir():
        return sorted((model.folder / "predictions").iterdir())
    where = replace(options, name="best", keep=False)
    run = run_stage(PREDICT, [model.folder], data, PredictionFiles(), where)
    return sorted((run.folder / "predictions").iterdir())

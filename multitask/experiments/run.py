"""Running a preset: every row trained once for each seed, scored, recorded; prediction files of the best models."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from minbert.errors import InputError
from multitask.artefacts import locate_model
from multitask.config import FinetuneConfig, RunOptions
from multitask.errors import Interrupted, TrainingError
from multitask.experiments.presets import NOTES, Preset
from multitask.experiments.record import Record, RecordedRow, RecordedRun, RecordedTable
from multitask.predict import predict_files
from multitask.stages.evaluate import evaluate_run
from multitask.stages.finetune import finetune

logger = logging.getLogger("multitask")

Runs = Mapping[FinetuneConfig, RecordedRun]


def run_preset(preset: Preset, seeds: int, options: RunOptions) -> Record:
    """Train and score every row with every seed. What is in the store already is not computed again.

    Args:
        preset: what to run.
        seeds: each row is trained with the seeds 0 to this number less one.
        options: where to compute and to write; its name is replaced by the rows' labels.

    Returns:
        The record, which is also in the folder of artefacts. A failed row stands in it with its error.

    Raises:
        InputError: the data folder or the start weights are missing.
        Interrupted: stopped by a signal; the same call goes on from there.
    """
    if not preset.data.is_dir():
        remedy = "run `multitask data fetch` first" if preset.name == "paper" else "pass a data folder with --data"
        raise InputError(f"{preset.data}: no such folder; {remedy}")
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: expected at least 1")
    locate_model(preset.start)  # before the first row, so that missing weights are one error instead of one a row
    labels = {
        replace(row.finetune, seed=seed): row.label
        for table in reversed(preset.tables)  # a row of two tables is called by its label in the first
        for row in table.rows
        for seed in range(seeds)
    }
    order = dict.fromkeys(
        replace(row.finetune, seed=seed) for seed in range(seeds) for table in preset.tables for row in table.rows
    )
    runs: dict[FinetuneConfig, RecordedRun] = {}
    record = _record(preset, seeds, runs)
    for number, config in enumerate(order, start=1):
        logger.info("[%d/%d] %s, seed %d", number, len(order), labels[config], config.seed)
        name = re.sub(r"\W+", "-", labels[config].lower()).strip("-")
        runs[config] = _run(preset, config, replace(options, name=name))
        record = _record(preset, seeds, runs)
        record.write(options.runs)  # after every row: what is there can be reported while the rest runs
    return record


def _run(preset: Preset, config: FinetuneConfig, options: RunOptions) -> RecordedRun:
    try:
        training = finetune(preset.start, preset.data, config, options)
        evaluation = evaluate_run(training, preset.data, options)
    except Interrupted:
        raise
    except Exception as error:  # one row must not take the others with it, whatever it died of
        expected = isinstance(error, InputError | TrainingError)
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        logger.error("failed: %s", message, exc_info=not expected)
        return RecordedRun(config.seed, error=message)
    return RecordedRun(config.seed, training.folder.name, evaluation.folder.name)


def _record(preset: Preset, seeds: int, runs: Runs) -> Record:
    def recorded(config: FinetuneConfig) -> tuple[RecordedRun, ...]:
        configs = [replace(config, seed=seed) for seed in range(seeds)]
        return tuple(runs[config] for config in configs if config in runs)

    return Record(
        preset.name,
        preset.start,
        str(preset.data),
        tuple(NOTES[name] for name in (str(preset.data), preset.start.lower()) if name in NOTES),
        tuple(
            RecordedTable(
                table.title, table.note, tuple(RecordedRow(row.label, recorded(row.finetune)) for row in table.rows)
            )
            for table in preset.tables
        ),
    )


def write_best_predictions(preset: Preset, record: Record, options: RunOptions, output: Path) -> list[Path]:
    """Write the course's prediction files: of the best model of all three tasks, and of the reviews' best.

    Returns:
        The files written; none for a group of tasks of which no run succeeded, or whose test file is missing (a
        warning says so: the scores stand without it).
    """
    paths = []
    for tasks in (("sentiment", "paraphrase", "similarity"), ("reviews",)):
        if best := record.best_training(options.runs, tasks):
            model = options.runs / best
            try:
                paths += predict_files(model, preset.data, output, device=options.device, precision=options.precision)
            except InputError as error:
                logger.warning("no predictions for %s: %s", ", ".join(tasks), error)
    return paths

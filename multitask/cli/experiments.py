"""`multitask experiments`: run and plan tables of trainings, and look after the runs that they rest on."""

import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, settings
from multitask.base.options import MAX_THREADS, Computing, RunOptions
from multitask.cli.arguments import POSITIONAL, TRAIN, Command, Group
from multitask.cli.train import TASKS_FILE
from multitask.experiments.table_definitions import Preset
from multitask.stages.settings import FinetuneConfig

if TYPE_CHECKING:
    from multitask.experiments.compare_rows import PresetResults

MAIN_SCHEDULERS = ("average", "batch_round_robin", "proportional", "annealed", "uncertainty", "pcgrad")
# Only the leading models of a table are scored.
TABLE_SETTINGS = FinetuneConfig(keep_task_bests=False, new_heads=True)


@settings
class Tables:
    """Which tables, from what, and where."""

    refused: ClassVar = {
        "untrained": "is not for a table; with --tasks-file it takes --tasks",
        "scheduler": "is not for a table; with --tasks-file it takes --schedulers",
        "seed": "is not for a table; it takes --seeds",
        "new_heads": "is not for a table, whose rows begin all heads anew",
        # Rows that train other tasks would hold out other rows.
        "held_out": "is not for a table, whose rows are compared on each task's dev set",
    }

    tasks_file: Path | None = field(default=None, metadata={"help": TASKS_FILE})
    schedulers: tuple[str, ...] = MAIN_SCHEDULERS
    """For --tasks-file: a row for all tasks together under each of these schedulers; `all`: every installed one."""
    start: str | None = None
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased. Default:
    all-minilm-l6-v2."""
    seeds: Count = 1
    """Number of seeds, from 0. Every row is computed with each, along its whole chain of stages."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    """Threads of each new training on a processor, on every machine. Another number rounds sums differently."""
    computing: Computing = field(default_factory=Computing)
    finetune: FinetuneConfig = TABLE_SETTINGS
    """For --tasks-file: settings of all rows."""

    def load(self) -> Preset:
        """The tasks file's table. Raises InputError if it is missing."""
        from multitask.experiments.own_tasks_table import tasks_preset

        if self.tasks_file is None:
            raise InputError("expected --tasks-file FILE")
        return tasks_preset(self.tasks_file, self.start or "all-minilm-l6-v2", self.finetune, self.schedulers)


@settings
class RunTables(Tables):
    """Compute the table of a tasks file: each task alone and all together under several schedulers; write the report.

    Stages that were computed before are not computed again.
    """

    engine: Literal["local", "ray"] = "local"
    """This machine, or a Ray cluster with a shared folder: the one that `ray start` began, otherwise a new one."""
    workers: Count | None = None
    """Processes that compute at once on this machine. Default: one for each GPU; without GPUs, as many as the cores
    have room for with --threads, at most eight."""
    report: Path = Path("report")
    """Folder of the report."""
    predictions: Path | None = None
    """Folder of the best run's prediction files. Default: predictions in the report's folder."""
    save_every: AtLeastZero = 120.0
    """Seconds between saved states: the most that a kill can cost."""


def run_tables(options: RunTables, render: "Callable[[PresetResults, Path], Path] | None" = None) -> int:
    """Compute tables; print the report's path and the failures. Returns 1 if a row failed.

    `render` writes the report from results into a folder, and returns its page.
    """
    from multitask.experiments.engines import Ray, local_engine
    from multitask.experiments.grid import run_preset, write_best_predictions
    from multitask.experiments.report_page import report_of, results_in
    from multitask.experiments.show_runs import presented

    if options.engine == "ray" and options.workers is not None:
        raise InputError("--workers is for --engine local; a Ray cluster computes on all its machines")
    preset, where = options.load(), options.computing
    running = RunOptions(
        where.device, where.precision, options.runs, save_every=options.save_every, threads=options.threads
    )
    engine = Ray(running) if options.engine == "ray" else local_engine(options.workers, where.device, options.threads)
    record = run_preset(preset, options.seeds, running, engine)
    results = results_in(options.runs, preset.name, options.report)
    page = (render or report_of)(results, options.report)
    predictions = options.predictions or options.report / "predictions"  # `predict` writes into ./predictions
    for path in write_best_predictions(preset, results, running, predictions):
        print(path)
    print(f"report: {page.resolve()}")
    if best := results.best_run(record.tasks, {table.key for table in record.tables}, kept=True):
        print("\n".join(presented(results, best)))
    if preset.next_step:
        print(preset.next_step)
    failures = [(f"{label}, seed {run.seed}: {run.error}", run.log or "") for label, run in record.failures]
    for failure, log in dict.fromkeys(failures):  # tables share rows
        print(f"error: {failure} ({options.runs / log})", file=sys.stderr)
    return 1 if record.failures else 0


@settings
class PlanTables(Tables):
    """Show the stages of a table, how many rows share each and which are computed already."""


def plan_tables(options: PlanTables) -> None:
    """Print the plan."""
    from multitask.data.markup import aligned
    from multitask.experiments.grid import Grid, check_preset, plan

    computing, preset = options.computing, options.load()
    running = RunOptions(computing.device, computing.precision, options.runs, threads=options.threads)
    check_preset(preset)
    *stages, [total] = plan(Grid(preset.experiments, options.seeds, running))
    print(aligned(stages, left=2), total, sep="\n")


@settings
class _Runs:
    runs: Path = field(default=Path("runs"), kw_only=True)
    """Folder of all runs."""


@settings
class ListArtefacts(_Runs):
    """List all runs with size, date, and the presets whose tables need each; the others can be deleted by hand."""


def list_artefacts(options: ListArtefacts) -> None:
    """Print the list."""
    from multitask.experiments.show_runs import run_list

    print(run_list(options.runs))


@settings
class ShowArtefact(_Runs):
    """Show what a run was made from, and its scores in training; or compare several runs.

    For several runs it shows the settings that differ, the best scores, the times, and each run's differences to the
    first one on the same dev rows; runs without predictions are evaluated for that.
    """

    named: tuple[str, ...] = field(default=("last",), metadata=POSITIONAL)
    """Runs: their names, their keys (the ends of the names), or `last` for the latest run with a model."""


def show_artefact(options: ShowArtefact) -> None:
    """Print the run's records and scores, or compare runs."""
    from multitask.base.runs import last_run
    from multitask.experiments.show_runs import comparison, find_entry, run_page

    found = [find_entry(options.runs, last_run(options.runs).name if n == "last" else n) for n in options.named]
    print(run_page(found[0]) if len(found) == 1 else comparison([entry.artefact for entry in found]))


COMMON = (
    *("tasks_file", "start", "schedulers", "epochs", "learning_rate", "head_learning_rate"),
    *("seeds", "runs", "device"),
)
COMMANDS = (
    Command("run", RunTables, run_tables, common=(*COMMON, "engine", "workers", "report")),
    Command("plan", PlanTables, plan_tables, common=COMMON),
    Command("list", ListArtefacts, list_artefacts),
    Command("show", ShowArtefact, show_artefact),
)
COMMAND = Group(
    "experiments", "Tables of trainings: run and plan them, and look after the runs that they rest on.", COMMANDS, TRAIN
)

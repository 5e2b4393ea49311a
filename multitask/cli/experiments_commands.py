"""`multitask experiments`: run and plan tables of trainings, and look after the runs that they rest on."""

from dataclasses import field
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, settings
from multitask.base.options import MAX_THREADS, Computing
from multitask.cli.arguments import POSITIONAL, TRAIN, Command, Group
from multitask.cli.stage_commands import TASKS_FILE
from multitask.experiments.tables import Preset
from multitask.stages.settings import FinetuneConfig

SCHEDULERS = ("average", "batch_round_robin", "proportional", "annealed", "uncertainty", "pcgrad")
# Only the leading models of a table are scored.
SETTINGS = FinetuneConfig(keep_task_bests=False)


@settings
class Tables:
    """Which tables, from what, and where."""

    tasks_file: Path | None = field(default=None, metadata={"help": TASKS_FILE})
    schedulers: tuple[str, ...] = SCHEDULERS
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
    finetune: FinetuneConfig = SETTINGS
    """For --tasks-file: settings of all rows."""

    def load(self) -> Preset:
        """The tasks file's table. Raises InputError if it is missing, or for a setting that rows differ in."""
        if self.tasks_file is None:
            raise InputError("expected --tasks-file FILE")
        for name in ("untrained", "scheduler", "seed"):
            if getattr(self.finetune, name) != getattr(SETTINGS, name):
                raise InputError(f"{name} is not for a table; it takes --tasks, --schedulers and --seeds")
        tasks_preset = resolve_name("multitask.experiments.own_tasks:tasks_preset")  # torch
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
    """Folder of the best models' prediction files. Default: predictions in the report's folder."""
    save_every: AtLeastZero = 120.0
    """Seconds between saved states: the most that a kill can cost."""


@settings
class PlanTables(Tables):
    """Show the stages of a table, how many rows share each and which are computed already."""


@settings
class _Runs:
    runs: Path = field(default=Path("runs"), kw_only=True)
    """Folder of all runs."""


@settings
class ListArtefacts(_Runs):
    """List all runs with size, date, and the presets whose tables need each. Other folders may be deleted by hand."""


@settings
class ShowArtefact(_Runs):
    """Show what a run was made from, and its scores after each epoch; or compare several runs.

    For several runs it shows the settings that differ, the best scores, the times, and each run's differences to the
    first one on the same dev rows; runs without predictions are evaluated for that.
    """

    named: tuple[str, ...] = field(default=("last",), metadata=POSITIONAL)
    """Runs: their names, their keys (the ends of the names), or `last` for the latest run with a model."""


COMMON = (
    *("tasks_file", "start", "schedulers", "epochs", "learning_rate", "head_learning_rate"),
    *("seeds", "runs", "device"),
)
COMMANDS = (
    Command("run", RunTables, "multitask.cli.experiments:run_tables", common=(*COMMON, "engine", "workers", "report")),
    Command("plan", PlanTables, "multitask.cli.experiments:plan_tables", common=COMMON),
    Command("list", ListArtefacts, "multitask.cli.experiments:list_artefacts"),
    Command("show", ShowArtefact, "multitask.cli.experiments:show_artefact"),
)
COMMAND = Group(
    "experiments",
    "Tables of trainings: run and plan them, and look after the runs that they rest on.",
    COMMANDS,
    TRAIN,
)

"""`multitask experiments`: run and plan tables, and look after the runs that they rest on."""

from dataclasses import field
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Literal, get_args

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import AtLeastZero, Count, settings
from multitask.base.options import MAX_THREADS, Computing
from multitask.cli.arguments import POSITIONAL, STUDIES, Command, Group
from multitask.cli.stage_commands import TASKS_FILE
from multitask.stages.settings import FinetuneConfig
from multitask.training.settings import SchedulerConfig
from studies.engine.presets import Preset, PresetName, load_preset

SCHEDULERS = ("average", "batch_round_robin", "proportional", "annealed", "uncertainty", "pcgrad")
# Rows of one table make steps of the same scale, and only their leading models are scored.
SETTINGS = FinetuneConfig(keep_task_bests=False, scheduling=SchedulerConfig(reduction="mean"))


@settings
class Tables:
    """Which tables, from what, and where."""

    preset: PresetName | None = field(default=None, metadata=POSITIONAL)
    """`sample`: the bundled data, minutes on a processor; `small`: real data, sub-sampled for a processor; `best`: the
    best recipe on real data with phrases; `best-base`: that for plain BERT; `paper`: real data with the report's
    settings; `paradigm`, `paradigm-roberta`: the tables of losses with the settings of their paper. Leave it out with
    --tasks-file."""
    tasks_file: Path | None = field(default=None, metadata={"help": TASKS_FILE})
    schedulers: tuple[str, ...] = SCHEDULERS
    """For --tasks-file: a row for all tasks together under each of these schedulers; `all`: every installed one."""
    start: str | None = None
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased. Default: the
    preset's."""
    data: Path | None = None
    """Folder with the tasks' files. Default: the preset's."""
    suites_data: Path | None = None
    """SentEval's data folder. Default: the preset's, data/senteval."""
    tables: str | None = None
    """Compute only these tables, e.g. `2,7,figure2`. Default: the preset's."""
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
        """The preset, or the tasks file's table.

        Raises:
            InputError: neither or both are asked for, an option that is for the other one, or an unknown table.
        """
        if self.tasks_file is not None:
            return self._own_tasks(self.tasks_file)
        if self.preset is None:
            raise InputError(f"expected a preset ({', '.join(get_args(PresetName))}) or --tasks-file FILE")
        if (self.finetune, self.schedulers) != (SETTINGS, SCHEDULERS):
            raise InputError("--schedulers and settings of finetune are for --tasks-file; presets have their own")
        keys = None if self.tables is None else self.tables.split(",")
        return load_preset(self.preset, self.start, self.data, keys, self.suites_data)

    def _own_tasks(self, tasks_file: Path) -> Preset:
        for name in ("preset", "suites_data", "tables"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} and --tasks-file cannot be given together; leave one out")
        for name in ("untrained", "scheduler", "seed"):
            if getattr(self.finetune, name) != getattr(SETTINGS, name):
                raise InputError(f"{name} is not for a table; it takes --tasks, --schedulers and --seeds")
        return resolve_name("studies.engine.tasks_table:tasks_preset")(
            tasks_file, self.start, self.finetune, self.schedulers
        )


@settings
class RunTables(Tables):
    """Compute a preset's tables, or the table of a tasks file, and write the report.

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
    """Show a preset's stages, how many rows share each and which are computed already."""


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
    *("tasks_file", "schedulers", "epochs", "learning_rate", "head_learning_rate"),
    *("start", "data", "suites_data", "tables", "seeds", "runs", "device"),
)
COMMAND = Group(
    "experiments",
    "Tables of the papers: run and plan them, and look after the runs that they rest on.",
    (
        Command("run", RunTables, "studies.engine.actions:run_tables", common=(*COMMON, "engine", "workers", "report")),
        Command("plan", PlanTables, "studies.engine.actions:plan_tables", common=COMMON),
        Command("list", ListArtefacts, "studies.engine.actions:list_artefacts"),
        Command("show", ShowArtefact, "studies.engine.actions:show_artefact"),
    ),
    STUDIES,
)

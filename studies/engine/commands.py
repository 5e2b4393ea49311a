"""`multitask experiments` with the presets of the studies."""

from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.cli import experiments
from multitask.cli.arguments import POSITIONAL, Command, Group
from multitask.cli.experiments import MAIN_SCHEDULERS, TABLE_SETTINGS, PlanTables, RunTables, Tables, run_tables
from multitask.experiments.table_definitions import Preset
from multitask.stages.settings import FinetuneConfig
from studies.engine.presets import STUDIES, PresetName, load_preset


@settings
class _Sized(FinetuneConfig):
    """Fine-tuning, for --tasks-file; a preset takes --epochs and --epoch-size only."""

    epochs: Count | None = None  # type: ignore[assignment]  # not given; a tasks file then takes the usual number
    """Number of epochs. Default: 3 with --tasks-file; otherwise the preset's. Pre-trainings have those of their
    tables."""
    epoch_size: Count | None = None
    """Examples of each task in an epoch. Default: the size of the smallest task's training set; otherwise the preset's.
    With a preset also of each source of a pre-training."""


_SIZED = _Sized(keep_task_bests=TABLE_SETTINGS.keep_task_bests, new_heads=TABLE_SETTINGS.new_heads)


@settings
class _Presets(Tables):
    preset: PresetName | None = field(default=None, metadata=POSITIONAL)
    """`sample`: the bundled data, minutes on a processor; `small`: real data, sub-sampled for a processor; `medium`: a
    thousand steps of each fine-tuning; `best`: the best recipe on real data with phrases; `best-base`: the best recipe
    for plain BERT; `paper`: real data with the report's settings; `paradigm`, `paradigm-roberta`: the tables of losses
    with the settings of their paper. Leave it out with --tasks-file."""
    start: str | None = None
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased. Default: the
    preset's."""
    data: Path | None = None
    """Folder with the tasks' files. Default: the preset's."""
    suites_data: Path | None = None
    """SentEval's data folder. Default: the preset's, data/senteval."""
    tables: str | None = None
    """Compute only these tables, e.g. `2,7,figure2`. Default: the preset's."""
    negative_pairs: Literal["bounded", "literal", "left_out"] | None = None
    """What to do with Quora pairs of label 0: push them apart until they are unlike (`bounded`), without a bound as the
    report does (`literal`, for infonce and mnrl), or leave them out. Default: the preset's, which is `literal` for
    `paper` and `bounded` for `small`."""
    finetune: _Sized = _SIZED
    """For --tasks-file: settings of all rows. Presets take epochs and epoch_size alone."""

    def load(self) -> Preset:
        """The preset, or the tasks file's table.

        Raises InputError if neither or both are asked for, and for an option that is for the other one or an unknown
        table.
        """
        if self.tasks_file is not None:
            for name in ("preset", "suites_data", "tables", "negative_pairs"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} and --tasks-file cannot be given together; leave one out")
            given = vars(self.finetune) | {"epochs": self.finetune.epochs or TABLE_SETTINGS.epochs}
            return Tables(self.tasks_file, self.schedulers, self.start, finetune=FinetuneConfig(**given)).load()
        if self.preset is None:
            raise InputError(f"expected a preset ({', '.join(get_args(PresetName))}) or --tasks-file FILE")
        epochs, epoch_size = self.finetune.epochs, self.finetune.epoch_size
        if (replace(_SIZED, epochs=epochs, epoch_size=epoch_size), MAIN_SCHEDULERS) != (self.finetune, self.schedulers):
            raise InputError(
                "--schedulers and settings of finetune are for --tasks-file; presets have their own and take --epochs, "
                "--epoch-size and --negative-pairs"
            )
        changes: dict[str, Any] = {"epochs": epochs, "epoch_size": epoch_size, "negative_pairs": self.negative_pairs}
        changes = {name: value for name, value in changes.items() if value is not None}
        keys = None if self.tables is None else self.tables.split(",")
        return load_preset(self.preset, self.start, self.data, keys, self.suites_data, changes)


@settings
class RunPresets(_Presets, RunTables):
    """Compute a preset's tables, or the table of a tasks file, and write the report.

    Stages that were computed before are not computed again.
    """


@settings
class PlanPresets(_Presets, PlanTables):
    """Show a preset's stages, how many rows share each and which are computed already."""


def run_presets(options: RunPresets) -> int:
    """Compute the tables, and write the report with the studies' page."""
    from studies.report.study_page import render_study

    return run_tables(options, render_study)


def _with_presets(command: Command, options: type[Any], run: Callable[[Any], int | None]) -> Command:
    return replace(command, options=options, run=run, common=(*command.common, "data", "suites_data", "tables"))


_RUN, _PLAN, *_OTHERS = experiments.COMMANDS
COMMAND = Group(
    "experiments",
    "Tables of the papers: run and plan them, and look after the runs that they rest on.",
    (_with_presets(_RUN, RunPresets, run_presets), _with_presets(_PLAN, PlanPresets, _PLAN.run), *_OTHERS),
    STUDIES,
)

"""`multitask experiments` with the presets of the studies."""

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, get_args

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli import experiments_commands as commands
from multitask.cli.arguments import POSITIONAL, Command, Group
from multitask.cli.experiments_commands import SCHEDULERS, SETTINGS, PlanTables, RunTables, Tables
from multitask.experiments.tables import Preset
from studies.engine.presets import STUDIES, PresetName, load_preset


@settings
class _Presets(Tables):
    preset: PresetName | None = field(default=None, metadata=POSITIONAL)
    """`sample`: the bundled data, minutes on a processor; `small`: real data, sub-sampled for a processor; `best`: the
    best recipe on real data with phrases; `best-base`: that for plain BERT; `paper`: real data with the report's
    settings; `paradigm`, `paradigm-roberta`: the tables of losses with the settings of their paper. Leave it out with
    --tasks-file."""
    start: str | None = None
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased. Default: the
    preset's."""
    data: Path | None = None
    """Folder with the tasks' files. Default: the preset's."""
    suites_data: Path | None = None
    """SentEval's data folder. Default: the preset's, data/senteval."""
    tables: str | None = None
    """Compute only these tables, e.g. `2,7,figure2`. Default: the preset's."""

    def load(self) -> Preset:
        """The preset, or the tasks file's table.

        Raises:
            InputError: neither or both are asked for, an option that is for the other one, or an unknown table.
        """
        if self.tasks_file is not None:
            for name in ("preset", "suites_data", "tables"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} and --tasks-file cannot be given together; leave one out")
            return super().load()
        if self.preset is None:
            raise InputError(f"expected a preset ({', '.join(get_args(PresetName))}) or --tasks-file FILE")
        if (self.finetune, self.schedulers) != (SETTINGS, SCHEDULERS):
            raise InputError("--schedulers and settings of finetune are for --tasks-file; presets have their own")
        keys = None if self.tables is None else self.tables.split(",")
        return load_preset(self.preset, self.start, self.data, keys, self.suites_data)


@settings
class RunPresets(_Presets, RunTables):
    """Compute a preset's tables, or the table of a tasks file, and write the report.

    Stages that were computed before are not computed again.
    """


@settings
class PlanPresets(_Presets, PlanTables):
    """Show a preset's stages, how many rows share each and which are computed already."""


def _with_presets(command: Command, options: type[Any], run: str | None = None) -> Command:
    common: Sequence[str] = (*command.common, "data", "suites_data", "tables")
    return replace(command, options=options, run=run or command.run, common=tuple(common))


_RUN, _PLAN, *_OTHERS = commands.COMMANDS
COMMAND = Group(
    "experiments",
    "Tables of the papers: run and plan them, and look after the runs that they rest on.",
    (
        _with_presets(_RUN, RunPresets, "studies.report.study_page:run_tables"),
        _with_presets(_PLAN, PlanPresets),
        *_OTHERS,
    ),
    STUDIES,
)

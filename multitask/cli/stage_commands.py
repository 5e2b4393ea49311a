"""The commands of stages: the options are the stage's models, its data, its configuration and `RunOptions`."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import Any

from minbert.settings import settings
from multitask.cli.command import TRAIN, Command
from multitask.cli.options import options_of
from multitask.runtime.lazy import function_named
from multitask.runtime.options import RunOptions
from multitask.stages.registry import Stage, stages

REVISION = "Revision of a hub id: a branch, tag or commit."
DATA = "Folder with the course's files and other training sentences."
TASKS_FILE = "Tasks file, which declares tasks of your own. Further training sentences come from its folder."


@cache
def stage_commands() -> dict[str, Command]:
    """The commands of all stages that are commands, by name."""
    return {name: stage_command(stage) for name, stage in sorted(stages().items()) if stage.command}


def stage_command(stage: Stage) -> Command:
    """The command of a stage."""
    declared: dict[str, tuple[Any, Any]] = {}
    for model in stage.inputs:
        kind = str | None if model.default is None else str
        declared[model.option] = kind, field(default=model.default, metadata={"help": model.help})
        declared[model.revision] = str | None, field(default=None, metadata={"help": REVISION})
    declared["data"] = Path, field(default=Path("data/sample"), metadata={"help": DATA})
    declared["tasks_file"] = Path | None, field(default=None, metadata={"help": TASKS_FILE})
    declared["config"] = stage.config, field(default_factory=stage.config)
    declared["options"] = RunOptions, field(default_factory=RunOptions)
    defaults = {name: default for name, (_, default) in declared.items()}
    kinds = {name: kind for name, (kind, _) in declared.items()}
    about = {"__doc__": stage.help, "stage": stage, "__annotations__": kinds}
    options: type[Any] = settings(type(stage.name, (), {**about, **defaults}))
    always = [model.option for model in stage.inputs if model.default is not None]
    common = (*always, "data", "tasks_file", *stage.common, "runs", "device")
    return Command(
        stage.name,
        options,
        "multitask.cli.train:train",
        TRAIN,
        common,
        stage.distributed,
        stage=stage,
        defaults=partial(_defaults, stage.defaults) if stage.defaults else None,
    )


def _defaults(of_data: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a stage's options for the data that the values name."""
    config = function_named(of_data)(Path(values["tasks_file"] or values["data"]))
    return {option.name: option.default for option in options_of(type(config), values=config)}

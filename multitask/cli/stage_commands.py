"""The commands of stages: the options are the stage's models, its data, its configuration and `RunOptions`."""

from dataclasses import MISSING, field
from functools import cache
from pathlib import Path
from typing import Any

from minbert.settings import settings
from multitask.base.options import RunOptions
from multitask.cli.arguments import TRAIN, Command
from multitask.cli.commands import Data
from multitask.stages.registry import Stage, stages

MODELS = "The models: runs or model folders. Those named first win ties."
REVISION = "Revision of a hub id: a branch, tag or commit."
DATA = "Folder with the course's files and other training sentences."
TASKS_FILE = "Tasks file, which declares tasks of your own. Further training sentences come from its folder."


@cache
def stage_commands() -> dict[str, Command]:
    """The commands of all stages that are commands, by name."""
    return {name: stage_command(stage) for name, stage in sorted(stages().items()) if stage.command}


def stage_command(stage: Stage) -> Command:
    """The command of a stage."""
    kinds: dict[str, Any] = {}
    defaults: dict[str, Any] = {}

    def declare(name: str, kind: Any, default: Any, text: str) -> None:
        kinds[name], defaults[name] = kind, field(default=default, metadata={"help": text})

    inputs = sorted(stage.inputs, key=lambda model: not model.several)  # required fields come first
    for model in inputs:
        if model.several:
            declare(model.option, tuple[str, ...], MISSING, model.help)
        else:
            declare(model.option, str | None if model.default is None else str, model.default, model.help)
            declare(model.revision, str | None, None, REVISION)
    if stage.inputs:
        declare("data", Path, Path("data/sample"), DATA)
        declare("tasks_file", Path | None, None, TASKS_FILE)
    else:
        declare("model", tuple[str, ...], MISSING, MODELS)
    kinds |= {"config": stage.config, "options": RunOptions}
    defaults |= {"config": field(default_factory=stage.config), "options": field(default_factory=RunOptions)}
    about = {"__doc__": stage.help, "stage": stage, "__annotations__": kinds}
    always = [model.option for model in inputs if model.several or model.default is not None] or ["model"]
    return Command(
        stage.name,
        settings(type(stage.name, () if stage.inputs else (Data,), {**about, **defaults})),
        "multitask.cli.train:train",
        TRAIN,
        (*always, "data", "tasks_file", *stage.common, "runs", "device"),
        stage=stage,
    )

"""The commands of stages: the options are the stage's models, its data, its configuration and `RunOptions`."""

from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from multitask.cli.command import TRAIN, Command
from multitask.cli.options import options_of
from multitask.runs.artefact import Weights
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
    declared: list[tuple[str, Any, Any]] = []
    for model in stage.inputs:
        kind = str | None if model.default is None else str
        declared.append((model.option, kind, field(default=model.default, metadata={"help": model.help})))
        declared.append((model.revision, str | None, field(default=None, metadata={"help": REVISION})))
    declared.append(("data", Path, field(default=Path("data/sample"), metadata={"help": DATA})))
    declared.append(("tasks_file", Path | None, field(default=None, metadata={"help": TASKS_FILE})))
    declared.append(("config", stage.config, field(default_factory=stage.config)))
    declared.append(("options", RunOptions, field(default_factory=RunOptions)))
    options = make_dataclass(stage.name, declared, frozen=True, namespace={"__doc__": stage.run.__doc__})
    always = [model.option for model in stage.inputs if model.default is not None]
    common = (*always, "data", "tasks_file", *stage.common, "runs", "device")
    defaults = partial(_defaults, stage.defaults) if stage.defaults else None
    return Command(stage.name, options, partial(_run, stage), TRAIN, common, stage.distributed, stage, defaults)


def _defaults(of_data: Callable[[Path], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a stage's options for the data that the values name."""
    config = of_data(values["tasks_file"] or values["data"])
    return {option.name: option.default for option in options_of(type(config), values=config)}


def _run(stage: Stage, given: Any) -> int:
    from multitask.runtime import distributed

    models = [(getattr(given, model.option), getattr(given, model.revision)) for model in stage.inputs]
    weights = [Weights(name, revision) for name, revision in models if name is not None]
    artefact = stage.run(weights, given.tasks_file or given.data, given.config, given.options)
    if distributed.is_first():  # once however many ranks there are
        if stage.summary is not None:
            print(stage.summary(artefact))
        print(artefact.folder)
    return 0

"""The register of stages: what configures each, what it computes, and whether a seed changes it.

A stage is a module or folder of this package, or an entry point of the group `multitask.stages`, that calls `register`
when it is imported. The command line, grids and plans know stages from here alone, so a new stage edits nothing else.
A module that registers a stage must not import torch, because `--help` imports all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from minbert.errors import InputError
from multitask.runs.artefact import Artefact, Weights
from multitask.runs.run_hash import RunKey
from multitask.runtime.options import RunOptions

ENTRY_POINTS = "multitask.stages"


@dataclass(frozen=True)
class ModelInput:
    """A model that a stage starts from.

    Args:
        option: the command line's option, with `_` for `-`.
        revision: the option for its revision, if it is a hub id.
        help: what it is for.
        default: a model's name; None: the stage can do without this model.
    """

    option: str
    revision: str
    help: str
    default: str | None = None


START = ModelInput(
    "start",
    "revision",
    "Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased.",
    "all-minilm-l6-v2",
)

Run = Callable[[Sequence[Weights], Path, Any, RunOptions], Artefact]
"""From models, data folder, configuration and options to the run's artefact."""


def with_seed(config: Any, seed: int) -> Any:
    """A configuration with another seed in its field `seed`."""
    return replace(config, seed=seed)


@dataclass(frozen=True)
class Stage:
    """One stage.

    Args:
        name: the stage's name, as in folder names and on the command line.
        config: class of its configuration, a frozen dataclass whose fields all have defaults.
        run: computes it, or finds it computed. The docstring is the command's help.
        version: raise it when a default or the computation changes, so that no old run is taken for a new one.
        with_seed: gives a configuration another seed; None where a seed changes nothing.
        inputs: the models that it starts from.
        summary: what the command prints of a finished run.
        command: whether it is a command of its own with the options of `inputs`, configuration and `RunOptions`.
        common: names of the configuration's options that the command's `--help` shows; the rest is in `--help-all`.
        distributed: whether it runs under torchrun.
        files: the files of the data folder that it reads, for a configuration; None: any.
        check: raises InputError where its data folder lacks something, before anything is computed.
        defaults: the configuration that the command begins with, for a data folder; None: the class's own defaults.
        scores: whether its artefact holds scores, so that it needs no evaluation.
        gpu_share: how much of a GPU it uses, for engines that share GPUs.
    """

    name: str
    config: type[Any]
    run: Run
    version: int = 1
    with_seed: Callable[[Any, int], Any] | None = with_seed
    inputs: tuple[ModelInput, ...] = (START,)
    summary: Callable[[Artefact], str] | None = None
    command: bool = True
    common: tuple[str, ...] = ()
    distributed: bool = False
    files: Callable[[Any], list[str]] | None = None
    check: Callable[[Any, Path], None] | None = None
    defaults: Callable[[Path], Any] | None = None
    scores: bool = False
    gpu_share: float = 1.0

    def key(self, config: Any, inputs: Mapping[str, Any]) -> RunKey:
        """What decides the bits of a run of this stage."""
        return RunKey(self.name, self.version, config, inputs)


_REGISTERED: dict[str, Stage] = {}


def register(stage: Stage) -> Stage:
    """Make a stage known."""
    _REGISTERED[stage.name] = stage
    return stage


@cache
def stages() -> dict[str, Stage]:
    """All stages by name."""
    package = __name__.rpartition(".")[0]
    for module in iter_modules(import_module(package).__path__):
        if module.ispkg:
            import_module(f"{package}.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
    return _REGISTERED


def stage_named(name: str) -> Stage:
    """The stage of this name. Raises InputError if there is none."""
    if name not in stages():
        raise InputError(f'unknown stage "{name}"; expected one of: {", ".join(stages())}')
    return stages()[name]

"""The register of stages: what configures each, which function computes it, what decides its bits.

A stage is in a `settings` file, or an entry point of the group `multitask.stages`, that calls `register` when it is
imported. The command line, grids and plans know stages from here alone, so a new stage edits nothing else. A module
that registers a stage must not import torch, because `--help` imports all of them; a stage's functions are found by
their names, in a module that is imported when they are needed:

    compute(models, data, config, run)  writes into the run's folder, given `Weights`, configuration and `OpenRun`
    reads(config, data)                 hashes and declarations of what it reads, as JSON types: a part of the key
    summary(run)                        what the command prints of a finished run
    check(config, data)                 raises InputError where the data lack something, before anything is computed

Only `compute` is required. A configuration whose defaults name tasks has a method `of_declared(tasks)`, which gives it
those that the data declare.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from minbert.errors import InputError

STAGE_ENTRY_POINTS = "multitask.stages"


@dataclass(frozen=True)
class ModelInput:
    """A model that a stage starts from."""

    option: str  # the command line's option, with `_` for `-`
    revision: str  # the option for its revision, if it is a hub id
    help: str
    default: str | None = None  # a model's name; None: the stage can do without this model
    several: bool = False  # any number of runs or model folders, at least one; the last input alone may be several


START = ModelInput(
    "start",
    "revision",
    "Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased.",
    "all-minilm-l6-v2",
)
TRAINING_OPTIONS = ("device", "precision", "attention", "kernels", "threads", "ranks")
SCORING = ("device", "precision", "attention")
"""What of `Runtime.describe` decides the bits of trainings, and of scores."""


def with_seed(config: Any, seed: int) -> Any:
    """A configuration with another seed in its field `seed`."""
    return replace(config, seed=seed)


@dataclass(frozen=True)
class Stage:
    """One stage; `multitask.stages.run_stage` runs it."""

    name: str  # as in folder names and on the command line
    config: type[Any]  # class of its configuration, a frozen dataclass whose fields all have defaults
    help: str = ""
    version: int = 1
    """Raise it when a default or the computation changes, so that no old run is taken for a new one."""
    with_seed: Callable[[Any, int], Any] | None = with_seed
    """Gives a configuration another seed; None where a seed changes nothing."""
    inputs: tuple[ModelInput, ...] = (START,)
    """The models that it starts from; without any it takes as many as it is given, and their data."""
    computing: Sequence[str] = TRAINING_OPTIONS
    """What of `Runtime.describe` decides its bits; the rest is not part of the key."""
    command: bool = True
    """Whether it is a command of its own, with the options of `inputs`, configuration and `RunOptions`."""
    common: tuple[str, ...] = ()
    """The configuration's options that the command's `--help` shows; the rest is in `--help-all`."""
    distributed: bool = False  # whether it runs under torchrun
    scores: bool = False  # whether its artefact holds scores, so that it needs no evaluation
    gpu_share: float = 1.0  # how much of a GPU it uses, for engines that share GPUs
    module: str = ""
    """The module of its functions. Default: the configuration's; of `settings` files, the stage's name beside them."""

    @property
    def functions(self) -> ModuleType:
        """The module of its functions, which may import torch."""
        package, _, own = self.config.__module__.rpartition(".")
        beside = f"{package}.{self.name}" if own.startswith("settings") else self.config.__module__
        return import_module(self.module or beside)


_REGISTERED: dict[str, Stage] = {}


def register(stage: Stage) -> Stage:
    """Make a stage known."""
    _REGISTERED[stage.name] = stage
    return stage


@cache
def stages() -> dict[str, Stage]:
    """All stages by name."""
    for name in ("settings", "settings_of_pretraining", "settings_without_training"):
        import_module(f"multitask.stages.{name}")
    list(plugins(STAGE_ENTRY_POINTS))
    return _REGISTERED


def plugins(group: str, name: str = "") -> Iterator[Any]:
    """What the entry points of a group name, or those with one name.

    One whose module is missing is passed over: `studies` is in a checkout, but not in a wheel.
    """
    for entry in entry_points(group=group):
        if name in ("", entry.name):
            try:
                found = entry.load()
            except ModuleNotFoundError as error:
                if not f"{entry.module}.".startswith(f"{error.name}."):
                    raise  # it is there, and lacks something else
            else:
                yield found


def stage_named(name: str) -> Stage:
    """The stage of this name. Raises InputError if there is none."""
    if name not in stages():
        raise InputError(f'unknown stage "{name}"; expected one of: {", ".join(stages())}')
    return stages()[name]

"""What a command is: its options, and what it does with them.

A module that makes commands must not import torch, because `--help` imports all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multitask.cli.options import FLAGS_TO_DEPTH, Option, options_of
from multitask.stages.registry import Stage

TRAIN, USE, DATA, STUDIES = "Train a model", "Use a model", "Data", "Studies"
"""Headings in the list of all commands."""


@dataclass(frozen=True)
class Command:
    """One command."""

    name: str  # as it is typed
    options: type[Any]  # a settings class: its docstring is the command's help, its fields are the options
    run: str | Callable[[Any], int | None]
    """Carries the command out, given the options; may return the exit code. A function, or `module:function`, which is
    imported when the options have been read."""
    section: str = USE  # heading in the list of all commands
    common: tuple[str, ...] = ()  # names of the options that `--help` shows; empty: all of them
    extra: str = ""  # the optional packages that it needs
    stage: Stage | None = None  # the stage that it runs; `--config` takes its runs

    @property
    def distributed(self) -> bool:
        """Whether it runs under torchrun."""
        return self.stage is not None and self.stage.distributed

    @property
    def models(self) -> set[str]:
        """Names of the options that name models, which may be `last`."""
        return {"model", "compare", *(model.option for model in (self.stage.inputs if self.stage else ()))}

    @property
    def help(self) -> str:
        """What it does."""
        return (self.options.__doc__ or "").strip()

    def declared(self) -> list[Option]:
        """All its options, in order."""
        return list(options_of(self.options))

    def is_flag(self, option: Option) -> bool:
        """Whether an option has a flag; the others are set with `--set` or in a settings file."""
        return len(option.path) <= FLAGS_TO_DEPTH or option.name in self.common

    def general(self) -> list[Option]:
        """The options that are added to every command, and those that explain an option's values."""
        options = self.declared()
        runs = f", or a run of {self.name}" if self.stage else ""
        text = "Explain a value of {}: its formula, source and parameters."
        explained = [o for o in options if hasattr(o.kind, "explain")]
        found = [Option((f"help_{o.name}",), str, None, text.format(o.flag)) for o in explained]
        if not all(map(self.is_flag, options)):
            text = "Settings without a flag of their own, as NAME=VALUE; --help-all lists them."
            found.append(Option(("set",), str, (), text, several=True))
        read = f"Take settings from a TOML file{runs}. Options on the command line override them."
        write = "Write the settings that differ from the defaults to a TOML file."
        return [*found, Option(("config",), Path, None, read), Option(("save_config",), Path, None, write)]


@dataclass(frozen=True)
class Group:
    """Commands under a common name, such as `data check` and `data fetch`."""

    name: str
    help: str
    commands: "tuple[Command | Group, ...]"
    section: str = USE

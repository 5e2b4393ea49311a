"""The command line: finds the command, reads its options, runs it and turns its errors into exit codes.

A command is a module of this package with a `COMMAND`, a stage (see `stage_commands`), or an entry point of the group
`multitask.commands`. Only what the command needs is imported.
"""

import logging
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from minbert.errors import InputError
from multitask.cli.arguments import help_page, parse
from multitask.cli.command import Command, Group
from multitask.cli.completion import completion_script
from multitask.cli.options import build, did_you_mean
from multitask.cli.settings_file import read_settings, write_settings
from multitask.cli.stage_commands import stage_commands
from multitask.runtime.errors import Interrupted, TrainingError

PROG = "multitask"
HELP = {"--help", "-h", "--help-all"}
OWN = ("evaluate", "predict", "ensemble", "embed", "probe", "export", "data")
"""The modules of this package that have a `COMMAND`."""
ENTRY_POINTS = "multitask.commands"

Found = TypeVar("Found", bound=Command | Group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for a run that failed, 2 for wrong input, 128 + n for signal n."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # not every retry: the outcome is one line of ours
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written, a file where a folder should be
        print(f"error: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in HELP:
        print(_overview(PROG, "BERT for several sentence tasks at once.", list(every_command())))
        return 0
    name, *rest = arguments
    if name == "--print-completion":
        print(completion_script(list(every_command()), rest))
        return 0
    command, prog = find_command(name), f"{PROG} {name}"
    if isinstance(command, Group):
        if not rest or rest[0] in HELP:
            print(_overview(prog, command.help, command.commands))
            return 0
        name, *rest = rest
        command, prog = _named(name, {member.name: member for member in command.commands}, prog), f"{prog} {name}"
    return run_command(prog, command, rest)


def run_command(prog: str, command: Command, arguments: Sequence[str]) -> int:
    """Run a command with its arguments, or print its help. Returns the exit code."""
    if asked := HELP.intersection(arguments):
        print(help_page(prog, command, "--help-all" in asked), end="")
        return 0
    if "TORCHELASTIC_RUN_ID" in os.environ and not command.distributed:
        names = [name for name, found in stage_commands().items() if found.distributed]
        raise InputError(f"torchrun is for {', '.join(names[:-1])} and {names[-1]}; run other commands without it")
    options = command.declared()
    given = parse(prog, [*options, *command.general()], arguments)
    for option in options:
        if name := given.pop(f"help_{option.name}", None):
            print(option.kind.explain(name))
            return 0
    file, save_to = given.pop("config", None), given.pop("save_config", None)
    settings = read_settings(file, prog, command.stage, options) if file else {}
    values = {option.name: option.default for option in options} | settings | given
    if missing := [option.flag for option in options if values[option.name] is MISSING]:
        raise InputError(f"{missing[0]} is missing (`{prog} --help` shows the options)")
    with _blaming(file, settings.keys() - given.keys()):
        built = build(command.options, values)
        if save_to and os.environ.get("RANK", "0") == "0":  # torchrun starts one process a rank
            write_settings(save_to, prog, options, values)
        return command.run(built)


@contextmanager
def _blaming(file: Path | None, names: Collection[str]) -> Iterator[None]:
    """Names the settings file in errors about these settings, such as "epochs is 0; expected at least 1"."""
    try:
        yield
    except InputError as error:
        if str(error).partition(" ")[0] not in names:
            raise
        raise InputError(f"{file}: {error}") from None


def find_command(name: str) -> Command | Group:
    """The command of this name. Raises InputError if there is none."""
    if name in OWN:
        return _own(name)
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        return entry.load()
    commands = stage_commands()
    return commands[name] if name in commands else _named(name, {found.name: found for found in every_command()}, PROG)


def every_command() -> Iterator[Command | Group]:
    """All commands."""
    yield from stage_commands().values()
    yield from map(_own, OWN)
    yield from (entry.load() for entry in entry_points(group=ENTRY_POINTS))


def _own(name: str) -> Command | Group:
    return import_module(f"{__package__}.{name}").COMMAND


def _named(name: str, commands: Mapping[str, Found], prog: str) -> Found:
    """The command of this name. Raises InputError if there is none."""
    if name not in commands:
        raise InputError(f"unknown command {name}{did_you_mean(name, commands)} (`{prog} --help` lists all)")
    return commands[name]


def _overview(prog: str, text: str, commands: Sequence[Command | Group]) -> str:
    """The list of commands, under their sections."""
    lines = [f"usage: {prog} COMMAND [options]", "", text]
    sections = dict.fromkeys(command.section for command in commands)
    for section in sections:
        lines += ["", f"{section if len(sections) > 1 else 'Commands'}:"]
        lines += [f"  {found.name:<12}{found.help.splitlines()[0]}" for found in commands if found.section == section]
    return "\n".join([*lines, "", f"`{prog} COMMAND --help` shows a command's options."])

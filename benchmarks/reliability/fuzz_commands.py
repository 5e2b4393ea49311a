"""What `fuzz` gives to the readers of settings files and of command lines; the commands themselves do nothing."""

import contextlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.reliability.fuzz_readers import MADE, Reader, of_file, of_folder
from benchmarks.reliability.mutations import (
    mutated_arguments,
)
from benchmarks.reliability.world import finetune, grid
from minbert.errors import InputError
from multitask.cli import arguments as cli_arguments
from multitask.cli import command as cli_command
from multitask.cli import main as cli_main
from multitask.cli.command import Command, Group
from multitask.cli.main import every_command, find_command, run_command
from multitask.cli.options import Option
from multitask.objectives.config import ObjectiveConfig


@contextlib.contextmanager
def remembered_commands() -> Iterator[None]:
    """Within the block, commands are looked up, and their options and parsers made, once instead of for each case."""
    remembered = (cli_main, "entry_points"), (cli_arguments, "parser_of"), (cli_command, "options_of")
    with contextlib.ExitStack() as stack:
        for module, name in remembered:
            stack.enter_context(patch.object(module, name, _remembered(getattr(module, name))))
        yield


def _remembered(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*given: Any, **named: Any) -> Any:
        found = make(*given, **named)
        return tuple(found) if isinstance(found, Iterator) else found

    return cache(made)


def leaves(commands: Iterable[Command | Group], prog: str = "multitask") -> Iterator[tuple[str, Command]]:
    """All commands, those of groups too, each as it is typed; they do nothing."""
    for command in commands:
        typed = f"{prog} {command.name}"
        if isinstance(command, Group):
            yield from leaves(command.commands, typed)
        else:
            yield typed, replace(command, run=lambda _: 0)


def settings_readers(run: Path) -> Iterator[Reader]:
    """Settings of every command, as TOML and of a run."""
    for prog, command in leaves(every_command()):
        values = {option.name: value for option, value in accepted(prog, command).items()}
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        yield of_file(text.encode(), f"{command.name}.toml", partial(_run_with, prog, command), names="")
        if command.name == "finetune":
            yield from of_folder(run, ("config.json", "inputs.json"), partial(_run_with, prog, command), names="")


def _run_with(prog: str, command: Command, path: Path) -> None:
    run_command(prog, command, ["--config", str(path)])


def accepted(prog: str, command: Command) -> dict[Option, Any]:
    """A value for each option of a command, as far as the command takes them together."""
    path = MADE / "settings.toml"

    def takes(values: dict[Option, Any]) -> bool:
        path.write_text("".join(f"{option.name} = {json.dumps(value)}\n" for option, value in values.items()))
        try:
            _run_with(prog, command, path)
        except InputError:
            return False
        return True

    options = command.declared()
    needed = [{o: _examples_of(o)[kind] for o in options if o.default is MISSING} for kind in range(2)]
    values = next(filter(takes, needed))
    for option in options:
        found = next((value for value in _examples_of(option) if takes({**values, option: value})), None)
        if found is not None and option not in values:
            values[option] = found
    return values


def _examples_of(option: Option) -> list[Any]:
    """Two values that an option may take."""
    if option.choices:
        found: list[Any] = [option.choices[-1], option.choices[0]]
    elif hasattr(option.kind, "parse"):
        found = ["vicreg:weight=0.05", "infonce"]
    else:
        found = {bool: [True, False], int: [3, 100], float: [0.5, 1e-3]}.get(option.kind, ["text", "a.npy"])
    return [[value] for value in found] if option.several else found


def command_line_readers() -> Iterator[Reader]:
    """Command lines of every command, up to the command itself; and texts that name an objective."""
    commands = dict(leaves(every_command()))
    lines = [finetune(), grid(), *COMMAND_LINES]
    for prog, command in commands.items():
        given: list[str] = []
        for option, value in accepted(prog, command).items():
            flags = [] if option.positional else [f"--no-{option.flag[2:]}" if value is False else option.flag]
            given += [
                *flags,
                *(map(str, value) if isinstance(value, list) else [str(value)] * (option.kind is not bool)),
            ]
        lines.append([*prog.split()[1:], *given])
    for line in lines:
        prog, found, rest = find_command(line)
        assert isinstance(found, Command), line
        read = partial(_parse, prog, commands[prog])
        yield Reader("\0".join(rest).encode(), read, _changed_line)
        yield Reader("\0".join(line[:2]).encode(), _find, _changed_line)
    for text in (
        "infonce:temperature=0.07",
        "vicreg:ratio=1.5,weight=0.05",
        "infonce:temperature=0.1,hard_negative_weight=0.5",
    ):
        yield Reader(text.encode(), lambda content: ObjectiveConfig.parse(content.decode("utf-8", "replace")))


def _changed_line(content: bytes, draw: random.Random) -> bytes:
    changed = mutated_arguments(_arguments(content), draw)
    return "\0".join(changed).encode("utf-8", "surrogatepass")


def _parse(prog: str, command: Command, content: bytes) -> None:
    given = _arguments(content)
    if "--save-config" not in content.decode("utf-8", "replace"):  # it would write wherever the argument says
        with contextlib.suppress(SystemExit):
            run_command(prog, command, given)


def _arguments(content: bytes) -> list[str]:
    """As a shell hands them over: bytes that are not UTF-8 are surrogates."""
    return content.decode("utf-8", "surrogateescape").split("\0")


def _find(content: bytes) -> None:
    find_command(_arguments(content))


COMMAND_LINES = (
    ["predict", "--model", "runs/x", "--input", "a.csv", "--output", "b.csv", "--probabilities", "--prefix", "p"],
    ["evaluate", "--model", "runs/x", "--suite", "sts", "--data", "data", "--seed", "3", "--split", "dev"],
    ["pretrain", "--objective", "vicreg:ratio=1.5,weight=0.05", "--sources", "nli", "--train-limit", "12"],
    ["embed", "a.txt", "b.npy", "--model", "all-minilm-l6-v2", "--normalize"],
    ["export", "--model", "m", "--output", "f", "--to", "onnx", "--with-heads"],
    ["experiments", "gc", "--runs", "runs", "finetune-x-00"],
    ["data", "check", "--tasks-file", "data/tasks.toml"],
    ["report", "sample", "--runs", "runs"],
    ["simulate", "--grid", "10"],
    ["serve", "--model", "runs/x", "--port", "8000"],
)

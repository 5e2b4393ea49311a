"""The command line: finds the command, reads its options, runs it and turns its errors into exit codes.

A command is one of the modules here, a stage (see `train`), or an entry point of the group `multitask.commands`. The
function that carries it out imports torch, so that `--help` need not.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from minbert.errors import InputError, did_you_mean, install_with
from minbert.files import NO_TEXT
from multitask.base import logger
from multitask.base.errors import Interrupted, TrainingError, raise_interrupts
from multitask.base.options import keep_few_kernels
from multitask.base.runs import last_run, refuse_file_of_run
from multitask.cli import data, evaluate, experiments, serve, use_models
from multitask.cli.arguments import Command, Group, build, named_as_given, parse, parser_of, refuse_changed
from multitask.cli.settings_file import completion, read_settings, settings_of, write_settings
from multitask.cli.train import TUNE, refuse_undeclared, stage_commands
from multitask.data.messages import plain
from multitask.stages.registry import plugins

PROG = "multitask"
LAST = "last"
"""Names the latest run, where a model is expected."""
HELP = {"--help", "-h", "--help-all"}
COMMAND_ENTRY_POINTS = "multitask.commands"
LONGEST_ERROR = 2000
"""Characters of an error that the terminal shows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for a run that failed, 2 for wrong input, 128 + n for signal n."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # not every retry: the outcome is one line of ours
    if isinstance(sys.stdout, TextIOWrapper):  # like files: some locales lack signs of a table or of a file's name
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    keep_few_kernels()
    return exit_code(lambda: _dispatch(list(sys.argv[1:] if arguments is None else arguments)))


def exit_code(run: Callable[[], int | None]) -> int:
    """Run a command, or a script's function. Returns its exit code as `main` does; an error is one line."""
    try:
        code = run() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the program that reads the output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if SIGPIPE had ended it, which Python ignores
    except (InputError, TrainingError, OSError) as error:  # OSError: a full disk, a file where a folder should be
        print(error_line(error), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 130


def error_line(error: Exception) -> str:
    """An error as one line for a terminal: names of files and of options may have control characters."""
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.filename2 or error.filename or 'input or output'}: {error.strerror or error}"
    line, half = f"error: {text}", LONGEST_ERROR // 2 - 3
    if len(line) > LONGEST_ERROR:  # the beginning says where, and the end what was expected
        line = f"{line[:half]} ... {line[-half:]}"
    return plain(line, most=LONGEST_ERROR)


def _dispatch(arguments: list[str]) -> int:
    if damaged := [argument for argument in arguments if NO_TEXT.search(argument)]:
        raise InputError(f"{damaged[0]!a}: not UTF-8; rename the file")
    if arguments[:1] == ["--print-completion"]:
        print(completion(PROG, every_command(), arguments[1:]))
        return 0
    if arguments == ["--version"]:
        print(f"{PROG} {version('minbert-multitask')}")
        return 0
    prog, found, rest = find_command(arguments)
    if isinstance(found, Command):
        return _run(prog, found, rest)
    print(_overview(prog, found))
    return 0


def find_command(arguments: Sequence[str]) -> tuple[str, Command | Group, Sequence[str]]:
    """How the command that the arguments begin with is typed, the command, and the arguments after it.

    Raises InputError if there is no such command.
    """
    named = tuple(every_command(arguments[0])) if arguments else ()
    found: Command | Group = Group(PROG, "BERT for several sentence tasks at once.", named or tuple(every_command()))
    prog = PROG
    while isinstance(found, Group) and arguments and arguments[0] not in HELP:
        commands = {command.name: command for command in reversed(found.commands)}
        if arguments[0] not in commands:
            hint = did_you_mean(arguments[0], commands)
            raise InputError(f"unknown command {plain(arguments[0])}{hint} (`{prog} --help` lists all)")
        prog, found, arguments = f"{prog} {arguments[0]}", commands[arguments[0]], arguments[1:]
    return prog, found, arguments


def every_command(name: str = "") -> Iterator[Command | Group]:
    """All commands, or the commands with one name. An entry point replaces our command of the same name."""
    using = (*evaluate.COMMANDS, *use_models.COMMANDS, *serve.COMMANDS)
    ours: tuple[Command | Group, ...] = (*stage_commands().values(), TUNE, *using, data.COMMAND, experiments.COMMAND)
    others = {command.name: command for command in plugins(COMMAND_ENTRY_POINTS, name)}
    yield from (others.get(command.name, command) for command in ours if name in ("", command.name))
    yield from (command for command in others.values() if command.name not in {own.name for own in ours})


def _run(prog: str, command: Command, arguments: Sequence[str]) -> int:
    """Run a command with its arguments, or print its help."""
    if asked := HELP.intersection(arguments):
        print(parser_of(prog, command, "--help-all" if "--help-all" in asked else "--help").format_help(), end="")
        return 0
    if "TORCHELASTIC_RUN_ID" in os.environ and not command.distributed:
        names = [name for name, found in stage_commands().items() if found.distributed]
        raise InputError(f"torchrun is for {', '.join(names[:-1])} and {names[-1]}; run other commands without it")
    given = parse(prog, command, arguments)
    for option in command.declared():
        if name := given.pop(f"help_{option.name}", None):
            print(option.kind.explain(name))
            return 0
    return _run_with(prog, command, given)


def _run_with(prog: str, command: Command, given: dict[str, Any]) -> int:
    """Run a command with what the command line gives, and with the settings of its `--config`."""
    options = command.declared()
    file, save_to = given.pop("config", None), given.pop("save_config", None)
    of_set = settings_of(given.pop("set", []), prog, options)
    if twice := [option.flag for option in options if option.name in of_set.keys() & given.keys()]:
        raise InputError(f"{twice[0]} is given twice, once by --set; leave one out")
    given |= of_set
    settings = read_settings(Path(file), prog, command.stage, options, given) if file else {}
    where_data_is = {"data", "tasks_file"}
    for names, values in (("--data and --tasks-file", given), (f"{file}: data and tasks_file", settings)):
        if where_data_is <= values.keys():
            why = "a tasks file names its own data, by paths from its folder"
            raise InputError(f"{names} cannot be given together; leave one out: {why}")
    replaced = {revision for name, revision in command.models.items() if name in given}
    if where_data_is & given.keys():
        replaced |= where_data_is
    settings = {name: value for name, value in settings.items() if name not in replaced}
    changed = {o.name: o.read((settings | given)[o.name]) for o in options if o.name in settings | given}
    for option in options:
        if option.name in command.models and option.name in changed:
            changed[option.name] = _without_last(option.flag, changed[option.name], Path(changed.get("runs", "runs")))
    defaults = {option.name: option.default for option in options if option.default is not MISSING}
    try:
        built = build(command.options, options, defaults | changed)
        refuse_changed(options, built)
        refuse_undeclared(built, options, given if file and Path(file).is_dir() else changed)  # a run has all defaults
        if changed.get("output"):
            refuse_file_of_run(Path(changed["output"]))
        raise_interrupts()
        if save_to and os.environ.get("RANK", "0") == "0":  # torchrun starts one process a rank
            refuse_file_of_run(Path(save_to), "--save-config")
            write_settings(Path(save_to), prog, changed, defaults)
        return command.run(built) or 0
    except ModuleNotFoundError as error:
        if not command.extra:
            raise
        raise InputError(f"{prog} needs {error.name}; {install_with(command.extra)}") from None
    except InputError as error:
        labels = {option.name: option.flag for option in options if command.is_flag(option)}
        labels |= {name: f"{file}: {name}" for name in settings.keys() - given.keys()}
        raise InputError(named_as_given(str(error), options, labels)) from None


def _without_last(flag: str, model: Any, runs: Path) -> Any:
    """The name of a model, or of several, with the latest run in place of `last`."""
    if isinstance(model, list):
        return [_without_last(flag, name, runs) for name in model]
    name, equals, run = str(model).rpartition("=")  # `serve` and `explore` take NAME=RUN
    if run != LAST or Path(LAST).exists():
        return model
    logger.info("%s %s: %s", flag, model, found := last_run(runs))
    return f"{name}{equals}{found}"


def _overview(prog: str, group: Group) -> str:
    """The list of commands, under their sections."""
    lines = [f"usage: {prog} COMMAND [options]", "", group.help]
    sections = dict.fromkeys(command.section for command in group.commands)
    width = max(len(command.name) for command in group.commands) + 2
    for section in sections:
        lines += ["", f"{section if len(sections) > 1 else 'Commands'}:"]
        members = [command for command in group.commands if command.section == section]
        lines += [f"  {command.name:<{width}}{command.help.splitlines()[0]}" for command in members]
    return "\n".join([*lines, "", f"`{prog} COMMAND --help` shows a command's options."])

"""Options: the fields of a settings class as flags on the command line and as keys of a settings file.

An option is declared once, as a field with a docstring under it. A field whose type is another settings class stands
for the fields of that class. A class with a method `parse` is a single option that is given as text; with a static
method `explain` its values have descriptions. `refused` of a class names fields, its own or those of nested classes,
whose defaults are all that its command takes, each with the reason, which ends an error. No help shows them.
"""

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial, reduce
from itertools import takewhile
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from minbert.errors import InputError, did_you_mean
from minbert.settings import help_texts, read_as
from multitask.data.messages import plain
from multitask.stages.registry import Stage

POSITIONAL = {"positional": True}
"""Metadata of a field that is given without a flag."""
FLAGS_TO_DEPTH = 2
"""Fields that are nested deeper are no flags, unless a command names them as common ones: `--set` sets them."""


@dataclass(frozen=True)
class Option:
    """One option."""

    path: tuple[str, ...]  # the fields that lead to it, its own name last
    kind: Any  # the type of its value, or of each of several values
    default: Any  # MISSING if a value must be given
    help: str
    section: str = ""  # what the class that declares it is about, as a heading
    positional: bool = False
    several: bool = False
    may_be_none: bool = False
    choices: tuple[str, ...] = ()
    refused: str = ""  # why the command takes the default alone

    @property
    def name(self) -> str:
        """The name in Python and in settings files."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return self.name if self.positional else f"--{self.name.replace('_', '-')}"

    def read(self, value: Any) -> Any:
        """What a value from TOML, JSON or the command line stands for; `build` checks it."""
        if self.may_be_none and value in (None, "none", ["none"]):  # TOML has no null
            return None
        return [value] if self.several and not isinstance(value, list) else value


def options_of(
    options: type[Any], path: tuple[str, ...] = (), values: Any = None, refused: Mapping[str, str] | None = None
) -> Iterator[Option]:
    """The options that a settings class declares, in order.

    Args:
        options: the class.
        path: the fields that lead to it.
        values: an instance with the defaults; None: the fields' own defaults.
        refused: fields that the classes around it refuse, with the reasons.
    """
    refused = {**getattr(options, "refused", {}), **(refused or {})}
    texts, kinds = help_texts(options), get_type_hints(options)
    section = (options.__doc__ or "").partition("\n")[0].rstrip(".") if path else ""
    own = vars(options).get("__annotations__", {})
    missing = (MISSING, MISSING)

    def place(field: Field[Any]) -> tuple[bool, bool, bool]:
        """Required ones first, then what is given without a flag, inherited ones last."""
        required = (field.default, field.default_factory) == missing
        return not required, "positional" not in field.metadata, field.name not in own

    for field in sorted(fields(options), key=place):
        kind, here = kinds[field.name], (*path, field.name)
        default = getattr(values, field.name) if values is not None else field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if is_dataclass(kind) and not hasattr(kind, "parse"):
            yield from options_of(kind, here, default, refused)  # type: ignore[arg-type]  # a class, not an instance
            continue
        if may_be_none := NoneType in get_args(kind):
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        if several := get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        text, positional = field.metadata.get("help") or texts.get(field.name, ""), "positional" in field.metadata
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        why = refused.get(field.name, "")
        yield Option(here, kind, default, text, section, positional, several, may_be_none, choices, why)


def build(kind: type[Any], options: Sequence[Option], values: Mapping[str, Any]) -> Any:
    """An instance of a settings class from the values of its options by name.

    Raises InputError if a value is missing, of the wrong type or out of range; the message begins with the fields that
    lead to it.
    """
    nested: dict[str, Any] = {}
    for option in options:
        group = nested
        for part in option.path[:-1]:
            group = group.setdefault(part, {})
        if option.name in values:
            group[option.name] = values[option.name]
    return read_as(kind, nested)


def refuse_changed(options: Sequence[Option], built: Any) -> None:
    """Raise InputError for an option of built settings that its command refuses, and whose value is not the default."""
    for option in options:
        if option.refused and reduce(getattr, option.path, built) != option.default:
            raise InputError(f"{option.name} {option.refused}")


def named_as_given(error: str, options: Sequence[Option], labels: Mapping[str, str]) -> str:
    """An error that begins with an option, its flag or the fields that lead to it, with the option's label instead."""
    begin, space, rest = error.partition(" ")
    for option in options:
        path = ".".join(option.path)
        if begin.rstrip(":") in (path, option.name, option.flag) or begin.startswith(f"{path}."):
            found = begin.removeprefix(path).removeprefix(option.name).removeprefix(option.flag)
            return f"{labels.get(option.name, option.name)}{found}{space}{rest}"
    return error


def changed(options: Any, *names: str) -> str:
    """Those of these options that are not at their defaults, as an error lists them: `--task, --text`."""
    defaults = {field.name: field.default for field in fields(options)}
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != defaults[name])


TRAIN, USE, DATA = "Train a model", "Use a model", "Data"
"""Headings in the list of all commands."""


@dataclass(frozen=True)
class Command:
    """One command."""

    name: str  # as it is typed
    options: type[Any]  # a settings class: its docstring is the command's help, its fields are the options
    run: Callable[[Any], int | None]
    """Carries the command out, given the options; may return the exit code. It imports torch itself, because
    `--help` must not."""
    section: str = USE  # heading in the list of all commands
    common: tuple[str, ...] = ()  # names of the options that `--help` shows, in its order; empty: all of them
    extra: str = ""  # the optional packages that it needs
    stage: Stage | None = None  # the stage that it runs; `--config` takes its runs

    @property
    def distributed(self) -> bool:
        """Whether it runs under torchrun."""
        return self.stage is not None and self.stage.distributed

    @property
    def models(self) -> dict[str, str]:
        """The options that name models, which may be `last`, each with the option of its revision."""
        inputs = self.stage.inputs if self.stage else ()
        own = {model.option: model.revision for model in inputs}
        return {"model": "revision", "start": "revision", "compare": ""} | own

    @property
    def help(self) -> str:
        """What it does."""
        return (self.options.__doc__ or "").strip()

    def declared(self) -> list[Option]:
        """All its options: those that are given without a flag, the common ones as `common` orders them, the others."""
        order = {name: number for number, name in enumerate(self.common)}
        return sorted(options_of(self.options), key=lambda o: -1 if o.positional else order.get(o.name, len(order)))

    def is_flag(self, option: Option) -> bool:
        """Whether an option has a flag; the others are set with `--set` or in a settings file."""
        return len(option.path) <= FLAGS_TO_DEPTH or option.name in self.common

    def general(self) -> list[Option]:
        """The options that are added to every command, and those that explain an option's values."""
        options = self.declared()
        runs = f", or a run of {self.name}" if self.stage else ""
        text = "Explain a value of {}: its formula, source and parameters."
        explained = [o for o in options if hasattr(o.kind, "explain") and not o.refused]
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


PLACEHOLDERS = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"{plain(message.removeprefix('argument '), most=300)} (`{self.prog} --help` shows the options)"
        )


class _Page(argparse.RawDescriptionHelpFormatter):
    """Wraps no word at its hyphens, because options have hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def parse(prog: str, command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """The values that the arguments give, as JSON types, by the options' names. Raises InputError for unknown ones."""
    try:
        namespace, unknown = parser_of(prog, command).parse_known_args(arguments)
    except InputError as error:
        if not str(error).startswith(tuple(f"{o.name.upper()}: " for o in command.declared() if o.positional)):
            raise
        # The value of an unknown option may have been taken for what is given without a flag.
        flags = [*filter(command.is_flag, command.declared()), *command.general()]
        known = {option.flag for option in flags} | {f"--no-{o.flag[2:]}" for o in flags if o.kind is bool}
        named = [text.partition("=")[0] for text in takewhile(lambda text: text != "--", arguments)]
        unknown = [text for text in named if text.startswith("--") and text not in known]
        if not unknown:
            raise
    if unknown:
        flag = next((text for text in unknown if text.startswith("-")), unknown[0]).partition("=")[0]
        names = [option.flag for option in (*command.declared(), *command.general()) if not option.refused]
        hint = did_you_mean(flag, names) or "; --help-all shows all options"
        if meant := next((option for option in command.declared() if option.flag == flag), None):
            hint = f"; it {meant.refused}" if meant.refused else f"; use --set {meant.name}=VALUE"
        problem = "no such option of" if flag.startswith("-") else "stands after no option of"
        raise InputError(f"{plain(flag)}: {problem} `{prog}`{hint}")
    positional = {option.name for option in command.declared() if option.positional}
    given = vars(namespace).items()  # argparse has nothing, or an empty list, for what stands nowhere without a flag
    return {name: value for name, value in given if value or name not in positional}


def parser_of(prog: str, command: Command, page: str = "") -> argparse.ArgumentParser:
    """The parser of a command.

    Args:
        prog: the command as it is typed.
        command: the command.
        page: `--help` shows the common options, `--help-all` all under the headings of what declares them, and the
            settings without a flag, which the parser does not take.
    """
    declared, general = command.declared(), command.general()
    taken = [option for option in declared if not option.refused]
    width = min(shutil.get_terminal_size().columns, 120)
    parser = _Parser(
        prog,
        usage=f"{prog}{''.join(f' {option.name.upper()}' for option in declared if option.positional)} [options]",
        description="\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in command.help.split("\n\n")),
        epilog=f"--help-all shows all options ({len(taken) + len(general)})." if page == "--help" else "",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: _Page(prog, max_help_position=28, width=width),
    )
    groups: dict[str, Any] = {}
    for option in [*filter(command.is_flag, declared), *general]:
        section = option.section if page != "--help" else ""
        if section not in groups:
            groups[section] = parser.add_argument_group(section or "Options")
        common = not command.common or option.name in (*command.common, "set", "config")
        required = option.positional or option.default is MISSING
        _add(groups[section], option, not option.refused and (page != "--help" or common or required))
    if page == "--help-all":
        for option in taken:
            if not command.is_flag(option):
                section = f"{option.section}: --set NAME=VALUE"
                if section not in groups:
                    groups[section] = parser.add_argument_group(section)
                takes = f"{{{','.join(option.choices)}}}" if option.choices else _placeholder(option) or "true or false"
                groups[section].add_argument(option.name, metavar=f"{option.name}={takes}", help=_help(option))
    return parser


def _add(group: "argparse._ActionsContainer", option: Option, shown: bool) -> None:
    """Declare an option to argparse. Values that are not numbers arrive as text."""
    text = _help(option) if shown else argparse.SUPPRESS
    if option.kind is bool:
        group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=text)
        return
    none = ["none"] if option.may_be_none and not option.positional else []
    group.add_argument(
        option.flag,
        action="extend" if option.several else "store",  # `--model A --model B` means both
        type=partial(_value, option.kind),
        choices=[*option.choices, *none] if option.choices else None,
        nargs="*" if option.several else "?" if option.positional else None,
        default=None if option.positional else argparse.SUPPRESS,  # argparse would look for SUPPRESS in the choices
        metavar=option.name.upper() if option.positional else _placeholder(option),
        help=text,
    )


def _placeholder(option: Option) -> str | None:
    return PLACEHOLDERS.get(option.kind, getattr(option.kind, "form", None))


def _value(kind: Any, text: str) -> float | str:
    """A text, or the number that it is. What is no number where one is expected is refused with all other settings."""
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _help(option: Option) -> str:
    """The help text with the default."""
    if option.default is MISSING:
        note = " (required)"
    elif option.default in (None, (), "") or "Default:" in option.help:
        note = ""
    else:
        text = " ".join(map(str, option.default)) if option.several else option.default
        note = f" (default: {('on' if text else 'off') if option.kind is bool else text})"
    return (option.help + note).replace("%", "%%")

"""From a command's arguments to values of its options, and from its options to its help page."""

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from minbert.errors import InputError
from multitask.cli.command import Command
from multitask.cli.options import Option, did_you_mean, optional


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')} (`{self.prog} --help` shows the options)")


def parse(prog: str, options: Sequence[Option], arguments: Sequence[str]) -> dict[str, Any]:
    """The values that the arguments give, by the options' names. Raises InputError for unknown or malformed ones."""
    parser = _Parser(prog, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for option in options:
        _add(parser, option)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = next((text for text in unknown if text.startswith("-")), unknown[0])
        hint = did_you_mean(flag.partition("=")[0], [option.flag for option in options])
        raise InputError(f"{flag}: no such option of `{prog}`{hint or '; --help-all shows all options'}")
    values = vars(given)
    return {option.name: option.read_text(values[option.name]) for option in options if option.name in values}


def help_page(prog: str, command: Command, everything: bool) -> str:
    """The help of a command: the options that people use, or all of them, under the headings of what declares them."""
    declared, files = command.declared(), command.general()
    common = [option for option in declared if everything or option.name in command.common or not command.common]
    shown = [option for option in declared if option in common or option.positional or option.default is MISSING]
    positional = "".join(f" {option.name.upper()}" for option in declared if option.positional)
    hidden = "" if everything else f"--help-all shows all options ({len(declared) + len(files)})."
    width = min(shutil.get_terminal_size().columns, 120)
    parser = argparse.ArgumentParser(
        prog,
        usage=f"{prog}{positional} [options]",
        description=_one_paragraph_a_line(command.help),
        epilog=hidden,
        add_help=False,
        formatter_class=lambda prog: _Page(prog, max_help_position=28, width=width),
    )
    sections: dict[str, list[Option]] = {}
    for option in [*shown, *files]:
        sections.setdefault(option.section if everything else "", []).append(option)
    for section, members in sections.items():
        group = parser.add_argument_group(section or "Options")
        for option in members:
            _add(group, option, _help(option))
    return parser.format_help()


class _Page(argparse.HelpFormatter):
    """Wraps every line of a description by itself, and no word at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(super(_Page, self)._fill_text(line, width, indent) for line in text.splitlines())


def _one_paragraph_a_line(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _add(parser: "argparse._ActionsContainer", option: Option, text: str = "") -> None:
    """Declare an option to argparse; it hands over what it reads as text."""
    kind, _ = optional(option.kind)
    if kind is bool:
        parser.add_argument(option.flag, dest=option.name, action=argparse.BooleanOptionalAction, help=text)
    elif option.positional:
        parser.add_argument(option.name, metavar=option.name.upper(), nargs="?", help=text)
    else:
        nargs = "*" if get_origin(kind) is tuple else None
        parser.add_argument(option.flag, dest=option.name, metavar=_placeholder(kind), nargs=nargs, help=text)


def _placeholder(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return _placeholder(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, getattr(kind, "form", "TEXT"))


def _help(option: Option) -> str:
    """The help text with the default."""
    if option.default is MISSING:
        note = " (required)"
    elif option.default in (None, ()) or "Default:" in option.help:
        note = ""
    else:
        note = f" (default: {shown(option.default)})"
    return (option.help + note).replace("%", "%%")


def shown(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)

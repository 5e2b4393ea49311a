"""What argparse makes of a command's options: values, help pages and shell completion."""

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from minbert.errors import InputError, did_you_mean
from multitask.cli.command import Command
from multitask.cli.options import Option
from multitask.data.problems import plain

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
    namespace, unknown = parser_of(prog, command).parse_known_args(arguments)
    if unknown:
        flag = next((text for text in unknown if text.startswith("-")), unknown[0]).partition("=")[0]
        flags = [option.flag for option in (*command.declared(), *command.general())]
        hint = did_you_mean(flag, flags) or "; --help-all shows all options"
        if any(option.flag == flag for option in command.declared()):
            hint = f"; use --set {flag[2:].replace('-', '_')}=VALUE"
        raise InputError(f"{plain(flag)}: no such option of `{prog}`{hint}")
    return {name: value for name, value in vars(namespace).items() if value is not None}


def parser_of(prog: str, command: Command, page: str = "") -> argparse.ArgumentParser:
    """The parser of a command.

    Args:
        prog: the command as it is typed.
        command: the command.
        page: `--help` shows the common options, `--help-all` all under the headings of what declares them, and the
            settings without a flag, which the parser does not take.
    """
    declared, general = command.declared(), command.general()
    width = min(shutil.get_terminal_size().columns, 120)
    parser = _Parser(
        prog,
        usage=f"{prog}{''.join(f' {option.name.upper()}' for option in declared if option.positional)} [options]",
        description="\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in command.help.split("\n\n")),
        epilog=f"--help-all shows all options ({len(declared) + len(general)})." if page == "--help" else "",
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
        common = not command.common or option.name in command.common or option in general[:-1]
        _add(groups[section], option, page != "--help" or common or option.positional or option.default is MISSING)
    if page == "--help-all":
        for option in declared:
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
    group.add_argument(
        option.flag,
        action="extend" if option.several else "store",  # `--model A --model B` means both
        type=partial(_value, option.kind),
        choices=[*option.choices, *["none"] * option.may_be_none] if option.choices else None,
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

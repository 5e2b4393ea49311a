"""What argparse makes of a command's options: values, help pages and shell completion."""

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any, NoReturn

from minbert.errors import InputError
from multitask.cli.command import Command, Group
from multitask.cli.options import KINDS, Option, did_you_mean
from multitask.data.problems import plain


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
    """The values that the arguments give, by the options' names. Raises InputError for unknown or malformed ones."""
    options = [*command.declared(), *command.general()]
    namespace, unknown = parser_of(prog, command).parse_known_args(arguments)
    if unknown:
        flag = next((text for text in unknown if text.startswith("-")), unknown[0])
        hint = did_you_mean(flag.partition("=")[0], [option.flag for option in options])
        raise InputError(f"{plain(flag)}: no such option of `{prog}`{hint or '; --help-all shows all options'}")
    given = {name: value for name, value in vars(namespace).items() if value is not None}
    return {option.name: option.read(given[option.name], option.flag) for option in options if option.name in given}


def parser_of(prog: str, command: Command, everything: bool = True) -> argparse.ArgumentParser:
    """The parser of a command.

    Args:
        prog: the command as it is typed.
        command: the command.
        everything: whether its help shows all options, under the headings of what declares them, or the common ones.
    """
    declared, general = command.declared(), command.general()
    width = min(shutil.get_terminal_size().columns, 120)
    parser = _Parser(
        prog,
        usage=f"{prog}{''.join(f' {option.name.upper()}' for option in declared if option.positional)} [options]",
        description="\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in command.help.split("\n\n")),
        epilog="" if everything else f"--help-all shows all options ({len(declared) + len(general)}).",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: _Page(prog, max_help_position=28, width=width),
    )
    groups: dict[str, Any] = {}
    for option in [*declared, *general]:
        section = option.section if everything else ""
        if section not in groups:
            groups[section] = parser.add_argument_group(section or "Options")
        shown = everything or not command.common or option.name in command.common or option in general
        _add(groups[section], option, shown or option.positional or option.default is MISSING)
    return parser


def _add(group: "argparse._ActionsContainer", option: Option, shown: bool) -> None:
    """Declare an option to argparse, which hands over what is no number as text."""
    text = _help(option) if shown else argparse.SUPPRESS
    if option.kind is bool:
        group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=text)
        return
    placeholder, *_ = KINDS.get(option.kind, (getattr(option.kind, "form", None),))
    group.add_argument(
        option.flag,
        action="extend" if option.several else "store",  # `--model A --model B` means both
        type=partial(_value, option),
        choices=[*option.choices, *["none"] * option.may_be_none] if option.choices else None,
        nargs="*" if option.several else "?" if option.positional else None,
        default=None if option.positional else argparse.SUPPRESS,  # argparse would look for SUPPRESS in the choices
        metavar=option.name.upper() if option.positional else placeholder,
        help=text,
    )


def _value(option: Option, text: str) -> float | str:
    """A text, or the number that it is. What is not among the choices is refused here, because argparse says less."""
    if option.choices:
        option.read([text] if option.several else text, option.flag)
    try:
        return option.kind(text) if option.kind in (int, float) else text
    except ValueError:
        return text


def _help(option: Option) -> str:
    """The help text with the default."""
    if option.default is MISSING:
        note = " (required)"
    elif option.default in (None, ()) or "Default:" in option.help:
        note = ""
    else:
        text = " ".join(map(str, option.default)) if option.several else option.default
        note = f" (default: {('on' if text else 'off') if option.kind is bool else text})"
    return (option.help + note).replace("%", "%%")


def add_commands(parser: argparse.ArgumentParser, commands: Iterable[Command | Group]) -> None:
    """Add commands with all their options to a parser, from which shtab makes the script for shell completion."""
    added = parser.add_subparsers()
    for found in commands:
        text = found.help.partition("\n")[0].replace("%", "%%")
        if isinstance(found, Group):
            add_commands(added.add_parser(found.name, help=text), found.commands)
        else:
            command = added.add_parser(found.name, help=text, parents=[parser_of(found.name, found)])
            command.add_argument("--help-all", help="show all options")

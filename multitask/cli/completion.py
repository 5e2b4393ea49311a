"""The script that makes a shell complete commands, options and choices."""

import argparse
from collections.abc import Iterable, Sequence

import shtab

from minbert.errors import InputError
from multitask.cli.arguments import parser_of
from multitask.cli.command import Command, Group


def script(prog: str, commands: Iterable[Command | Group], shell: Sequence[str]) -> str:
    """The script for a shell. Raises InputError for shells that are not supported."""
    if len(shell) != 1 or shell[0] not in shtab.SUPPORTED_SHELLS:
        raise InputError(f"--print-completion takes one of: {', '.join(shtab.SUPPORTED_SHELLS)}")
    parser = argparse.ArgumentParser(prog)
    _add(parser, commands)
    return shtab.complete(parser, shell[0])


def _add(parser: argparse.ArgumentParser, commands: Iterable[Command | Group]) -> None:
    added = parser.add_subparsers()
    for found in commands:
        text = found.help.partition("\n")[0].replace("%", "%%")
        if isinstance(found, Group):
            _add(added.add_parser(found.name, help=text), found.commands)
        else:
            command = added.add_parser(found.name, help=text, parents=[parser_of(found.name, found)])
            command.add_argument("--help-all", help="show all options")

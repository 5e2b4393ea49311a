"""The reference of all commands as a page, from the help texts that the commands print."""

import os
from collections.abc import Iterable, Iterator
from unittest.mock import patch

from multitask.cli.arguments import parser_of
from multitask.cli.command import Command, Group
from multitask.cli.main import PROG, every_command

COLUMNS = "72"  # of the help texts; wider ones would have to be scrolled
HEAD = """# Commands

What each command prints when `--help-all` asks for it. `--help` prints the most used options only.
"""


def command_reference() -> str:
    """The page as Markdown."""
    with patch.dict(os.environ, {"COLUMNS": COLUMNS}):
        sections = [f"## {prog}\n\n```text\n{page}```\n" for prog, page in _pages(PROG, every_command())]
    return "\n".join([HEAD, *sections])


def _pages(prog: str, commands: Iterable[Command | Group]) -> Iterator[tuple[str, str]]:
    """Each command as it is typed, and its help."""
    for found in commands:
        typed = f"{prog} {found.name}"
        if isinstance(found, Group):
            yield from _pages(typed, found.commands)
        else:
            yield typed, parser_of(typed, found, "--help-all").format_help()

"""The command lines in the documentation are accepted as they stand there."""

import re
import shlex
from dataclasses import MISSING

import pytest

from multitask.cli.arguments import Command, build, parse
from multitask.cli.main import find_command
from multitask.cli.settings_file import settings_of
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "data" / "README.md", *(ROOT / "docs").rglob("*.md")]


def command_lines() -> list[str]:
    """The lines that begin with `multitask`, after a prompt or torchrun or not; a backslash continues a line."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES).replace("\\\n", " ")
    return re.findall(r"^(?:\$ )?(?:torchrun .*)?multitask (\w.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("line", command_lines())
def test_documented_command_lines_are_accepted(line: str) -> None:
    prog, command, arguments = find_command(shlex.split(line, comments=True))
    assert isinstance(command, Command)
    options, given = command.declared(), parse(prog, command, arguments)
    given |= settings_of(given.pop("set", []), prog, options)
    values = {o.name: o.read(given[o.name]) if o.name in given else o.default for o in options}
    build(command.options, options, {name: "x" if value is MISSING else value for name, value in values.items()})

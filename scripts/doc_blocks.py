"""Run the code blocks of pages, and write their outputs back.

A comment before each block says what is done with it. It is invisible on the page:

    <!-- run -->                            run it; `$ ` begins a command, other lines are the output
    <!-- run with --epochs 1 -->            the same, and add these options to each command that trains or combines
    <!-- run, show: ^epoch|^[0-9] -->       show only the lines of the output that match
    <!-- file: data/own/tasks.toml -->      the block has the contents of this file
    <!-- not run: why -->                   only check that the options exist
    <!-- setup: COMMAND -->                 stands alone: run a command that the page does not show

The blocks of a page run one after the other in one new folder. RUN stands for the last run that a command printed,
ensembles left out, and FOLDER for a folder: data/sample as `--data`, otherwise a new one. Blocks in `text` are pictures
and listings.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(
    r"^<!-- setup: (?P<setup>[^\n]*) -->$|"
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(
    r"(?P<kind>run|not run|file)(?: with (?P<options>[^,]+))?(?:, show: (?P<show>.+))?(?:: (?P<value>.+))?"
)
TRAINS = re.compile(
    r"(?<=multitask )((?:finetune|distil|pretrain|mlm|fuse|ensemble)\b[^#|]*?)(\s*(?:[#|].*)?)$", re.DOTALL
)
"""A command that trains or combines, up to a comment or a pipe."""
RUN_PRINTED = re.compile(r"^runs/(?!ensemble-)[^/\s]+$", re.MULTILINE)
HOME = "/home/ada"  # stands for the working directory in outputs
LIMIT = 1200  # seconds of one block; the machine may be busy


@dataclass(frozen=True)
class Block:
    """A code block of a page: its line from 1, where its text stands in the page, and what its mark says."""

    page: Path
    line: int
    span: tuple[int, int]
    language: str
    text: str
    kind: str
    options: str = ""
    show: str = ""
    value: str = ""

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{relpath(self.page, ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, but for those in `text`. Raises ValueError for one without a mark."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("setup" if found["setup"] else "text"))
        if found["setup"]:
            yield Block(page, line + 1, found.span("setup"), "bash", found["setup"], "setup")
            continue
        if found["language"] == "text":
            continue
        mark = MARK.fullmatch(found["mark"] or "")
        where = f"{relpath(page, ROOT)}:{line}"
        if mark is None or not found["language"]:
            raise ValueError(f"{where}: expected a language, and a comment such as <!-- run --> before the block")
        if (mark["kind"] == "run") == bool(mark["value"]):
            raise ValueError(f"{where}: expected a reason or a file after the colon, and only there")
        parts = {name: mark[name] or "" for name in ("kind", "options", "show", "value")}
        yield Block(page, line, found.span("text"), found["language"], found["text"], **parts)


@dataclass
class Session:
    """What the blocks of a page have done so far: the last run that a command printed, and the number of FOLDERs."""

    folder: Path
    run: str = "RUN"
    outputs: int = 0

    def text_after_run(self, block: Block) -> str:
        """Run a block; what it should say. Raises RuntimeError if a command fails."""
        if block.kind == "file":
            return (ROOT / block.value).read_text(encoding="utf-8")
        if block.kind == "not run":
            return block.text
        if block.language == "python":
            self._executed([sys.executable, "-c", self._filled(block.text)], block)
        elif block.language == "bash":
            for command in _commands(block.text.splitlines()):
                self._shell(command, block)
        else:
            typed = re.findall(r"^\$ ((?:.*\\\n)*.*)", block.text, re.MULTILINE)
            return "".join(self._shown(command, block) for command in typed)
        return block.text

    def _shown(self, command: str, block: Block) -> str:
        """A command with the part of its output that is shown."""
        lines: list[str] = []
        for line in self._shell(command, block).splitlines():
            if not block.show or re.search(block.show, line):
                lines.append(line)
            elif not lines or lines[-1] != "...":
                lines.append("...")
        return "".join(f"{line}\n" for line in [f"$ {command}", *lines])

    def _shell(self, command: str, block: Block) -> str:
        """Run a command; its standard output, with RUN for the run that it printed."""
        line = self._filled(command)
        if block.options:
            line = TRAINS.sub(rf"\1 {block.options}\2", line)
        printed = self._executed(["bash", "-e", "-o", "pipefail", "-c", line], block)
        if found := RUN_PRINTED.findall(printed):
            self.run = found[-1]
        printed = printed.replace(str(self.folder), HOME)
        return printed.replace(self.run, "RUN") if self.run != "RUN" else printed

    def _filled(self, text: str) -> str:
        """A text with names for RUN and FOLDER."""
        self.outputs += 1
        text = re.sub(r"(?<=--data )FOLDER", "data/sample", text.replace("RUN", self.run))
        return text.replace("FOLDER", f"folder-{self.outputs}")

    def _executed(self, command: list[str], block: Block) -> str:
        found = subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
        )
        if found.returncode:
            raise RuntimeError(f"{block.place}: {command[-1]}\nexit code {found.returncode}\n{found.stderr[-2000:]}")
        return found.stdout


def workplace(folder: Path) -> None:
    """Put into an empty folder what the commands expect in the working directory."""
    for name in ("data", "docs"):
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)


def environment() -> dict[str, str]:
    """The environment of a process that finds this checkout's packages and commands."""
    commands = os.pathsep.join([str(ROOT / ".venv" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    chosen = {"COLUMNS": "120", "TQDM_DISABLE": "1", "PYTHONOPTIMIZE": ""}
    return {**os.environ, "PATH": commands, "PYTHONPATH": str(ROOT), **chosen}


def _commands(lines: list[str]) -> Iterator[str]:
    """Commands; a backslash continues a line."""
    command = ""
    for line in lines:
        command += line + "\n"
        if not line.endswith("\\"):
            if command.strip() and not command.startswith("#"):
                yield command.rstrip("\n")
            command = ""


def refreshed(page: Path) -> str:
    """A page with the outputs of its commands as they are now. Raises RuntimeError if a command fails."""
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        workplace(Path(folder))
        session = Session(Path(folder))
        found = [(block.span, session.text_after_run(block)) for block in blocks(page)]
    for (start, end), new in reversed(found):
        text = text[:start] + new + text[end:]
    return text

"""How readers report a bad row (one line that names file, row and what was expected), and how they show names."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeVar

from minbert.errors import InputError
from minbert.files import file_size

STANDARD_INPUT = "/dev/stdin"
INVISIBLE = (
    "\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Controls, what Unicode calls default ignorable, and the empty Braille pattern; as in a class of a regular expression.

Private and unassigned characters may have a shape.
"""
REMOVED = re.compile(f"[{INVISIBLE}]")

T = TypeVar("T")
OnProblem = Callable[[str], None]
"""Is called with each problem, as one line of text. The bad row is then left out."""


def refuse(problem: str) -> NoReturn:
    """Raise a problem as an InputError: how readers treat a bad row unless told otherwise."""
    raise InputError(problem)


def quote(value: object) -> str:
    """A value as error messages show it: text in quotes, without control characters; long text is cut."""
    return json.dumps(plain(value), ensure_ascii=False) if isinstance(value, str) else plain(str(value))


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names as error messages list them: the first ones, and how many there are besides."""
    found = [*names]
    return ", ".join(plain(str(name)) for name in found[:most]) + (
        f" and {len(found) - most:,} more" if len(found) > most else ""
    )


def setting(name: str, flag: str) -> str:
    """How to say how a file is written: in a tasks file, or to some commands with an option."""
    return f"set {name} in the tasks file, or {flag} if the command has it"


def repeated(names: Iterable[str]) -> list[str]:
    """The names that are there more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def reason(error: Exception) -> str:
    """Why a library failed: the first line of its message."""
    return plain(next(iter(str(error).splitlines()), type(error).__name__), most=200)


def plain(text: str, most: int = 80) -> str:
    """A text without control characters; a long one is cut."""
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(c if c.isprintable() else " " for c in shown)


def other_tasks(path: Path) -> str:
    """The end of an error about a missing file: a tasks file next to it that does not name it, if there is one."""
    tasks_file = path.parent / "tasks.toml"
    if path.exists() or not tasks_file.is_file() or path.name in tasks_file.read_text(errors="replace"):
        return ""
    return f"; for the tasks of {tasks_file}, give --tasks-file {tasks_file} in place of its folder"


def read_or_refuse(path: Path, read: Callable[[Path], T]) -> T:
    """Read a regular file or standard input. Raises InputError if there is none or it cannot be read."""
    try:
        if str(path) != STANDARD_INPUT:  # which may be a pipe
            file_size(path)
        return read(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or reason(error)})") from None


def damaged(path: Path, error: Exception) -> InputError:
    """The error of a file that cannot be read as what its name says."""
    return InputError(f"{path}: damaged, or not of the format that its name says ({reason(error)})")


def spelled(text: str) -> str:
    """A text in quotes, as TOML reads it, with escapes for what nobody sees and for marks that are not composed."""
    composed = unicodedata.is_normalized("NFC", text)

    def spell(c: str) -> str:
        if c.isprintable() and not REMOVED.match(c) and (composed or not unicodedata.combining(c)):
            return f"\\{c}" if c in '"\\' else c
        return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"

    return f'"{"".join(map(spell, text))}"'

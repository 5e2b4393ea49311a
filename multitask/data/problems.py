"""How readers report a bad row: one line of text that names the file, the row, and what was expected."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from minbert.errors import InputError

LOGGER = logging.getLogger("multitask")

T = TypeVar("T")
OnProblem = Callable[[str], None]
"""Is called with each problem, as one line of text. The bad row is then left out."""


def refuse(problem: str) -> NoReturn:
    """Raise a problem as an InputError: how readers treat a bad row unless told otherwise."""
    raise InputError(problem)


def warn_incomplete(name: str, action: str, lack: str, count: int, first: Sequence[int]) -> None:
    """Log one warning that counts a file's incomplete rows, if there are any, and names the first ones."""
    if count:
        shown = ", ".join(map(str, first)) + (", ..." if count > len(first) else "")
        rows, on = ("row", "line") if count == 1 else ("rows", "lines")
        LOGGER.warning("%s: %s %d %s %s (%s %s)", name, action, count, rows, lack, on, shown)


def quote(value: object) -> str:
    """A value as error messages show it: text in quotes, without control characters; long text is cut."""
    if not isinstance(value, str):
        return str(value)[:80]
    text = value if len(value) <= 80 else f"{value[:77]}..."
    return json.dumps("".join(c if c.isprintable() else " " for c in text), ensure_ascii=False)


def checked(path: Path, read: Callable[[Path], T]) -> T:
    """Read a file. Raises InputError if it does not exist or cannot be read."""
    try:
        return read(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file (`multitask data fetch` downloads the real sets)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None

"""Rows of a delimited text file, strictly parsed: every row is checked, and a bad row is named by file and line.

Text is kept as written, except that white space around it is removed. The course's starter code also lower-cases text
and puts spaces before `. ? , '`. The tokenizer of an uncased BERT does both by itself, so its ids are the same either
way (except for a capital sigma that ends a Greek word).
"""

import codecs
import csv
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

from minbert.errors import InputError

LOGGER = logging.getLogger("multitask")
SEPARATORS = {"\t": "tabs", ",": "commas"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

T = TypeVar("T")
OnProblem = Callable[[str], None]  # is called with each problem, as one line of text


def refuse(problem: str) -> NoReturn:
    """Raise a problem as an InputError: how readers treat a bad row unless told otherwise."""
    raise InputError(problem)


def parse_rows(
    path: Path, raw: bytes, separator: str, columns: tuple[str, ...], on_problem: OnProblem
) -> Iterator[tuple[int, list[str]]]:
    """Each row's first line in the file, and its stripped fields in the order of `columns`.

    Fields are unquoted as by `csv.DictReader`, which the course's starter code uses.

    Args:
        path: the file, for messages.
        raw: its content.
        separator: a tab or a comma.
        columns: the names of the wanted columns; others are ignored.
        on_problem: called for each row with broken quoting, too few or too many fields; such a row is left out.

    Raises:
        InputError: the content is not UTF-8, or the header does not contain each wanted column once.
    """
    rows = _split_rows(path, decode(path, 1, raw), separator, on_problem)
    line, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for column in columns:
        if header.count(column) != 1:
            raise InputError(
                f"{path}:{line}: column {column} occurs {header.count(column)} times in the header; expected the "
                f"columns {', '.join(columns)} separated by {SEPARATORS[separator]}, found {quote(', '.join(header))}"
            )
    positions = [header.index(column) for column in columns]
    for line, row in rows:
        if len(row) == len(header):
            yield line, [row[position].strip() for position in positions]
        else:
            on_problem(
                f"{path}:{line}: the row has {len(row)} fields; expected {len(header)}, as in the header "
                f"(separated by {SEPARATORS[separator]})"
            )


def _split_rows(path: Path, text: str, separator: str, on_problem: OnProblem) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the line where it starts (a quoted field may span several lines)."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            on_problem(
                f"{path}:{line}: broken quoting ({error}); expected a field that starts with a quote to end with one, "
                "and quotes inside it to be doubled"
            )
            continue
        if row is None:
            return
        if row:
            yield line, row


def warn_incomplete(path: Path, action: str, lack: str, lines: list[int]) -> None:
    """Log one warning that counts a file's incomplete rows, if there are any."""
    if lines:
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        rows, on = ("row", "line") if len(lines) == 1 else ("rows", "lines")
        LOGGER.warning("%s: %s %d %s %s (%s %s)", path, action, len(lines), rows, lack, on, shown)


def quote(text: str) -> str:
    """Text in quotes, as error messages show it; long text is cut."""
    return json.dumps(text if len(text) <= 80 else f"{text[:77]}...", ensure_ascii=False)


def checked(path: Path, read: Callable[[Path], T]) -> T:
    """Read a file. Raises InputError if it does not exist or cannot be read."""
    try:
        return read(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file (`multitask data fetch` downloads the real sets)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises InputError if the file is missing, unreadable or empty."""
    raw = checked(path, Path.read_bytes)
    if not raw:
        raise InputError(f"{path}: the file is empty; expected a header line and rows")
    return raw


def decode(path: Path, line: int, raw: bytes) -> str:
    """Decode bytes that start at the given line of the file.

    Raises:
        InputError: they are not UTF-8.
    """
    body = raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line += body.count(b"\n", 0, error.start)
        column = error.start - body.rfind(b"\n", 0, error.start)
        raise InputError(
            f"{path}:{line}: byte 0x{body[error.start]:02x} at position {column} of the line is not UTF-8; "
            "save the file as UTF-8"
        ) from None

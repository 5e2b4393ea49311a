"""Lines of text files, one at a time: decompressed, decoded and checked."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from minbert.errors import InputError
from multitask.data.problems import checked, reason

MOST_BYTES = 1 << 24
"""A longer line is taken for a file that is not text by lines."""
GZIP = ".gz"


def suffixes(path: Path) -> tuple[str, str]:
    """The suffix of a file's format and that of its compression: `.csv` and `.gz` of `train.csv.gz`."""
    compression = GZIP if path.suffix.lower() == GZIP else ""
    return (path.with_suffix("") if compression else path).suffix.lower(), compression


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file, each with its line end; a byte order mark is removed.

    Raises:
        InputError: the file is missing, a damaged compressed file, or not UTF-8; a line contains NUL, a carriage return
            that does not end it, or more than 16 MiB. The message names the line.
    """
    with _open(path) as file:
        number = 0
        while True:
            try:
                raw = file.readline(MOST_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"{path}: damaged or not a compressed file ({reason(error)})") from None
            if not raw:
                return
            number += 1
            yield _decode(raw, f"{path}:{number}", first=number == 1)


def count_lines(path: Path) -> int:
    """Number of line ends of a file, decompressed."""
    with _open(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _open(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if suffixes(path)[1] else lambda path: path.open("rb")
    return checked(path, opener)


def _decode(raw: bytes, place: str, first: bool) -> str:
    if len(raw) > MOST_BYTES:
        raise InputError(f"{place}: the line has more than {MOST_BYTES:,} bytes; expected text in lines")
    body = raw.removeprefix(codecs.BOM_UTF8) if first else raw
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: byte 0x{body[error.start]:02x} at position {error.start + 1} of the line is not UTF-8; "
            "save the file as UTF-8"
        ) from None
    if "\0" in text:
        raise InputError(f"{place}: contains a NUL byte, so it is not text; save the file as UTF-8")
    if "\r" in text and "\r" in text.removesuffix("\n").removesuffix("\r"):
        raise InputError(f"{place}: a carriage return within a line; end lines with LF or CRLF")
    return text

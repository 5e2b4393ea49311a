"""Lines of text files, one at a time: decompressed, decoded and checked."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import refuse_expansion
from multitask.data.problems import checked, reason

MOST_BYTES = 1 << 24
"""A longer line is taken for a file that is not text by lines."""
GZIP = ".gz"
UNSUSPECTED = 1 << 21
"""Decompressed bytes from which on the file's own size counts: more blank lines would take many seconds."""


def suffixes(path: Path) -> tuple[str, str]:
    """The suffixes of a file's format and compression: `.csv` and `.gz` for `train.csv.gz`."""
    compression = GZIP if path.suffix.lower() == GZIP else ""
    return (path.with_suffix("") if compression else path).suffix.lower(), compression


def text_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file, each with its line end; a byte order mark is removed.

    Raises:
        InputError: the file is missing or no regular file, a damaged compressed file, one that holds far more bytes
            than it has, or of another encoding; a line contains NUL, a carriage return that does not end it, or more
            than 16 MiB. The message names the line.
    """
    wide = "\n".encode(encoding) != b"\n"  # as in UTF-16, in which a byte does not tell where a line ends
    compressed = bool(suffixes(path)[1])
    opened: Any = checked(path, gzip.open if compressed else lambda path: path.open("rb"))
    with opened as file:
        decoded = io.TextIOWrapper(file, encoding, newline="\n") if wide else None
        number = size = 0
        while True:
            try:
                raw = file.readline(MOST_BYTES + 1) if decoded is None else decoded.readline(MOST_BYTES + 1).encode()
            except UnicodeError as error:
                raise InputError(f"{path}: not {encoding} ({reason(error)}); set another encoding") from None
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"{path}: damaged or not a compressed file ({reason(error)})") from None
            if not raw:
                return
            number += 1
            size += len(raw)
            if size > UNSUSPECTED and compressed:
                refuse_expansion(path, size, file.fileobj.tell(), UNSUSPECTED)
            yield _decode(raw, f"{path}:{number}", "utf-8" if wide else encoding, first=number == 1)


def _decode(raw: bytes, place: str, encoding: str, first: bool) -> str:
    if len(raw) > MOST_BYTES:
        raise InputError(f"{place}: the line has more than {MOST_BYTES:,} bytes; expected text in lines")
    body = raw.removeprefix(codecs.BOM_UTF8) if first else raw
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: byte 0x{body[error.start]:02x} at position {error.start + 1} of the line is not "
            f"{encoding.upper()}; save the file as UTF-8, or set encoding in the tasks file, or --encoding"
        ) from None
    if "\0" in text:
        raise InputError(
            f"{place}: contains a NUL byte; save the file as UTF-8, or set encoding in the tasks file, or --encoding"
        )
    if "\r" in text and "\r" in text.removesuffix("\n").removesuffix("\r"):
        raise InputError(f"{place}: a carriage return within a line; end lines with LF or CRLF")
    return text

"""Lines of text files, one at a time: decompressed, decoded and checked."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from minbert.errors import InputError
from multitask.data.problems import checked, reason

MOST_BYTES = 1 << 24
"""A longer line is taken for a file that is not text by lines."""


def _open_zstandard(path: Path) -> IO[bytes]:
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(path, compression="zstd"))  # Arrow's own stream has no `readline`


COMPRESSIONS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zstandard,
}
"""How to open a compressed file, by its suffix."""


def suffixes(path: Path) -> tuple[str, str]:
    """The suffix of a file's format and that of its compression: `.csv` and `.gz` of `train.csv.gz`."""
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    return (path.with_suffix("") if compression else path).suffix.lower(), compression


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed. Raises InputError if it is missing or cannot be opened."""
    opener: Any = COMPRESSIONS.get(suffixes(path)[1], lambda path: path.open("rb"))
    return checked(path, opener)


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file, each with its line end; a byte order mark is removed.

    Raises:
        InputError: the file is missing, a damaged compressed file, or not UTF-8; a line contains NUL, a carriage return
            that does not end it, or more than 16 MiB. The message names the line.
    """
    with open_bytes(path) as file:
        number = 0
        while True:
            try:
                raw = file.readline(MOST_BYTES + 1)
            except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                raise InputError(f"{path}: damaged or not a compressed file ({reason(error)})") from None
            if not raw:
                return
            number += 1
            yield decode(path, number, raw)


def count_lines(path: Path) -> int:
    """Number of line ends of a file, decompressed."""
    with open_bytes(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def decode(path: Path, number: int, raw: bytes) -> str:
    """Decode the line of this number (from 1); errors as of `text_lines`."""
    if len(raw) > MOST_BYTES:
        raise InputError(f"{path}:{number}: the line has more than {MOST_BYTES:,} bytes; expected text in lines")
    body = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: byte 0x{body[error.start]:02x} at position {error.start + 1} of the line is not UTF-8; "
            "save the file as UTF-8"
        ) from None
    if "\0" in text:
        raise InputError(f"{path}:{number}: contains a NUL byte, so it is not text; save the file as UTF-8")
    if "\r" in text and "\r" in text.removesuffix("\n").removesuffix("\r"):
        raise InputError(f"{path}:{number}: a carriage return within a line; end lines with LF or CRLF")
    return text

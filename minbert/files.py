"""Read text and JSON, hash files, and write files atomically: a kill never leaves a half-written file."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import DiskFullError, InputError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_TEXT = 2**28
"""Bytes of the largest text file that is read whole."""
LARGEST_TOML = 2**21
"""Bytes of the largest TOML file: a table takes a kilobyte of memory."""
LARGEST_ARRAYS = 2**30
"""Bytes of the largest file of arrays: a record has 8 bytes for each sentence that a model was trained on."""
MANY_DOTS = re.compile(r"""(?<![\w\\-])(?:(?:[\w-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")
NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no file of UTF-8 text has: NUL, and half of a surrogate pair."""
EXPANSION, UNSUSPECTED = 100, 2**26
"""Content may have so many times the bytes of its file. Up to so many bytes (64 MiB), it may have any size."""
MOST_NAMES = 1000  # that are looked through for the one that was meant
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk or a quota without space."""


def file_size(path: Path) -> int:
    """Bytes of a regular file. Raises InputError if there is none: reading a pipe or a device may never end."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{_meant(path)}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file but {'a folder' if path.is_dir() else 'a pipe or a device'}")
    return status.st_size


def _meant(path: Path) -> str:
    """Where a file or folder may be that is not at its path, as the end of an error: below, or in a similar folder."""
    folder = path.parent
    if not folder.is_dir():
        return _meant(folder)
    beside = list(islice(folder.iterdir(), MOST_NAMES))
    # Unlike the methods of a path, these functions are False where a folder may not be read.
    if below := [at / path.name for at in beside if os.path.exists(at / path.name)]:  # noqa: PTH110
        return f"; did you mean {below[0]}?"
    return did_you_mean(path.name, [at.name for at in beside if os.path.isdir(at)], folder)  # noqa: PTH112


def refuse_expansion(
    path: Path, size: int, stored: int | None = None, unsuspected: int = UNSUSPECTED, unit: str = "bytes"
) -> None:
    """Raise InputError if content has far more units than bytes are stored of it, by default the whole file."""
    if size > unsuspected and size > EXPANSION * (file_size(path) if stored is None else stored):
        raise InputError(
            f"{path}: {size:,} {unit} of content, more than {EXPANSION} times the bytes that the file stores for it; "
            "damaged, or made to exhaust the memory"
        )


def refuse_expanding_archive(path: Path, unsuspected: int = UNSUSPECTED) -> None:
    """Raise InputError if members of a zip file have far more bytes than what is stored of them. Other files pass."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile):
        return  # whoever reads it says what is wrong
    refuse_expansion(path, sum(member.file_size for member in members), None, unsuspected)  # members may overlap
    for member in members:
        refuse_expansion(path, member.file_size, member.compress_size, unsuspected)


def read_bytes(path: Path) -> bytes:
    """Read a file. Raises InputError if it does not exist, is no regular file or is larger than `LARGEST_TEXT`."""
    refuse_large(path, LARGEST_TEXT)
    return path.read_bytes()


def refuse_large(path: Path, most: int) -> None:
    """Raise InputError if a file is no regular file or has more bytes than `most`."""
    if (size := file_size(path)) > most:
        raise InputError(f"{path}: {size:,} bytes; expected at most {most:,}")


def read_text(path: Path) -> str:
    """Read a UTF-8 file, without a byte order mark. Raises InputError as `read_bytes` does, or if it is not UTF-8."""
    refuse_large(path, LARGEST_TEXT)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def read_json(path: Path, kind: type = object) -> Any:
    """Parse a JSON file.

    Raises InputError if the file does not exist, is too large, is not UTF-8, is not JSON, or holds something else.
    """
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also of a number with thousands of digits
        raise InputError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(value, kind):
        raise InputError(f"{path}: {value!r:.60} where {kind.__name__} was expected")
    return value


def read_optional_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file, empty if there is no such file. Raises InputError as `read_json` does."""
    return read_json(path, dict) if path.is_file() else {}


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises InputError if it does not exist, is too large, is not UTF-8 or is not TOML."""
    refuse_large(path, LARGEST_TOML)
    try:
        return parse_toml(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: not valid TOML ({error})") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError if it is none, is nested too deeply, or has a number of thousands of digits."""
    if MANY_DOTS.search(text):  # the parser's memory grows with the square of their number
        raise ValueError("a name has more than 15 dots")
    try:
        found = tomllib.loads(text)
        json.dumps(found, default=str)  # messages show numbers, but Python writes none with 5000 digits
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def read_arrays(path: Path, *names: str) -> "dict[str, NDArray[Any]]":
    """Read arrays of an .npz file, without pickles.

    Raises InputError if the file or an array is missing or damaged, or the file is larger than `LARGEST_ARRAYS`.
    """
    import numpy as np

    if not path.is_file():
        raise InputError(f"{path}: no such file; run the command of this run again")
    refuse_large(path, LARGEST_ARRAYS)
    refuse_expanding_archive(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names or arrays.files}
    # Damage may name another compression, a password, a place outside the file, or more memory than there is.
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # of the disk
        raise InputError(f"{path}: damaged ({error!s:.200}); delete it and run the command of this run again") from None


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that every parser reads: null in place of numbers that are not finite. Without indent, one line of ASCII."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=indent is None, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nan_for_null(value: Any) -> Any:
    """Scores as they were before `json_text`: NaN in place of null. Values are numbers or nested dicts of them."""
    if isinstance(value, dict):
        return {name: nan_for_null(part) for name, part in value.items()}
    return math.nan if value is None else value


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; see `json_text`."""
    write_text(path, json_text(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a regular file's bytes as 64 hex digits."""
    file_size(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def before_checksum(path: Path) -> bytes | None:
    """The bytes of a file before the SHA-256 of them (64 hex digits) at its end; None if this is another."""
    content = memoryview(path.read_bytes())
    return bytes(content[:-64]) if hashlib.sha256(content[:-64]).hexdigest().encode() == content[-64:] else None


def has_checksum(path: Path, expected: str) -> bool:
    """Whether a file has this SHA-256 (64 hex digits), or is the blob that git gives this SHA-1 (40 hex digits)."""
    if len(expected) == 64:
        return sha256_of_file(path) == expected
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == expected


@contextmanager
def atomic_file(path: Path, needed: int = 0) -> Iterator[Path]:
    """Yield a path to write to, in a temporary folder next to `path`.

    On success, what was written there is flushed to disk and replaces `path`; on error it is removed, and so are the
    folders that were made for it.

    Raises:
        DiskFullError: the disk is full, or has fewer free bytes than needed.
        OSError: another error of the disk, with the name of the file.
    """
    with _disk_errors_named(path, needed), ExitStack() as on_error:
        for parent in reversed(path.parents):
            if not parent.exists():
                on_error.callback(_remove_empty, parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", suffix=".tmp", dir=path.parent, ignore_cleanup_errors=True
        )
        with beside as folder:
            new = Path(folder, "new")
            yield new
            for file in (new, *new.rglob("*")):
                if file.is_file():
                    _flush_to_disk(file)
            if new.is_file():  # safetensors lets only the user read it
                new.chmod(0o666 & ~_umask())
            if new.is_dir() and path.exists():
                # Two renames: a kill between them leaves the old folder in the temporary one, never a mixture.
                path.replace(Path(folder, "old"))
            new.replace(path)
        on_error.pop_all()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # another process has written into it
        folder.rmdir()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` on success, as `atomic_file` does for a file."""
    with atomic_file(path) as temporary:
        temporary.mkdir()
        yield temporary


@contextmanager
def _disk_errors_named(path: Path, needed: int) -> Iterator[None]:
    """Turn every library's error of a disk within the block into an OSError that says where.

    That of a full disk also says how much is free.
    """
    existing = next(folder for folder in path.absolute().parents if folder.is_dir())

    def full() -> DiskFullError:
        wanted = f"{needed / 1e6:,.1f} MB needed, " if needed else ""
        free = f"{wanted}{shutil.disk_usage(existing).free / 1e6:,.1f} MB free"
        message = f"no space left to write {path.name}: {free}; the same command goes on from here"
        return DiskFullError(errno.ENOSPC, message, str(existing))

    if needed > shutil.disk_usage(existing).free:
        raise full()
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        number = _disk_error(error)
        if number in FULL:
            raise full() from None
        if number is None or getattr(error, "filename", None) is not None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from None


def _disk_error(error: Exception) -> int | None:
    """The number of a disk's error; None if it is another error."""
    if isinstance(error, OSError):
        # numpy drops the number when it could write only a part of an array.
        return errno.ENOSPC if "requested and" in str(error) else error.errno
    found = re.search(r"\(os error (\d+)\)", str(error))  # safetensors' own error has no number
    return int(found[1]) if found else None


def _flush_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current

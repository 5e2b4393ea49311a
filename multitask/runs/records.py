"""Read the records that runs leave behind as the types that they were written from, and write them.

Records of a complete run are vouched for by its DONE. Other records are sealed: they hold their own hash.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_json, read_text, write_json
from minbert.settings import adapter, read_as


def read_record(path: Path, kind: Any) -> Any:
    """Read a JSON file as its type: a dataclass, `dict[str, int]`, `list[str]` and so on.

    Raises:
        InputError: the file does not exist, is too large, is not UTF-8, or does not hold this type.
    """
    return read_as(kind, read_text(path), path)


@dataclass(frozen=True)
class _Sealed:
    sha256: str
    record: Any


def write_sealed(path: Path, record: Any) -> None:
    """Write a dataclass, or a value of JSON types, with a hash of it and of the file's name, atomically."""
    value = adapter(record.__class__).dump_python(record, mode="json")
    write_json(path, {"sha256": _hash(path.name, value), "record": value})


def read_sealed(path: Path, kind: Any) -> Any:
    """Read what `write_sealed` wrote, as its type.

    Raises:
        InputError: the file does not exist, holds another value than was written, or another type.
    """
    if isinstance(found := read_json(path), dict) and "sha256" not in found:
        raise InputError(f"{path}: holds no hash of its content")
    sealed = read_record(path, _Sealed)
    if _hash(path.name, sealed.record) != sealed.sha256:
        raise InputError(f"{path}: damaged; its hash does not fit its content and name")
    return read_as(kind, json.dumps(sealed.record), path)


def _hash(name: str, record: Any) -> str:
    return sha256(json.dumps([name, record], sort_keys=True).encode()).hexdigest()

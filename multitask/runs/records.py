"""Read the records that runs leave behind as the types that they were written from, and write them."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import InputError
from minbert.files import read_text, write_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def read_record(path: Path, kind: Any) -> Any:
    """Read a JSON file as its type: a dataclass, `dict[str, int]`, `list[str]` and so on.

    Raises:
        InputError: the file does not exist, is too large, is not UTF-8, or does not hold this type.
    """
    return parse_record(read_text(path), kind, path)


def parse_record(text: str, kind: Any, path: Path) -> Any:
    """The same of a text from the file."""
    from pydantic import ValidationError

    try:
        return adapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise InputError(f"{path}: {place}{first['msg']}") from None


def write_record(path: Path, record: Any) -> None:
    """Write a dataclass as indented JSON, atomically."""
    write_text(path, adapter(record.__class__).dump_json(record, indent=2).decode() + "\n")


@cache
def adapter(kind: Any) -> "TypeAdapter[Any]":
    """What reads and writes a type. To make one takes longer than to read a file with it."""
    from pydantic import TypeAdapter  # a slow import, which no help needs

    return TypeAdapter(kind)

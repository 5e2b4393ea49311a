"""Read the records that runs leave behind, as the types that they were written from."""

from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_text


def read_record(path: Path, kind: Any) -> Any:
    """Read a JSON file as its type: a dataclass, `dict[str, int]`, `list[str]` and so on.

    Raises:
        InputError: the file does not exist, is too large, is not UTF-8, or does not hold this type.
    """
    return parse_record(read_text(path), kind, path)


def parse_record(text: str, kind: Any, path: Path) -> Any:
    """The same of a text from the file."""
    from pydantic import TypeAdapter, ValidationError  # a slow import, which no help needs

    try:
        return TypeAdapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise InputError(f"{path}: {place}{first['msg']}") from None

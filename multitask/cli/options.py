"""Options: the fields of a dataclass as flags on the command line and as keys of a settings file.

An option is declared once, as a field with a docstring under it. A field whose type is another dataclass stands for the
fields of that dataclass. A dataclass with a class method `parse` is a single option that
is given as text; with a static method `explain` its values have descriptions.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from minbert.errors import InputError

POSITIONAL = {"positional": True}
"""Metadata of a field that is given without a flag."""


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        path: the fields that lead to it, its own name last.
        kind: its type.
        default: its default; MISSING if a value must be given.
        help: what it means.
        section: what the dataclass that declares it is about, as a heading.
        positional: whether it is given without a flag.
    """

    path: tuple[str, ...]
    kind: Any
    default: Any
    help: str
    section: str
    positional: bool = False

    @property
    def name(self) -> str:
        """The name in Python and in settings files."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return self.name if self.positional else f"--{self.name.replace('_', '-')}"

    def read(self, value: Any, source: str) -> Any:
        """The value that a settings file gives. Raises InputError that names the source if it has the wrong type."""
        try:
            return convert(self.kind, value)
        except InputError as error:
            raise InputError(f"{source}: {self.name}: {error}") from None
        except ValueError:
            shown = f'"{value}"' if isinstance(value, str) else value
            raise InputError(f"{source}: {self.name} is {shown}; expected {expected(self.kind)}") from None

    def read_text(self, text: str | list[str] | bool) -> Any:
        """The value that the command line gives. Raises InputError if it has the wrong type."""
        try:
            return convert(self.kind, _parse(self.kind, text))
        except ValueError:
            shown = " ".join(text) if isinstance(text, list) else text
            raise InputError(f"{self.flag} {shown}: expected {expected(self.kind)}") from None


def options_of(options: type[Any], path: tuple[str, ...] = (), values: Any = None) -> Iterator[Option]:
    """The options that a dataclass declares, in order.

    Args:
        options: the dataclass.
        path: the fields that lead to it.
        values: an instance with the defaults; None: the fields' own defaults.
    """
    texts, kinds = help_texts(options), get_type_hints(options)
    section = (options.__doc__ or "").partition("\n")[0].rstrip(".") if path else ""
    for field in fields(options):
        kind, positional = kinds[field.name], "positional" in field.metadata
        default = getattr(values, field.name) if values is not None else field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if is_nested(kind):
            yield from options_of(kind, (*path, field.name), default)
        else:
            text = field.metadata.get("help") or texts.get(field.name, "")
            yield Option((*path, field.name), kind, default, text, section, positional)


def build(options: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance of a dataclass, nested dataclasses included, from the values of all its options by name."""
    kinds = get_type_hints(options)
    names = [field.name for field in fields(options)]
    return options(**{n: build(kinds[n], values) if is_nested(kinds[n]) else values[n] for n in names})


def is_nested(kind: Any) -> bool:
    """Whether a field of this type stands for several options."""
    return is_dataclass(kind) and not hasattr(kind, "parse")


def help_texts(options: type[Any]) -> dict[str, str]:
    """The docstrings under a dataclass's fields, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(options.__mro__):
        try:
            (body,) = ast.parse(dedent(inspect.getsource(base))).body
        except (OSError, TypeError):  # a class that has no source: built in, or made for a stage
            continue
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(written))):
                    found[name] = " ".join(written.split())
    return found


# Values.


def optional(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was part of it."""
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    (inner,) = [part for part in get_args(kind) if part is not NoneType]
    return inner, True


def convert(kind: Any, value: Any) -> Any:
    """A value of TOML or JSON as this type. Raises ValueError for a value of another type."""
    kind, may_be_none = optional(kind)
    if may_be_none and (value is None or (value == "none" and kind is not str)):  # TOML has no null
        return None
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(convert(get_args(kind)[0], item) for item in value)
    if get_origin(kind) is Literal and value in get_args(kind) and isinstance(value, str):
        return value
    if kind in (int, float) and isinstance(value, kind | int) and not isinstance(value, bool):
        return kind(value)
    if (kind is bool and isinstance(value, bool)) or (kind is str and isinstance(value, str)):
        return value
    if kind is Path and isinstance(value, str):
        return Path(value)
    if hasattr(kind, "parse") and isinstance(value, str):
        return kind.parse(value)
    if hasattr(kind, "parse") and isinstance(value, dict) and value.keys() == {field.name for field in fields(kind)}:
        return kind(**value)
    raise ValueError(value)


def _parse(kind: Any, text: str | list[str] | bool) -> Any:
    """Text of the command line as a value of JSON types."""
    kind, may_be_none = optional(kind)
    if may_be_none and text in ("none", "None", ["none"], ["None"]):
        return None
    if isinstance(text, list):
        return [_parse(get_args(kind)[0], item) for item in text]
    return kind(text) if kind in (int, float) else text


def expected(kind: Any) -> str:
    """What a value of this type is, in words."""
    kind, may_be_none = optional(kind)
    if get_origin(kind) is tuple:
        text = f"a list, each item {expected(get_args(kind)[0])}"
    elif get_origin(kind) is Literal:
        text = f"one of: {', '.join(get_args(kind))}"
    else:
        names = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
        text = names.get(kind, getattr(kind, "form", "text"))
    return f'{text}, or "none"' if may_be_none and kind is not str else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is most alike, as the end of an error; empty if none is alike."""
    return f"; did you mean {close[0]}?" if (close := get_close_matches(name, known, 1)) else ""

"""Options: the fields of a dataclass as flags on the command line and as keys of a settings file.

An option is declared once, as a field with a docstring under it. A field whose type is another dataclass stands for the
fields of that dataclass. A dataclass with a class method `parse` is a single option that is given as text; with a
static method `explain` its values have descriptions.
"""

import ast
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from minbert.errors import InputError
from multitask.data.problems import plain

POSITIONAL = {"positional": True}
"""Metadata of a field that is given without a flag."""

KINDS: dict[Any, tuple[str, str, set[type]]] = {
    bool: ("", "true or false", {bool}),
    int: ("INT", "a whole number", {int}),
    float: ("NUMBER", "a number", {int, float}),
    str: ("TEXT", "text", {str}),
    Path: ("PATH", "a path", {str}),
}
"""For each type: its placeholder on help pages, its name in errors, and the types of TOML and JSON it is read from."""


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        path: the fields that lead to it, its own name last.
        kind: the type of its value, or of each of several values.
        default: its default; MISSING if a value must be given.
        help: what it means.
        section: what the dataclass that declares it is about, as a heading.
        positional: whether it is given without a flag.
        several: whether it takes several values.
        may_be_none: whether it takes `none`.
        choices: the values that it takes, if they are few.
    """

    path: tuple[str, ...]
    kind: Any
    default: Any
    help: str
    section: str = ""
    positional: bool = False
    several: bool = False
    may_be_none: bool = False
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in Python and in settings files."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return self.name if self.positional else f"--{self.name.replace('_', '-')}"

    def read(self, value: Any, label: str) -> Any:
        """The value from one of TOML or JSON. Raises InputError that begins with the label if it has the wrong type."""
        if self.may_be_none and value in (None, "none", ["none"]):  # TOML has no null
            return None
        try:
            if self.several and not isinstance(value, list):
                raise ValueError(value)
            return tuple(map(self._read_one, value)) if self.several else self._read_one(value)
        except (ValueError, OverflowError):  # an int may be too large for a float
            expected = f"one of: {', '.join(self.choices)}" if self.choices else KINDS.get(self.kind, ("", "text"))[1]
            list_of, or_none = "a list, each item " * self.several, ', or "none"' * self.may_be_none
            shown = plain(json.dumps(value, ensure_ascii=False, default=str))
            raise InputError(f"{label} is {shown}; expected {list_of}{expected}{or_none}") from None

    def _read_one(self, value: Any) -> Any:
        if hasattr(self.kind, "parse"):
            if isinstance(value, str):
                return self.kind.parse(value)
            if isinstance(value, dict) and value.keys() == {field.name for field in fields(self.kind)}:
                return self.kind(**value)
        elif value in self.choices:
            return value
        elif self.kind in KINDS and type(value) in KINDS[self.kind][2]:
            return self.kind(value)
        raise ValueError(value)


def options_of(options: type[Any], path: tuple[str, ...] = (), values: Any = None) -> Iterator[Option]:
    """The options that a dataclass declares, in order.

    Args:
        options: the dataclass.
        path: the fields that lead to it.
        values: an instance with the defaults; None: the fields' own defaults.
    """
    texts = help_texts(options)  # type: ignore[arg-type]  # mypy takes no class for hashable
    kinds = get_type_hints(options)
    section = (options.__doc__ or "").partition("\n")[0].rstrip(".") if path else ""
    for field in fields(options):
        kind, here = kinds[field.name], (*path, field.name)
        default = getattr(values, field.name) if values is not None else field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if is_nested(kind):
            yield from options_of(kind, here, default)
            continue
        if may_be_none := NoneType in get_args(kind):
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        if several := get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        text, positional = field.metadata.get("help") or texts.get(field.name, ""), "positional" in field.metadata
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        yield Option(here, kind, default, text, section, positional, several, may_be_none, choices)


def build(options: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance of a dataclass, nested dataclasses included, from the values of all its options by name."""
    kinds = get_type_hints(options)
    names = [field.name for field in fields(options)]
    return options(**{n: build(kinds[n], values) if is_nested(kinds[n]) else values[n] for n in names})


def is_nested(kind: Any) -> bool:
    """Whether a field of this type stands for several options."""
    return is_dataclass(kind) and not hasattr(kind, "parse")


@cache
def help_texts(options: type[Any]) -> Mapping[str, str]:
    """The docstrings under a dataclass's fields, inherited ones included. Python keeps them in the source alone."""
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is most alike, as the end of an error; empty if none is alike."""
    return f"; did you mean {close[0]}?" if (close := get_close_matches(name, known, 1)) else ""

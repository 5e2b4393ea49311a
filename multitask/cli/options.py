"""Options: the fields of a settings class as flags on the command line and as keys of a settings file.

An option is declared once, as a field with a docstring under it. A field whose type is another settings class stands
for the fields of that class. A class with a method `parse` is a single option that is given as text; with a static
method `explain` its values have descriptions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from minbert.settings import help_texts, read_as

POSITIONAL = {"positional": True}
"""Metadata of a field that is given without a flag."""
FLAGS_TO_DEPTH = 2
"""Fields that are nested deeper are no flags, unless a command names them as common ones: `--set` sets them."""


@dataclass(frozen=True)
class Option:
    """One option."""

    path: tuple[str, ...]  # the fields that lead to it, its own name last
    kind: Any  # the type of its value, or of each of several values
    default: Any  # MISSING if a value must be given
    help: str
    section: str = ""  # what the class that declares it is about, as a heading
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

    def read(self, value: Any) -> Any:
        """What a value from TOML, JSON or the command line stands for; `build` checks it."""
        if self.may_be_none and value in (None, "none", ["none"]):  # TOML has no null
            return None
        return [value] if self.several and not isinstance(value, list) else value


def options_of(options: type[Any], path: tuple[str, ...] = (), values: Any = None) -> Iterator[Option]:
    """The options that a settings class declares, in order.

    Args:
        options: the class.
        path: the fields that lead to it.
        values: an instance with the defaults; None: the fields' own defaults.
    """
    texts, kinds = help_texts(options), get_type_hints(options)
    section = (options.__doc__ or "").partition("\n")[0].rstrip(".") if path else ""
    own = vars(options).get("__annotations__", {})
    missing = (MISSING, MISSING)
    # Required ones first, inherited ones last.
    for field in sorted(fields(options), key=lambda f: ((f.default, f.default_factory) != missing, f.name not in own)):
        kind, here = kinds[field.name], (*path, field.name)
        default = getattr(values, field.name) if values is not None else field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if is_dataclass(kind) and not hasattr(kind, "parse"):
            yield from options_of(kind, here, default)  # type: ignore[arg-type]  # a class, not an instance
            continue
        if may_be_none := NoneType in get_args(kind):
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        if several := get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        text, positional = field.metadata.get("help") or texts.get(field.name, ""), "positional" in field.metadata
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        yield Option(here, kind, default, text, section, positional, several, may_be_none, choices)


def build(kind: type[Any], options: Sequence[Option], values: Mapping[str, Any]) -> Any:
    """An instance of a settings class from the values of its options by name.

    Raises:
        InputError: a value is missing, of the wrong type or out of range; the message begins with the fields that lead
            to it.
    """
    nested: dict[str, Any] = {}
    for option in options:
        group = nested
        for part in option.path[:-1]:
            group = group.setdefault(part, {})
        if option.name in values:
            group[option.name] = values[option.name]
    return read_as(kind, json.dumps(nested, default=str))


def named_as_given(error: str, options: Sequence[Option], labels: Mapping[str, str]) -> str:
    """An error that begins with an option, or with the fields that lead to it, with the option's label instead."""
    begin, space, rest = error.partition(" ")
    for option in options:
        path = ".".join(option.path)
        if begin.rstrip(":") in (path, option.name) or begin.startswith(f"{path}."):
            found = begin.removeprefix(path).removeprefix(option.name)
            return f"{labels.get(option.name, option.name)}{found}{space}{rest}"
    return error

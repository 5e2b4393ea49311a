"""What `--help` shows: the options that people use. `--help-all` shows all of them."""

from collections.abc import Collection
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro


def short_form(options: Any, common: Collection[str]) -> Any:
    """A subclass of a dataclass of options that shows only the common ones. tyro finds the help texts in the original.

    Args:
        options: the dataclass; options of nested dataclasses count by their own names.
        common: names of the options to show.
    """
    hints = get_type_hints(options, include_extras=True)
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for option in fields(options):
        inner = get_args(hints[option.name])[0] if get_origin(hints[option.name]) is Annotated else hints[option.name]
        if is_dataclass(inner):
            annotations[option.name] = shown = short_form(inner, common)
            nested = _of_class(shown, _default(option))
            defaults[option.name] = field(default_factory=partial(_same, nested))
        elif option.name not in common:
            annotations[option.name] = Annotated[hints[option.name], tyro.conf.Suppress]
            defaults[option.name] = _default(option)
    made = type(options.__name__, (options,), {"__annotations__": annotations, "__doc__": options.__doc__, **defaults})
    return dataclass(frozen=True)(made)


def _of_class(shown: Any, value: Any) -> Any:
    """A configuration as an instance of its short form."""
    hints = get_type_hints(shown)
    parts = {part.name: getattr(value, part.name) for part in fields(value)}
    nested = {name: _of_class(hints[name], part) if is_dataclass(part) else part for name, part in parts.items()}
    return shown(**nested)


def _same(value: Any) -> Any:
    return value


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()

"""Settings that check their own values, and the one reader of settings and records from JSON and TOML types."""

import ast
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache, wraps
from itertools import pairwise
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from minbert.errors import InputError

T = TypeVar("T")
MAX_SEED = 2**63 - 1
"""The largest seed that torch takes."""
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]

_WORDS = {
    "Input should be": "expected",
    r"String should match pattern '^\P{C}+$'": "expected a name without control characters",
    "a valid array": "a list",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid ": "a ",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
}


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def settings(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass that checks its values when it is made.

    Ranges are part of the types, as in `Annotated[int, Field(ge=1)]`. Numbers are finite. The docstring under a field
    is its help text. A value of the wrong type, out of range or without a field raises InputError.
    """
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    made: Any = dataclass(cls, frozen=True, config=config)
    check = made.__init__

    @wraps(check)
    def init(self: Any, *values: Any, **named: Any) -> None:
        try:
            check(self, *values, **named)
        except ValidationError as error:
            raise input_error(error, fields=list(made.__pydantic_fields__)) from None

    made.__init__ = init
    return made


def help_texts(kind: type) -> dict[str, str]:
    """The docstrings under the fields of settings, inherited ones included. Python keeps them in the source alone."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _field_docstrings(base.__module__).get(base.__name__, {})
    return found


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings under fields, by class and field. Pydantic's own way reads the file again for every class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # a module without source
        return {}
    found: dict[str, dict[str, str]] = {}
    for kind in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for statement, text in pairwise(kind.body):
            match statement, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(written))):
                    found.setdefault(kind.name, {})[name] = " ".join(written.split())
    return found


def read_as(kind: Any, written: str | Mapping[str, Any], place: object = "") -> Any:
    """The value of a type (a dataclass, `list[str]` and so on) that a JSON text, or its object, from `place` holds.

    Nothing is converted: "3" is no number. Raises InputError for what is not JSON, a value of another type or out of
    range, a missing or an unknown field.
    """
    try:
        text = written if isinstance(written, str) else json.dumps(written, default=str)
        return adapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        raise input_error(error, place) from None
    except InputError as error:  # what a dataclass checks itself
        raise InputError(f"{place}: {error}" if place else str(error)) from None


def input_error(error: ValidationError, place: object = "", fields: Sequence[str] = ()) -> InputError:
    """The first problem that a validation found, as one line; `fields` are the names of positional values."""
    problems = error.errors(include_url=False)
    first, where = problems[0], _place(problems[0]["loc"], fields)
    name = ".".join(map(str, where))
    if first["type"] in ("missing", "missing_argument"):
        message = f"{name} is missing"
    elif first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        message = f"{name}: no such setting"
    elif first["type"] == "value_error":
        message = f"{name}: {first['msg'].removeprefix('Value error, ')}"
    else:
        # Of a union, each type says what it expects.
        messages = dict.fromkeys(problem["msg"] for problem in problems if _place(problem["loc"], fields) == where)
        message = " or ".join(messages).replace(" or Input should be ", " or ")
        for pydantics, ours in _WORDS.items():
            message = message.replace(pydantics, ours)
        value = json.dumps(first["input"], ensure_ascii=False, default=str)
        message = f"{name} is {value:.80}; {message}" if name else message
    return InputError(f"{place}: {message}" if place else message)


def _place(loc: tuple[int | str, ...], fields: Sequence[str]) -> list[int | str]:
    """The names of fields and numbers of items that lead to a value, without the names of a union's types."""
    named = [*loc]
    if fields and named and isinstance(named[0], int):
        named[0] = fields[named[0]]
    types = ("str", "int", "float", "bool")
    return [part for part in named if isinstance(part, int) or (part.isidentifier() and part not in types)]


def as_json(value: Any) -> Any:
    """The value of a dataclass as JSON types, which `read_as` reads."""
    kind: Any = type(value)
    return adapter(kind).dump_python(value, mode="json")


@cache
def adapter(kind: Any) -> "TypeAdapter[Any]":
    """What reads and writes a type. To make one takes longer than to read a file with it."""
    return TypeAdapter(kind)

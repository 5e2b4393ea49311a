"""Parameters of objectives. A field of an objective's class declares a name, a range, a default and a help text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args, get_type_hints

from minbert.errors import InputError


def number(
    default: float | None,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    help: str = "",  # noqa: A002
) -> Any:
    """A field for a number: its default, its range (`above` excludes the bound itself) and its help text."""
    return field(default=default, metadata={"above": above, "least": least, "most": most, "help": help})


def choice(default: str, *, help: str = "") -> Any:  # noqa: A002
    """A field for one of the texts that its annotation lists, `Literal["a", "b"]`."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Parameter:
    """A parameter as a class declares it."""

    name: str
    default: Any
    kind: Any  # the annotation: float, float | None, or Literal[...]
    metadata: Mapping[str, Any]  # from `number` or `choice`

    @property
    def help(self) -> str:
        return self.metadata.get("help", "")

    @property
    def expected(self) -> str:
        """The valid values in words, e.g. "a number above 0 or None (off)"."""
        if "least" not in self.metadata:
            return " or ".join(f'"{text}"' for text in get_args(self.kind))
        above, least, most = (self.metadata[bound] for bound in ("above", "least", "most"))
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
        bounds += [f"at most {most:g}"] * (most < math.inf)
        return f"a number {' and '.join(bounds)}".rstrip() + (" or None (off)" if self._optional else "")

    def checked(self, value: object, objective: str) -> object:
        """The value, an int as a float.

        Raises:
            InputError: out of range or of the wrong type; the message names `objective` and the valid values.
        """
        if "least" not in self.metadata:
            ok = value in get_args(self.kind)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = float(value)
            above, least, most = (self.metadata[bound] for bound in ("above", "least", "most"))
            ok = math.isfinite(value) and value > above and least <= value <= most
        else:
            ok = value is None and self._optional
        if not ok:
            raise InputError(f"{objective}: {self.name} is {value!r}; expected {self.expected}")
        return value

    @property
    def _optional(self) -> bool:
        return type(None) in get_args(self.kind)


def parameters(objective: type) -> dict[str, Parameter]:
    """The parameters of an objective's class by name, in the order of their declaration."""
    kinds = get_type_hints(objective)
    return {f.name: Parameter(f.name, f.default, kinds[f.name], f.metadata) for f in fields(objective)}


def text_of(value: float | str | None) -> str:
    """A parameter's value as the command line reads it."""
    if isinstance(value, str):
        return value
    return "none" if value is None else repr(value).removesuffix(".0")

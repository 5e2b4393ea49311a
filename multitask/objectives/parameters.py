"""Parameters of objectives: their ranges and the check."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_args

from minbert.errors import InputError


def number(default: float | None, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Any:
    """A numeric parameter of an objective: its default and its range (`above` excludes the bound itself)."""
    return field(default=default, metadata={"above": above, "least": least, "most": most})


def checked(objective: str, name: str, kind: Any, metadata: Mapping[str, float], value: object) -> object:
    """The value of a parameter, an int as a float.

    Args:
        objective: its name, for the message.
        name: of the parameter.
        kind: its annotation.
        metadata: from `number`; empty for a choice, `Literal["a", "b"]`.
        value: as given.

    Raises:
        InputError: out of range, or of the wrong kind.
    """
    if not metadata:
        expected = " or ".join(f'"{choice}"' for choice in get_args(kind))
        ok = value in get_args(kind)
    else:
        above, least, most = metadata["above"], metadata["least"], metadata["most"]
        optional = type(None) in get_args(kind)
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"at least {least:g}"] * (least > -math.inf)
        bounds += [f"at most {most:g}"] * (most < math.inf)
        expected = f"a number {' and '.join(bounds)}".rstrip() + (" or None (off)" if optional else "")
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = float(value)
            ok = math.isfinite(value) and value > above and least <= value <= most
        else:
            ok = value is None and optional
    if not ok:
        raise InputError(f"{objective}: {name} is {value!r}; expected {expected}")
    return value

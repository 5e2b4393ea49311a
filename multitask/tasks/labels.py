"""Labels as they are written in files: text, numbers, lists, or blank."""

import json
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
EXACT = 2.0**53
"""From here on, different whole numbers may be the same float."""
LARGEST = float(np.finfo(np.float32).max)


def canonical(value: Any) -> str | None:
    """The name of a class: equal numbers have equal names (1, 1.0 and "1"); None if the value is blank.

    Raises ValueError if it is neither text nor a number.
    """
    if isinstance(value, str):
        text = value.strip()
        if NUMBER.fullmatch(text) and abs(float(text)) < EXACT:
            return canonical(float(text))
        return text or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)
    raise ValueError("expected a name or a number")


def number(value: Any) -> float | None:
    """A finite number; NaN of anything else; None if the value is blank. (`float` would also take `nan` and `1_0`.)"""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        value = float(text) if NUMBER.fullmatch(text) else math.nan
    # `Examples` keeps labels in fp32.
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return float(value) if is_number else math.nan


def parts(value: Any, separator: str) -> list[str] | None:
    """The labels in a list, in the text of a JSON list, or in a text with separators; None if the value is blank."""
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        try:
            listed = json.loads(text) if text.startswith("[") else text.split(separator)
        except (ValueError, RecursionError):
            raise ValueError(f"expected names with {separator} between them, or a JSON list") from None
    elif value is None:
        return None
    else:
        listed = value if isinstance(value, list) else [value]
    found = map(canonical, listed)
    return list(dict.fromkeys(name for name in found if name is not None))


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in the order of their classes: numbers by value, otherwise by the alphabet."""
    distinct = set(names)
    if all(map(NUMBER.fullmatch, distinct)):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct))

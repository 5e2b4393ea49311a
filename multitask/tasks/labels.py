"""Labels as they are written in files: text, numbers, lists, or blank."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from multitask.data.invisible import REMOVED, seen

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LARGEST = float(np.finfo(np.float32).max)


QUOTES = "\"'`´“”„‘’‚«»‹›"
TRUTH = {"false": "0", "true": "1"}
FLAGS = {"0": False, "1": True, "false": False, "true": True}


def label_name(value: Any) -> str | None:
    """The name of a class: text as it is written, without the white space around it; None if the value is blank.

    A whole number that is not text has no decimal point: integers are often stored as floats, for missing cells.
    Raises ValueError if the value is neither text nor a number.
    """
    if isinstance(value, str):
        return seen(value) or None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, int | float):
        raise ValueError("expected a name or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def flag(value: Any) -> bool | None:
    """Whether a label applies, by 0 or 1, false or true; None if the value is blank. Raises ValueError otherwise."""
    name = label_name(value)
    if name is None:
        return None
    found = FLAGS.get(f"{float(name):g}" if NUMBER.fullmatch(name) else name.lower())
    if found is None:
        raise ValueError("expected 0 or 1")
    return found


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
        text = seen(value)
        if not text:
            return None
        try:
            as_written: dict[str, Any] = {"parse_int": str, "parse_float": str}
            listed = json.loads(text, **as_written) if text.startswith("[") else text.split(separator)
        except (ValueError, RecursionError):
            raise ValueError(f"expected names with {separator} between them, or a JSON list") from None
    elif value is None:
        return None
    else:
        listed = value if isinstance(value, list) else [value]
    found = map(label_name, listed)
    return list(dict.fromkeys(name for name in found if name is not None))


def alike(name: str) -> str | float:
    """The same for names that people take for one: they differ in case, quotes, signs between words, what nobody sees,
    how accents or widths are stored, or as numbers are written; `true` is 1.
    """
    text = REMOVED.sub("", unicodedata.normalize("NFKC", name)).casefold()
    text = unicodedata.normalize("NFC", text).strip().strip(QUOTES).strip()
    text = re.sub(r"(?<=\w)[\s_‐‑–-]+(?=\w)", " ", TRUTH.get(text, text))
    return float(text) if NUMBER.fullmatch(text) else text or name


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in the order of their classes: numbers by value, otherwise by the alphabet."""
    distinct = set(names)
    if all(map(NUMBER.fullmatch, distinct)):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct))

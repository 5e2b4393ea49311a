"""Parameters of objectives: the fields of an objective's class, in the words of help texts and errors."""

from types import NoneType
from typing import get_args

from pydantic.fields import FieldInfo

NOTATION = """u_i, v_i: unit embeddings of the anchor and the positive of pair i, of N pairs
s_ij = u_i·v_j, sg: stop-gradient, [x]_+ = max(x, 0)"""
LARGEST_WEIGHT = 1e6
"""Upper limit of factors and exponents: products of two of them and a sum over a batch stay finite in fp32."""
SMALLEST_TEMPERATURE = 1e-6
"""Lower limit of temperatures: a cosine divided by it, and the gradient, stay finite in fp32."""
_BOUNDS = {"gt": "above", "ge": "at least", "le": "at most"}


def parameters(objective: type) -> dict[str, FieldInfo]:
    """The parameters of an objective's class by name, in the order of their declaration."""
    return objective.__pydantic_fields__  # type: ignore[attr-defined]  # of pydantic's dataclasses


def help_texts(objective: type) -> dict[str, str]:
    """The docstrings under the fields of an objective's class, inherited ones included. Pydantic has a class's own."""
    declared = [vars(base).get("__pydantic_fields__", {}) for base in reversed(objective.__mro__)]
    texts = {name: field.description for fields in declared for name, field in fields.items() if field.description}
    return {name: " ".join(text.split()) for name, text in texts.items()}


def bounds(parameter: FieldInfo) -> dict[str, float]:
    """The bounds of a number: above `gt`, at least `ge`, at most `le`."""
    return {name: getattr(part, name) for part in parameter.metadata for name in _BOUNDS if hasattr(part, name)}


def choices(parameter: FieldInfo) -> tuple[str, ...]:
    """The texts that a parameter takes; empty for a number."""
    return tuple(choice for choice in get_args(parameter.annotation) if isinstance(choice, str))


def optional(parameter: FieldInfo) -> bool:
    """Whether a parameter can be off."""
    return NoneType in get_args(parameter.annotation)


def expected(parameter: FieldInfo) -> str:
    """The valid values in words, e.g. "a number above 0 or none (off)"."""
    if texts := choices(parameter):
        return " or ".join(f'"{text}"' for text in texts)
    limits = " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in bounds(parameter).items())
    return f"a number {limits}".rstrip() + " or none (off)" * optional(parameter)


def text_of(value: float | str | None) -> str:
    """A parameter's value as the command line reads it."""
    if isinstance(value, str):
        return value
    return "none" if value is None else repr(value).removesuffix(".0")

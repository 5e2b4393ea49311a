"""Templates of the reports. They escape inserted text as their format requires."""

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from multitask.evaluation.markup import latex
from multitask.evaluation.text_tables import capitalized

DELIMITERS = {"block": "%", "variable": "=", "comment": "#"}  # for LaTeX, which uses braces itself


@cache  # with it the compiled templates: a report has one of the same template for each table
def environment(kind: str) -> Environment:
    """The environment of templates in html, markdown or latex."""
    delimiters: dict[str, Any] = {}
    finalize: Callable[[Any], Any] | None = None
    if kind == "latex":
        delimiters = {f"{part}_start_string": f"<{sign}" for part, sign in DELIMITERS.items()}
        delimiters |= {f"{part}_end_string": f"{sign}>" for part, sign in DELIMITERS.items()}
        finalize = latex
    made = Environment(
        loader=PackageLoader("studies", "report"),
        autoescape=kind == "html",
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **delimiters,
    )
    made.filters["capitalized"] = capitalized
    return made

"""Functions by name, imported when they are first called: `--help` must not wait for torch."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def function_named(name: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found

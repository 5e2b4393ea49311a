"""Losses over sentence pairs: raw embeddings in, a scalar out. They do not depend on a model.

`build_objective(name, **parameters)` makes one, `OBJECTIVES` has all by name, `OBJECTIVES.describe(name)` explains one.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multitask.objectives.base import OBJECTIVES, Objective, build_objective
    from multitask.objectives.geometry import alignment, uniformity, unit

__all__ = ["OBJECTIVES", "Objective", "alignment", "build_objective", "uniformity", "unit"]


def __getattr__(name: str) -> Any:
    """Import every file on first use, so that `--help` does not wait for torch. Each file registers its objectives."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return next(getattr(module, name) for module in modules if hasattr(module, name))

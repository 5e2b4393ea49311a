"""Losses over sentence pairs: raw embeddings in, a scalar out. They do not depend on a model.

`build_objective(name, **parameters)` makes one, `OBJECTIVES` has all by name, `OBJECTIVES.describe(name)` explains one.
"""

from importlib import import_module
from pkgutil import iter_modules

from multitask.objectives.base import OBJECTIVES, Objective, build_objective
from multitask.objectives.geometry import alignment, uniformity, unit

__all__ = ["OBJECTIVES", "Objective", "alignment", "build_objective", "uniformity", "unit"]

for _module in iter_modules(__path__):  # each file registers its objectives
    import_module(f"{__name__}.{_module.name}")

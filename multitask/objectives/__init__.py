"""Losses over sentence pairs: raw embeddings in, a scalar out. They know nothing of models.

`build_objective(name, **parameters)` makes one; `OBJECTIVES` lists them by name.
"""

from importlib import import_module
from pkgutil import iter_modules

from multitask.objectives.alignment_uniformity import alignment, uniformity, unit
from multitask.objectives.base import OBJECTIVES, Objective, build_objective

__all__ = ["OBJECTIVES", "Objective", "alignment", "build_objective", "uniformity", "unit"]

# Each file of the package registers its own objectives, so that a new file needs no mention here.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

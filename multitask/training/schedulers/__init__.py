"""Schedulers: how several tasks share the training steps.

`build_scheduler(config, device)` builds a scheduler; `SCHEDULERS` has all of them by name.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multitask.training.schedulers.base import SCHEDULERS, Scheduler, build_scheduler

__all__ = ["SCHEDULERS", "Scheduler", "build_scheduler"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `--help` does not wait for torch. Each file registers its own schedulers."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return next(getattr(module, name) for module in modules if hasattr(module, name))

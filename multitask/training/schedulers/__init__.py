"""Schedulers: how several tasks share the training steps.

`build_scheduler(config, device)` builds a scheduler; `SCHEDULERS` has all of them by name.
"""

from importlib import import_module
from pkgutil import iter_modules

from multitask.training.schedulers.base import SCHEDULERS, Scheduler, build_scheduler

__all__ = ["SCHEDULERS", "Scheduler", "build_scheduler"]

for _module in iter_modules(__path__):  # each file registers its schedulers
    import_module(f"{__name__}.{_module.name}")

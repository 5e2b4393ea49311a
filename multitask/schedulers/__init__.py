"""Schedulers: how the tasks' batches make optimizer steps, and how the losses of one step make one gradient.

Each is a small class; the training loop, resume and evaluation are the same for all. `build_scheduler` makes the
configured one; `SCHEDULERS` lists them by name.
"""

from importlib import import_module
from pkgutil import iter_modules

from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import SCHEDULERS, Scheduler, build_scheduler

__all__ = ["SCHEDULERS", "AverageLoss", "Scheduler", "build_scheduler"]

# Each file of the package registers its own schedulers, so that a new file needs no mention here.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

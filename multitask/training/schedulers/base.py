"""The scheduler `average`, which is the base class of all others, and their registry by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.base.choices_with_parameters import Registry, parameter_class, parameters
from multitask.base.device import generator_states, restore_generators
from multitask.data.examples import RowNumbers
from multitask.training.schedulers.task_gradients import TaskGradients
from multitask.training.settings import ScheduledTraining
from multitask.training.source import Batch, Losses, Trainable, Update

SCHEDULERS = Registry["Scheduler"]("scheduler")
"""Every scheduler's class by name. `register` fills it."""
CPU = torch.device("cpu")

_Kind = TypeVar("_Kind", bound="type[Scheduler]")


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: in `SCHEDULERS` under this name. The annotated fields of the class are its parameters."""

    def add(kind: _Kind) -> _Kind:
        kind.Parameters = parameter_class(kind, nn.Module)
        SCHEDULERS[name] = kind
        return kind

    return add


@register("average")
class Scheduler(nn.Module):
    """Decides how tasks share the training steps; this one trains on the average of their losses.

    Each step takes a batch of every task and the weighted mean of their losses (report, section 4.2). All tasks are
    encoded in one packed call. As in the report, every epoch uses as many rows of each task as the smallest training
    set has; those of larger sets are drawn anew in each epoch.

    A scheduler is a module, because it may have parameters and state. The stage makes it part of the module that it
    trains, so that its parameters are optimised and its state is saved with the run.

    Raises InputError if it does not fit the configured tasks.
    """

    accumulates: ClassVar[bool] = True
    """Whether it may get an update in parts. If not, it needs the losses of whole batches before any gradient."""
    one_a_step: ClassVar[bool] = False
    """Whether each step trains one task."""
    ignores_weights = False
    """Whether the direction of the update is the same whatever the tasks' weights are."""
    Parameters: ClassVar[type]
    """A dataclass of its parameters."""

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__()
        vars(self).update(vars(config.scheduler.build()))
        self.config = config
        self.device = device  # of its own parameters and state
        # Each task's loss is multiplied by its factor first.
        self.weights = dict(zip(config.tasks, config.task_weights or [1.0] * len(config.tasks), strict=True))

    @classmethod
    def notes(cls) -> list[str]:
        """Further paragraphs of its description."""
        cancel = ["Task weights: the direction of the encoder's update does not depend on them."]
        return [f"Gradient accumulation: {'possible' if cls.accumulates else 'none'}", *cancel * cls.ignores_weights]

    def arguments(self) -> dict[str, Any]:
        """Its parameters and their values, for a class of torchjd."""
        return {name: getattr(self, name) for name in parameters(type(self))}

    def epoch_sizes(self, sizes: Mapping[str, int], epoch: int) -> dict[str, int]:
        """How many rows of each task an epoch (from 0) has, given the sizes of the training sets."""
        return dict.fromkeys(sizes, self.config.epoch_size or min(sizes.values()))

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        """Arrange each task's batches as the updates of an epoch."""
        return [
            tuple(Batch(name, rows) for name, rows in zip(batches, step, strict=True))
            for step in zip(*batches.values(), strict=True)
        ]

    def weighted(self, losses: Losses) -> Tensor:
        """The losses times the tasks' factors, [tasks]."""
        return torch.stack([self.weights[name] * term for name, term in losses.terms.items()])

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        """Put the update's gradient into the parameters; return the losses, detached."""
        found = Losses({}, 0)
        for part in trainable.parts(update):
            losses = trainable.losses(part)
            (self.weighted(losses).sum() / len(update)).backward()
            found = found.plus(losses.detached())
        return found

    def conflicts(self, trainable: Trainable, update: Update) -> dict[str, Tensor]:
        """How much the tasks' gradients conflict on one batch of every task; see `TaskGradients.conflicts`.

        Called between `backward` and the step. Does not change parameters, their gradients or random generators.
        """
        gradients = TaskGradients(trainable.module, self.weights)
        before = generator_states(gradients.matrix.device)
        for batch in update:
            gradients.compute(trainable, batch)
        restore_generators(before)
        return gradients.conflicts()


def build_scheduler(config: ScheduledTraining, device: torch.device) -> Scheduler:
    """Build the scheduler that a configuration names, with its own parameters on the device.

    Raises:
        InputError: an unknown scheduler or parameter, one that does not fit the tasks, or missing packages.
    """
    name = config.scheduler.name
    config.scheduler.build()
    scheduler = SCHEDULERS[name](config, device)
    if config.accumulate > 1 and not scheduler.accumulates:
        raise InputError(
            f"accumulate is {config.accumulate}; expected 1 with the scheduler {name}, which weighs the losses of "
            "whole batches"
        )
    return scheduler

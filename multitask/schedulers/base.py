"""What every scheduler has, and the register of them all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.data.shuffle_and_batch import Rows
from multitask.schedulers.config import ScheduledTraining
from multitask.schedulers.task_gradients import TaskGradients
from multitask.training.trainable import Losses, Trainable, Update


class Scheduler(nn.Module, ABC):
    """How several tasks share the steps.

    A module, because a scheduler may learn and remember: the stage makes it a part of what it trains, so that its
    parameters are optimised and its state is saved with the run's.

    Args:
        weights: each task's factor, by which its loss is multiplied before anything else.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = dict(weights)

    @classmethod
    def build(cls, config: ScheduledTraining, device: torch.device) -> Self:  # noqa: ARG003 - for those that learn
        """The scheduler of a configuration. Raises InputError where the two do not fit."""
        return cls(task_weights(config))

    @abstractmethod
    def epoch_sizes(self, sizes: Mapping[str, int], config: ScheduledTraining, epoch: int) -> dict[str, int]:
        """Rows that each task contributes to an epoch (from 0), from its number of training rows."""

    @abstractmethod
    def arrange(self, batches: Mapping[str, Sequence[Rows]], generator: np.random.Generator) -> list[Update]:
        """An epoch's updates from each task's batches."""

    @abstractmethod
    def backward(self, trainable: Trainable, update: Update) -> Losses:
        """Put the update's gradient into the parameters; return the losses, detached."""

    def conflicts(self, trainable: Trainable, update: Update) -> dict[str, Tensor]:
        """How far the tasks agree, called between `backward` and the step; see `TaskGradients.conflicts`.

        Leaves parameters, their gradients and the random generators as they are.

        Args:
            trainable: what is trained.
            update: one batch of every task; the step's own where that has one of every task.
        """
        gradients = TaskGradients(trainable.module, self.weights)
        device = gradients.matrix.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            for batch in update:
                gradients.compute(trainable, batch)
        return gradients.conflicts()


def task_weights(config: ScheduledTraining) -> dict[str, float]:
    """The factor of each task's loss."""
    return dict(zip(config.tasks, config.weights or [1.0] * len(config.tasks), strict=True))


SCHEDULERS: dict[str, Callable[[ScheduledTraining, torch.device], Scheduler]] = {}
"""How to build every scheduler, by name; `register` fills it."""

_Kind = TypeVar("_Kind", bound=type[Scheduler])


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: make a scheduler known to `build_scheduler` under this name."""

    def add(kind: _Kind) -> _Kind:
        SCHEDULERS[name] = kind.build
        return kind

    return add


def build_scheduler(config: ScheduledTraining, device: torch.device) -> Scheduler:
    """The configured scheduler.

    Args:
        config: names it, and has its parameters.
        device: where the scheduler's own parameters lie.

    Raises:
        InputError: an unknown name (the message lists the valid ones), a scheduler that does not fit the tasks, or one
            whose packages are not installed.
    """
    if config.scheduler == "fusion":
        raise InputError("fusion is a stage of its own; run `multitask fuse` in place of `finetune --scheduler fusion`")
    if config.scheduler not in SCHEDULERS:
        raise InputError(f'unknown scheduler "{config.scheduler}"; expected one of: {", ".join(sorted(SCHEDULERS))}')
    return SCHEDULERS[config.scheduler](config, device)

"""Schedulers that train on the average of the tasks' losses, or on one task. Most other schedulers build on these."""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import torch

from minbert.errors import InputError
from multitask.data.examples import Rows
from multitask.schedulers.base import Scheduler, register
from multitask.schedulers.config import ScheduledTraining
from multitask.tasks.task import Task
from multitask.training.trainable import Batch, Losses, Trainable, Update


@register("average")
class AverageLoss(Scheduler):
    """Each step takes a batch of every task and the weighted mean of their losses (report, section 4.2).

    All tasks are encoded in one packed call. As in the report, every epoch uses as many rows of each task as the
    smallest training set has; those of larger sets are drawn anew in each epoch.
    """

    def epoch_sizes(self, sizes: Mapping[str, int], config: ScheduledTraining, epoch: int) -> dict[str, int]:
        return dict.fromkeys(sizes, config.epoch_size or min(sizes.values()))

    def arrange(self, batches: Mapping[str, Sequence[Rows]], order: np.random.Generator) -> list[Update]:
        return [
            tuple(Batch(name, rows) for name, rows in zip(batches, step, strict=True))
            for step in zip(*batches.values(), strict=True)
        ]

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = trainable.losses(update)
        torch.stack([self.weights[name] * term for name, term in losses.terms.items()]).mean().backward()
        return losses.detached()


@register("single")
class SingleTask(AverageLoss):
    """One task only. An epoch is the task's whole training set (report, section 4.2)."""

    @classmethod
    def build(cls, config: ScheduledTraining, tasks: Mapping[str, Task], device: torch.device) -> Self:
        if len(config.tasks) != 1:
            raise InputError(f"scheduler single trains one task; name only one of {', '.join(config.tasks)}")
        return super().build(config, tasks, device)

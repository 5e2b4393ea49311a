"""Schedulers that train on one task in each step, in turn."""

from collections.abc import Mapping, Sequence

import numpy as np

from multitask.data.examples import Rows
from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import register
from multitask.schedulers.config import ScheduledTraining
from multitask.training.trainable import Batch, Update


@register("batch_round_robin")
class BatchRoundRobin(AverageLoss):
    """A step on a batch of the first task, then one on a batch of the second, and so on (report, section 4.2).

    An epoch has the same rows as with `average`. As each step trains on one task, it has as many times more steps as
    there are tasks.
    """

    def arrange(self, batches: Mapping[str, Sequence[Rows]], order: np.random.Generator) -> list[Update]:
        return [(batch,) for update in super().arrange(batches, order) for batch in update]


@register("epoch_round_robin")
class EpochRoundRobin(AverageLoss):
    """Each epoch trains on all of the first task's data, then all of the second's, and so on (report, section 4.2)."""

    def epoch_sizes(self, sizes: Mapping[str, int], config: ScheduledTraining, epoch: int) -> dict[str, int]:
        return {name: config.epoch_size or size for name, size in sizes.items()}

    def arrange(self, batches: Mapping[str, Sequence[Rows]], order: np.random.Generator) -> list[Update]:
        return [(Batch(name, rows),) for name, parts in batches.items() for rows in parts]

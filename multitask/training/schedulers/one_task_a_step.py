"""Schedulers that train on one task in each step: in turn, or drawn at random by the sizes of the training sets."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from minbert.errors import InputError
from multitask.base.random_streams import generator
from multitask.data.examples import RowNumbers
from multitask.training.schedulers.base import CPU, Scheduler, register
from multitask.training.settings import ScheduledTraining
from multitask.training.source import Batch, Update


@register("single")
class SingleTask(Scheduler):
    """One task only. An epoch is the task's whole training set (report, section 4.2)."""

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        if len(config.tasks) != 1:
            raise InputError(f"scheduler single trains one task; name only one of {', '.join(config.tasks)}")
        super().__init__(config, device)


@register("batch_round_robin")
class BatchRoundRobin(Scheduler):
    """A step on a batch of the first task, then one on a batch of the second, and so on (report, section 4.2).

    An epoch has the same rows as with `average`. It has more steps, by a factor of the number of tasks.
    """

    one_a_step = True

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        return [(batch,) for update in super().arrange(batches, order) for batch in update]


@register("epoch_round_robin")
class EpochRoundRobin(Scheduler):
    """Each epoch trains on all of the first task's data, then all of the second's, and so on (report, section 4.2)."""

    one_a_step = True

    def epoch_sizes(self, sizes: Mapping[str, int], epoch: int) -> dict[str, int]:
        return {name: self.config.epoch_size or size for name, size in sizes.items()}

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        return [(Batch(name, rows),) for name, parts in batches.items() for rows in parts]


class Sampling(Scheduler):
    """An epoch has about as many rows as with `average`: one step for each of its batches.

    Source: Stickland & Murray 2019, "BERT and PALs" (arXiv 1902.02671), section 3.3.
    """

    one_a_step = True

    def exponent(self, epoch: int) -> float:
        """The exponent alpha in an epoch (from 0)."""
        raise NotImplementedError

    def epoch_sizes(self, sizes: Mapping[str, int], epoch: int) -> dict[str, int]:
        config = self.config
        chances = np.array(list(sizes.values()), float) ** self.exponent(epoch)
        balanced = sum(super().epoch_sizes(sizes, epoch).values())
        steps = -(-balanced // config.step_size)
        # Drawing each task's number of steps here and their order later equals drawing the tasks one by one.
        draws = generator(config.seed, "task of each step", epoch).multinomial(steps, chances / chances.sum())
        return {name: int(count) * config.step_size for name, count in zip(sizes, draws, strict=True)}

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        updates = [(Batch(name, rows),) for name, parts in batches.items() for rows in parts]
        return [updates[i] for i in order.permutation(len(updates))]


@register("proportional")
class ProportionalSampling(Sampling):
    """Draws each step's task with probability proportional to size^alpha, where size is its number of training rows."""

    alpha: Annotated[float, Field(ge=0, le=10)] = 1.0
    """The exponent of size; 0 draws all tasks equally often."""

    def exponent(self, epoch: int) -> float:
        return self.alpha


@register("annealed")
class AnnealedSampling(Sampling):
    """Proportional sampling with an alpha that falls from 1 to 0.2: 1 - 0.8 (e - 1) / (E - 1) in epoch e of E."""

    def exponent(self, epoch: int) -> float:
        return 1 - 0.8 * epoch / max(self.config.epochs - 1, 1)

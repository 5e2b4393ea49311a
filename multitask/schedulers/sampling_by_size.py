"""Schedulers that train on one task in each step, drawn at random by the sizes of the training sets.

Source: Stickland & Murray 2019, "BERT and PALs" (arXiv 1902.02671), section 3.3.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from multitask.data.examples import Rows
from multitask.runtime.random_streams import generator
from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import register
from multitask.schedulers.config import ScheduledTraining
from multitask.training.trainable import Batch, Update


@register("proportional")
class ProportionalSampling(AverageLoss):
    """Draws each step's task with probability proportional to size^alpha, where size is its number of training rows.

    An epoch has about as many rows as with `average`: one step for each of its batches.
    """

    def exponent(self, config: ScheduledTraining, epoch: int) -> float:
        """The exponent alpha in an epoch (from 0)."""
        return config.scheduling.sampling_alpha

    def epoch_sizes(self, sizes: Mapping[str, int], config: ScheduledTraining, epoch: int) -> dict[str, int]:
        chances = np.array(list(sizes.values()), float) ** self.exponent(config, epoch)
        balanced = sum(super().epoch_sizes(sizes, config, epoch).values())
        steps = -(-balanced // config.batch_size)
        # Drawing each task's number of steps here and their order later equals drawing the tasks one by one.
        draws = generator(config.seed, "task of each step", epoch).multinomial(steps, chances / chances.sum())
        return {name: int(count) * config.batch_size for name, count in zip(sizes, draws, strict=True)}

    def arrange(self, batches: Mapping[str, Sequence[Rows]], order: np.random.Generator) -> list[Update]:
        updates = [(Batch(name, rows),) for name, parts in batches.items() for rows in parts]
        return [updates[i] for i in order.permutation(len(updates))]


@register("annealed")
class AnnealedSampling(ProportionalSampling):
    """Proportional sampling with an alpha that falls from 1 to 0.2: 1 - 0.8 (e - 1) / (E - 1) in epoch e of E."""

    def exponent(self, config: ScheduledTraining, epoch: int) -> float:
        return 1 - 0.8 * epoch / max(config.epochs - 1, 1)

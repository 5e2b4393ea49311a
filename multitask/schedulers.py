"""Schedulers: how the tasks' batches make optimizer steps, and how the losses of one step make one gradient.

Each is a small class; the training loop, resume and evaluation are the same for all.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from multitask.datasets.batching import Rows
from multitask.training import Batch, Losses, Trainable, Update


class Scheduler(Protocol):
    """How several tasks share the steps."""

    def epoch_sizes(self, sizes: Mapping[str, int], epoch_size: int | None) -> dict[str, int]:
        """Rows that each task contributes to an epoch, from its number of training rows and the configured size."""

    def arrange(self, batches: Mapping[str, Sequence[Rows]], generator: np.random.Generator) -> list[Update]:
        """An epoch's updates from each task's batches."""

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        """Put the update's gradient into the parameters; return the losses, detached."""


class AverageLoss:
    """A batch of every task in each step; the gradient of the weighted mean of their losses (report, section 4.2).

    All tasks go through the encoder in one packed call. Larger sets are re-sampled each epoch to the smallest one's
    length, the report's balance.

    Args:
        weights: each task's factor; the sum is divided by the number of tasks.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights

    def epoch_sizes(self, sizes: Mapping[str, int], epoch_size: int | None) -> dict[str, int]:
        return dict.fromkeys(sizes, epoch_size or min(sizes.values()))

    def arrange(self, batches: Mapping[str, Sequence[Rows]], generator: np.random.Generator) -> list[Update]:
        return [
            tuple(Batch(name, rows) for name, rows in zip(batches, step, strict=True))
            for step in zip(*batches.values(), strict=True)
        ]

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = trainable.losses(update)
        torch.stack([self.weights[name] * term for name, term in losses.terms.items()]).mean().backward()
        return losses.detached()

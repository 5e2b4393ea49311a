"""What a regulariser of the losses is, and which ones a configuration asks for."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.task import Task
from multitask.training.regularisation.config import RegularisationConfig
from multitask.training.trainable import Losses

Compute = Callable[[], Losses]
"""Computes the losses of an update and the heads' outputs, with graph. Every call draws new dropout."""


class Regulariser(Protocol):
    """Adds a penalty to the losses of an update."""

    def __call__(self, compute: Compute) -> Losses:
        """The losses with the penalty, with graph, and the outputs of one pass.

        Every call draws as many random numbers. `watched` gets the penalty of each task, before it is weighted.

        Args:
            compute: called once or more often; other regularisers may have changed its losses.
        """


def build_regularisers(
    config: RegularisationConfig, model: MultitaskModel, device: torch.device
) -> tuple[Regulariser, ...]:
    """The regularisers that are switched on; each is applied to the losses that the ones before it give.

    Args:
        config: their weights.
        model: the model that is trained.
        device: where it computes.
    """
    from multitask.training.regularisation.r_drop import RDrop
    from multitask.training.regularisation.smart import Smart

    found: list[Regulariser] = []
    if config.smart_weight:
        words = model.encoder.embeddings.word
        found.append(Smart(config.smart_weight, config.smart_radius, words, model.tasks, device))
    if config.r_drop_weight:
        found.append(RDrop(config.r_drop_weight, model.tasks))
    return tuple(found)


def divergences(
    tasks: Mapping[str, Task], first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """How far apart two outputs of each task are, scalars."""
    return {name: tasks[name].divergence(outputs, second[name]) for name, outputs in first.items()}

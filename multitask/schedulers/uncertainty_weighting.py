"""Weights of the tasks that are learned with the model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import torch
from torch import nn

from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import register, task_weights
from multitask.schedulers.config import ScheduledTraining
from multitask.tasks.kinds import TASKS, PairRegression
from multitask.training.trainable import Losses, Trainable, Update


@register("uncertainty")
class UncertaintyWeighting(AverageLoss):
    """Each task's loss divided by a variance that is learned, plus the variance's cost.

    With s = log σ² of a task, starting at 0, a classification adds L exp(-s) + s/2 and a regression half the loss,
    L exp(-s)/2 + s/2. Source: Kendall et al. 2018 (arXiv 1705.07115), equations 5, 7 and 10; the mean over tasks in
    place of the sum, so that clipping means what it means for `average`.

    Args:
        weights: each task's factor, part of L.
        device: where the log variances lie.
    """

    def __init__(self, weights: Mapping[str, float], device: torch.device) -> None:
        super().__init__(weights)
        self.log_variances = nn.Parameter(torch.zeros(len(weights), device=device))  # [tasks]
        self.factors = {name: 0.5 if isinstance(TASKS[name].kind, PairRegression) else 1.0 for name in weights}

    @classmethod
    def build(cls, config: ScheduledTraining, device: torch.device) -> Self:
        return cls(task_weights(config), device)

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = trainable.losses(update)
        logs = dict(zip(self.weights, self.log_variances.unbind(), strict=True))
        scaled = {name: self.factors[name] * self.weights[name] * term for name, term in losses.terms.items()}
        torch.stack([loss * torch.exp(-logs[name]) + logs[name] / 2 for name, loss in scaled.items()]).mean().backward()
        seen = {f"log variance {name}": value.detach() for name, value in logs.items()}
        return replace(losses.detached(), watched={**losses.watched, **seen})

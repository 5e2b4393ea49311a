"""The scheduler that learns the tasks' weights together with the model."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Self

import torch
from torch import nn

from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import register, task_weights
from multitask.schedulers.config import ScheduledTraining
from multitask.tasks.kinds import Regression
from multitask.tasks.task import Task
from multitask.training.trainable import Losses, Trainable, Update


@register("uncertainty")
class UncertaintyWeighting(AverageLoss):
    """Divides each task's loss by a learned variance, and adds a cost of large variances.

    With s = log σ² of a task, which starts at 0, a classification contributes L exp(-s) + s/2, and a regression
    L exp(-s)/2 + s/2. Source: Kendall et al. 2018 (arXiv 1705.07115), equations 5, 7 and 10. The loss is the mean over
    tasks instead of the sum, so that gradients are clipped on the same scale as with `average`.

    Args:
        weights: for each task a factor of its loss L.
        regressions: names of the tasks that are regressions.
        device: of the log variances.
    """

    def __init__(self, weights: Mapping[str, float], regressions: Collection[str], device: torch.device) -> None:
        super().__init__(weights)
        self.log_variances = nn.Parameter(torch.zeros(len(weights), device=device))  # [tasks]
        self.factors = {name: 0.5 if name in regressions else 1.0 for name in weights}

    @classmethod
    def build(cls, config: ScheduledTraining, tasks: Mapping[str, Task], device: torch.device) -> Self:
        regressions = [name for name in config.tasks if isinstance(tasks[name], Regression)]
        return cls(task_weights(config), regressions, device)

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = trainable.losses(update)
        logs = dict(zip(self.weights, self.log_variances.unbind(), strict=True))
        scaled = {name: self.factors[name] * self.weights[name] * term for name, term in losses.terms.items()}
        torch.stack([loss * torch.exp(-logs[name]) + logs[name] / 2 for name, loss in scaled.items()]).mean().backward()
        seen = {f"log variance {name}": value.detach() for name, value in logs.items()}
        return replace(losses.detached(), watched={**losses.watched, **seen})

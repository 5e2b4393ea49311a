"""Schedulers that train on one number made of the tasks' losses, with weights that they learn or compute.

The formulas are those of torchjd's scalarizers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from multitask.base.device import generator_states, restore_generators
from multitask.data.examples import RowNumbers
from multitask.training.schedulers.base import CPU, Scheduler, register
from multitask.training.settings import ScheduledTraining
from multitask.training.source import Batch, Losses, Trainable, Update


class Scalarization(Scheduler):
    """Each step takes a batch of every task and combines their losses. What the scalarizer learns is trained too.

    A subclass has the name of torchjd's class.
    """

    accumulates = False

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__(config, device)
        from torchjd import scalarization  # takes a second, which other schedulers should not cost

        self.scalarizer: Any = getattr(scalarization, type(self).__name__)(**self.arguments()).to(device)

    def scale(self) -> float:
        """A factor that gives gradients about the scale that they have with `average`, for clipping.

        With equal losses, the first gradient is the one of `average`.
        """
        return 1 / len(self.weights)

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = trainable.losses(update)
        values = self.weighted(losses)
        detached = values.detach().requires_grad_()
        self.combined(detached).backward()
        assert detached.grad is not None, "a scalarizer depends on the losses"
        values.backward(detached.grad)
        shares = len(values) * detached.grad  # 1 for a task that counts as with `average`
        seen = {f"weight {batch.source}": share for batch, share in zip(update, shares.unbind(), strict=True)}
        return replace(losses.detached(), watched={**losses.watched, **seen})

    def combined(self, values: Tensor) -> Tensor:
        """The number that is trained on, of the tasks' losses [tasks]."""
        return self.scale() * self.scalarizer(values)


@register("uncertainty")
class UW(Scalarization):
    """Uncertainty weighting (Kendall et al. 2018, arXiv 1705.07115, equation 7), for all kinds of tasks.

    The formula halves every loss.
    """

    def arguments(self) -> dict[str, Any]:
        return {"shape": len(self.weights)}


@register("imtl_l")
class IMTLL(UW):
    """IMTL-L (Liu et al. 2021, "Towards Impartial Multi-task Learning", equation 7)."""


@register("dwa")
class DWA(Scalarization):
    """Dynamic weight average (Liu et al. 2019, arXiv 1803.10704, equation 7).

    Rolls the history of mean losses on at the end of each epoch.
    """

    steps = 0  # of an epoch

    def arrange(self, batches: Mapping[str, Sequence[RowNumbers]], order: np.random.Generator) -> list[Update]:
        updates = super().arrange(batches, order)
        self.steps = len(updates)
        return updates

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        losses = super().backward(trainable, update)
        if self.scalarizer._n_batches == self.steps:
            self.scalarizer.step()
        return losses

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self.scalarizer, name) for name in ("_loss_sum", "_n_batches", "_previous_averages")}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        found, averages = state["_loss_sum"], state["_previous_averages"]
        self.scalarizer._loss_sum = None if found is None else found.to(self.device)
        self.scalarizer._n_batches = state["_n_batches"]
        self.scalarizer._previous_averages = [average.to(self.device) for average in averages]


@register("stch")
class STCH(Scalarization):
    """Smooth Tchebycheff (Lin et al. 2024, arXiv 2402.19078, equation 5, with equal preferences)."""

    mu: Annotated[float, Field(ge=0.01)] = 0.1
    """How smooth the maximum is. Small values train on the task with the largest loss."""

    def scale(self) -> float:
        return len(self.weights)


@register("geometric_mean")
class GeometricMean(Scalarization):
    """The geometric mean (Chennupati et al. 2019, arXiv 1904.08492, equation 2)."""

    ignores_weights = True

    def scale(self) -> float:
        return 1.0

    def combined(self, values: Tensor) -> Tensor:
        # A loss may be 0, as CoSENT's of a batch without pairs to compare, where the mean's gradient is not finite.
        return super().combined(values.clamp(min=1e-8))


@register("famo")
class FAMO(UW):
    """FAMO (Liu et al. 2023, arXiv 2306.03792, algorithm 1).

    Before each step it computes the losses of the last step's rows again, to see how much that step helped.
    """

    ignores_weights = True

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__(config, device)
        self.last: Update = ()

    def scale(self) -> float:
        return 1.0

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        if self.last:
            before = generator_states(self.device)
            again = trainable.losses(self.last).detached()
            restore_generators(before)
            self.scalarizer.update(self.weighted(again))
        self.last = update
        return super().backward(trainable, update)

    def get_extra_state(self) -> dict[str, Any]:
        optimizer = self.scalarizer._optimizer
        return {
            "last": [(batch.source, torch.from_numpy(batch.rows)) for batch in self.last],
            "losses": self.scalarizer._prev_losses,
            "optimizer": None if optimizer is None else optimizer.state_dict(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.last = tuple(Batch(source, rows.numpy()) for source, rows in state["last"])
        losses = state["losses"]
        self.scalarizer._prev_losses = None if losses is None else losses.to(self.device)
        if state["optimizer"] is not None:
            settings = {"lr": self.scalarizer.lr, "weight_decay": self.scalarizer.weight_decay}
            self.scalarizer._optimizer = torch.optim.Adam([self.scalarizer._w], **settings)
            self.scalarizer._optimizer.load_state_dict(state["optimizer"])

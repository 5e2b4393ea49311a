"""Aggregators of torchjd: each task's gradient is computed alone, and a method from the literature combines them."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.runtime import distributed
from multitask.schedulers.average_loss import AverageLoss
from multitask.schedulers.base import SCHEDULERS, task_weights
from multitask.schedulers.config import ScheduledTraining, SchedulerConfig
from multitask.schedulers.task_gradients import TaskGradients
from multitask.training.trainable import Losses, Trainable, Update

if TYPE_CHECKING:  # takes a second to import, which only aggregators should cost
    from torchjd.aggregation import Aggregator


class Aggregation(AverageLoss):
    """A batch of every task in each step; shared parameters get the aggregate of the tasks' gradients.

    Shared are the encoder's and those of layers that several tasks' heads share. A parameter of one task's head gets
    that task's own gradient, on the scale of the aggregate: as it is where the aggregator adds the tasks' gradients up,
    divided by the number of tasks where it averages them, as `average` does.

    With several ranks the first one aggregates the whole batch's gradients, so that draws and memory are its alone.

    Args:
        weights: each task's factor.
        aggregator: from gradients [tasks, parameters] to one [parameters]; randomness comes from torch's generator.
        scale: factor of the aggregate.
        own_scale: factor of the gradients of single tasks' parameters.
    """

    def __init__(self, weights: Mapping[str, float], aggregator: "Aggregator", scale: float, own_scale: float) -> None:
        super().__init__(weights)
        self.aggregator = aggregator
        self.scale = scale
        self.own_scale = own_scale
        self.gradients: TaskGradients | None = None
        self.aggregated: Update = ()  # what the gradients are of

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        if self.gradients is None:  # kept, for the matrix is as large as several models
            self.gradients = TaskGradients(trainable.module, self.weights)
        self.aggregated = update
        gradients, losses = self.gradients, Losses({}, 0)
        for batch in update:
            found, own = gradients.compute(trainable, batch)
            losses = losses.plus(found, 1.0)
            for parameter, gradient in zip(gradients.own[batch.source], own, strict=True):
                parameter.grad = None if gradient is None else self.own_scale * gradient
        matrix = gradients.matrix
        aggregate = self._aggregate(matrix) if distributed.is_first() else torch.empty_like(matrix[0])
        distributed.take_first(aggregate)
        parts = aggregate.split([parameter.numel() for parameter in gradients.shared])
        for parameter, part, used in zip(gradients.shared, parts, gradients.used, strict=True):
            parameter.grad = part.view_as(parameter) if used else None
        return losses

    def conflicts(self, trainable: Trainable, update: Update) -> dict[str, Tensor]:
        if self.gradients is None or update is not self.aggregated:
            return super().conflicts(trainable, update)
        return self.gradients.conflicts()  # free: the step has just computed them

    def _aggregate(self, matrix: Tensor) -> Tensor:
        try:
            return self.aggregator(matrix).mul_(self.scale)
        except Exception:
            if matrix.isfinite().all():
                raise
            return matrix.sum(dim=0)  # solvers fail on what is not finite; the loop says which loss it was


class NashMtl(Aggregation):
    """Nash-MTL begins each search at the last solution, which torchjd does not count as a module's state."""

    def get_extra_state(self) -> Tensor:
        return torch.as_tensor(self._weighting.prvs_alpha)

    def set_extra_state(self, state: Tensor) -> None:
        self._weighting.prvs_alpha = state.numpy()

    def _aggregate(self, matrix: Tensor) -> Tensor:
        with warnings.catch_warnings():  # of torchjd's problem being slow to set up
            warnings.filterwarnings("ignore", "You are solving a parameterized problem that is not DPP")
            return super()._aggregate(matrix)

    @property
    def _weighting(self) -> Any:
        return self.aggregator.weighting


@dataclass(frozen=True)
class Method:
    """An aggregator of torchjd.

    Args:
        name: its class there.
        sums: whether parallel gradients add up, rather than being averaged.
        extra: the extra of torchjd that has its solver, if it needs one.
        arguments: of the class, from the number of tasks and the configuration.
        kind: the scheduler around it.
    """

    name: str
    sums: bool
    extra: str | None = None
    arguments: Callable[[int, SchedulerConfig], dict[str, float]] = lambda tasks, config: {}
    kind: type[Aggregation] = Aggregation


METHODS = {
    # Yu et al. 2020, arXiv 2001.06782, algorithm 1.
    "pcgrad": Method("PCGrad", sums=True),
    # Wang et al. 2021, arXiv 2010.05874, algorithm 1.
    "gradvac": Method("GradVac", sums=True, arguments=lambda tasks, config: {"beta": config.gradvac_beta}),
    # Chen et al. 2020, arXiv 2010.06808, algorithm 1.
    "graddrop": Method("GradDrop", sums=True),
    # Liu et al. 2024, arXiv 2408.11104, equation 2.
    "config": Method("ConFIG", sums=True),
    # Sener & Koltun 2018, arXiv 1810.04650, algorithm 2.
    "mgda": Method("MGDA", sums=False),
    # Liu et al. 2021, "Towards Impartial Multi-task Learning".
    "imtl_g": Method("IMTLG", sums=False),
    # Senushkin et al. 2023, arXiv 2305.19000, algorithm 1.
    "aligned_mtl": Method("AlignedMTL", sums=False),
    # Lin et al. 2021, arXiv 2111.10603, algorithm 2: random weights, which every other method should beat.
    "random": Method("Random", sums=False),
    # Quinton & Rey 2024, arXiv 2406.16232.
    "upgrad": Method("UPGrad", sums=False, extra="quadprog_projector"),
    # Lopez-Paz & Ranzato 2017, arXiv 1706.08840, equation 11.
    "dualproj": Method("DualProj", sums=False, extra="quadprog_projector"),
    # Liu et al. 2021, arXiv 2110.14048, algorithm 1.
    "cagrad": Method("CAGrad", sums=False, extra="cagrad", arguments=lambda tasks, config: {"c": config.cagrad_c}),
    # Navon et al. 2022, arXiv 2202.01017, algorithm 1.
    "nash_mtl": Method(
        "NashMTL", sums=True, extra="nash_mtl", arguments=lambda tasks, config: {"n_tasks": tasks}, kind=NashMtl
    ),
    # Ban & Ji 2024, arXiv 2402.15638, equation 4.
    "fairgrad": Method(
        "FairGrad", sums=True, extra="fairgrad", arguments=lambda tasks, config: {"alpha": config.fairgrad_alpha}
    ),
}


def _build(name: str, config: ScheduledTraining, _device: torch.device) -> Aggregation:
    method, tasks = METHODS[name], len(config.tasks)
    if tasks < 2:
        raise InputError(
            f"scheduler {name} combines gradients of several tasks; with {config.tasks[0]} alone use single"
        )
    try:
        from torchjd import aggregation

        aggregator = getattr(aggregation, method.name)(**method.arguments(tasks, config.scheduling))
    except ImportError:
        package = f"torchjd[{method.extra}]" if method.extra else "torchjd"
        raise InputError(
            f'scheduler {name} needs packages that are not installed; install them with: pip install "{package}"'
        ) from None
    if name == "gradvac":
        aggregator(torch.zeros(tasks, 1))  # makes its memory, all zero, so that a saved one can be taken up
    averaged = 1 / tasks
    scale = averaged if method.sums and config.scheduling.reduction == "mean" else 1.0
    return method.kind(task_weights(config), aggregator, scale, scale if method.sums else averaged)


SCHEDULERS.update({name: partial(_build, name) for name in METHODS})

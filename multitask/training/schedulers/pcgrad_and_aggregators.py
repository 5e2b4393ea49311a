"""PCGrad and other gradient aggregators: they compute each task's gradient separately and combine the gradients.

The aggregators are those of torchjd; `METHODS` names the paper of each.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from minbert.errors import InputError, install_with
from multitask.base import distributed
from multitask.training.schedulers.base import SCHEDULERS, Scheduler
from multitask.training.schedulers.task_gradients import TaskGradients, gramian_of
from multitask.training.settings import ScheduledTraining, SchedulerConfig
from multitask.training.source import Losses, Trainable, Update

if TYPE_CHECKING:  # its import takes a second, which other schedulers should not cost
    from torchjd.aggregation import Aggregator


ROUNDING = (10 * torch.finfo(torch.float32).eps) ** 2
"""Eigenvalues below this share of the largest are rounding errors of gradients in float32 (eigenvalues are squares)."""


class Aggregation(Scheduler):
    """Each step takes a batch of every task and aggregates the tasks' gradients of the shared parameters.

    Shared parameters are the encoder's, and those of layers that the heads of several tasks share. A parameter that
    only one task's head has gets that task's own gradient, on the scale of the aggregate: unchanged if the aggregator
    adds up the tasks' gradients, divided by the number of tasks if it averages them, as `average` does.

    With several ranks, the first rank aggregates the gradients of the whole batch: only it draws random numbers and
    needs the memory.

    `scale` is a factor of the aggregated gradient, `own_scale` of the gradients of parameters that belong to one task.
    """

    homogeneous: ClassVar[bool] = True
    """Whether the aggregate of gradients that are all x times as long is x times as long."""

    def __init__(self, config: ScheduledTraining, aggregator: "Aggregator", scale: float, own_scale: float) -> None:
        super().__init__(config)
        self.aggregator = aggregator
        self.scale = scale
        self.own_scale = own_scale
        self.gradients: TaskGradients | None = None
        self.aggregated: Update = ()  # the update that the gradients belong to

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        if self.gradients is None:  # made once, since the matrix is as large as several models
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
        return self.gradients.conflicts()  # the step has just computed these gradients

    def _aggregate(self, matrix: Tensor) -> Tensor:
        try:
            return self._combined(matrix).mul_(self.scale)
        except Exception:
            if matrix.isfinite().all():
                raise
            return matrix.sum(dim=0)  # solvers fail on gradients that are not finite; the loop names the loss

    def _combined(self, matrix: Tensor) -> Tensor:
        """Combine the gradients [tasks, parameters] into one, [parameters].

        These aggregators look only at the scalar products of gradients. So they get the gradients' coordinates in the
        few dimensions that they span, [tasks, dimensions] in float64, and what they return is a weighted sum of the
        tasks' gradients.
        """
        gramian = gramian_of(matrix).cpu().double()
        norms = gramian.diagonal().sqrt()
        inverse = torch.where(norms > 0, 1 / norms, 0.0)
        # Of unit length, so that a small gradient does not count as a rounding error of a large one.
        values, vectors = torch.linalg.eigh(inverse[:, None] * gramian * inverse)
        spanned = values > values.max() * ROUNDING
        spreads, basis = values[spanned].sqrt(), vectors[:, spanned]  # [dimensions], [tasks, dimensions]
        # Of a joint norm from 1 to 2, because torchjd takes small gradients for zero. A power of two rounds nothing.
        size = torch.exp2(norms.norm().log2().floor()) if self.homogeneous else 1.0
        combined = size * self.aggregator(norms[:, None] / size * basis * spreads)  # [dimensions]
        weights = inverse * (basis @ (combined / spreads))  # [tasks]
        aggregate = torch.zeros_like(matrix[0])
        for weight, gradient in zip(weights.tolist(), matrix, strict=True):
            aggregate.add_(gradient, alpha=weight)
        return aggregate


class GradDrop(Aggregation):
    """GradDrop, the only aggregator that looks at each parameter by itself."""

    def _combined(self, matrix: Tensor) -> Tensor:
        return self.aggregator(matrix)


class CAGrad(Aggregation):
    """CAGrad. If some weighted mean of the gradients is zero, as where a task has none, it is their average.

    So it is in https://github.com/Cranial-XIX/CAGrad. torchjd gives zero, which is too far from the average for c < 1.
    """

    def _combined(self, matrix: Tensor) -> Tensor:
        combined = super()._combined(matrix)
        return combined if combined.any() else matrix.mean(dim=0)


class NashMtl(Aggregation):
    """Nash-MTL. It starts each search at the last solution, which torchjd does not keep in the module's state."""

    homogeneous = False

    def get_extra_state(self) -> Tensor:
        return torch.as_tensor(self._weighting.prvs_alpha)

    def set_extra_state(self, state: Tensor) -> None:
        self._weighting.prvs_alpha = state.numpy()

    def _aggregate(self, matrix: Tensor) -> Tensor:
        with warnings.catch_warnings():  # cvxpy warns that torchjd's problem is slow to set up
            warnings.filterwarnings("ignore", "You are solving a parameterized problem that is not DPP")
            return super()._aggregate(matrix)

    @property
    def _weighting(self) -> Any:
        return self.aggregator.weighting


class FairGrad(Aggregation):
    """FairGrad. How its aggregate grows with the gradients depends on its α."""

    homogeneous = False


@dataclass(frozen=True)
class Method:
    """An aggregator of torchjd."""

    name: str  # of its class in torchjd
    sums: bool  # whether it adds up parallel gradients; otherwise it averages them
    # maps the number of tasks and the configuration to arguments of the class
    arguments: Callable[[int, SchedulerConfig], dict[str, float]] = lambda tasks, config: {}
    kind: type[Aggregation] = Aggregation  # the scheduler that uses it


METHODS = {
    # Yu et al. 2020, arXiv 2001.06782, algorithm 1. https://github.com/WeiChengTseng/Pytorch-PCGrad averages as
    # `reduction = mean` does only for parameters that all tasks share; gradients of the others are added up there.
    "pcgrad": Method("PCGrad", sums=True),
    # Wang et al. 2021, arXiv 2010.05874, algorithm 1. torchjd adds `eps` to products of norms, which may be small.
    "gradvac": Method(
        "GradVac", sums=True, arguments=lambda tasks, config: {"beta": config.gradvac_beta, "eps": 1e-30}
    ),
    # Chen et al. 2020, arXiv 2010.06808, algorithm 1.
    "graddrop": Method("GradDrop", sums=True, kind=GradDrop),
    # Liu et al. 2024, arXiv 2408.11104, equation 2.
    "config": Method("ConFIG", sums=True),
    # Sener & Koltun 2018, arXiv 1810.04650, algorithm 2.
    "mgda": Method("MGDA", sums=False),
    # Liu et al. 2021, "Towards Impartial Multi-task Learning".
    "imtl_g": Method("IMTLG", sums=False),
    # Senushkin et al. 2023, arXiv 2305.19000, algorithm 1.
    "aligned_mtl": Method("AlignedMTL", sums=False),
    # Lin et al. 2021, arXiv 2111.10603, algorithm 2: random weights, a baseline that other methods should beat.
    "random": Method("Random", sums=False),
    # Quinton & Rey 2024, arXiv 2406.16232.
    "upgrad": Method("UPGrad", sums=False),
    # Lopez-Paz & Ranzato 2017, arXiv 1706.08840, equation 11.
    "dualproj": Method("DualProj", sums=False),
    # Liu et al. 2021, arXiv 2110.14048, algorithm 1.
    "cagrad": Method("CAGrad", sums=False, arguments=lambda tasks, config: {"c": config.cagrad_c}, kind=CAGrad),
    # Navon et al. 2022, arXiv 2202.01017, algorithm 1.
    "nash_mtl": Method("NashMTL", sums=True, arguments=lambda tasks, config: {"n_tasks": tasks}, kind=NashMtl),
    # Ban & Ji 2024, arXiv 2402.15638, equation 4.
    "fairgrad": Method(
        "FairGrad", sums=True, arguments=lambda tasks, config: {"alpha": config.fairgrad_alpha}, kind=FairGrad
    ),
}


def _build(name: str, config: ScheduledTraining, _device: torch.device) -> Aggregation:
    method, tasks = METHODS[name], len(config.tasks)
    if tasks < 2:
        raise InputError(
            f"scheduler {name} combines gradients of several tasks; to train {config.tasks[0]} alone, use single"
        )
    try:
        from torchjd import aggregation

        aggregator = getattr(aggregation, method.name)(**method.arguments(tasks, config.scheduling))
    except ImportError:  # of a solver
        raise InputError(f"scheduler {name} needs further packages; {install_with('aggregation')}") from None
    if name == "gradvac":  # creates its state, all zero, so that a saved state can be loaded
        aggregator(torch.zeros(tasks, 1, dtype=torch.float64))
    averaged = 1 / tasks
    scale = averaged if method.sums and config.scheduling.reduction == "mean" else 1.0
    return method.kind(config, aggregator, scale, scale if method.sums else averaged)


SCHEDULERS.update({name: partial(_build, name) for name in METHODS})

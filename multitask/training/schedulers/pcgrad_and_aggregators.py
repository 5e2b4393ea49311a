"""PCGrad and other gradient aggregators: they compute each task's gradient separately and combine the gradients.

The aggregators are those of torchjd.
"""

import warnings
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from minbert.errors import InputError, install_with
from minbert.settings import AtLeastZero, Share
from multitask.base import distributed
from multitask.training.schedulers.base import CPU, Scheduler, register
from multitask.training.schedulers.task_gradients import TaskGradients, gramian_of
from multitask.training.settings import ScheduledTraining
from multitask.training.source import Losses, Trainable, Update

SMALLEST_EIGENVALUE = (10 * torch.finfo(torch.float32).eps) ** 2
"""Eigenvalues below this share of the largest are rounding errors of gradients in float32 (eigenvalues are squares)."""


class Aggregation(Scheduler):
    """Each step takes a batch of every task and aggregates the tasks' gradients of the shared parameters.

    Shared parameters are the encoder's, and those of layers that the heads of several tasks share. A parameter that
    only one task's head has gets that task's own gradient, on the scale of the aggregate: unchanged if the aggregator
    adds up the tasks' gradients, divided by the number of tasks if it averages them, as `average` does.

    With several ranks, the first rank aggregates the gradients of the whole batch: only it draws random numbers and
    needs the memory.

    A subclass has the name of torchjd's class.
    """

    homogeneous: ClassVar[bool] = True
    """Whether the aggregate of gradients that are all x times as long is x times as long."""

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__(config, device)
        name = config.scheduler.name
        if len(config.tasks) < 2:
            raise InputError(
                f"scheduler {name} combines gradients of several tasks; to train {config.tasks[0]} alone, use single"
            )
        try:
            from torchjd import aggregation  # takes a second, which other schedulers should not cost

            self.aggregator = getattr(aggregation, type(self).__name__)(**self.arguments())
        except ImportError:  # of a solver
            raise InputError(f"scheduler {name} needs further packages; {install_with('aggregation')}") from None
        self.gradients: TaskGradients | None = None
        self.aggregated: Update = ()  # the update that the gradients belong to

    def scales(self) -> tuple[float, float]:
        """Factors of the aggregated gradient, and of the gradients of parameters that belong to one task."""
        return 1.0, 1 / len(self.weights)

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        scale, own_scale = self.scales()
        if self.gradients is None:  # made once, since the matrix is as large as several models
            self.gradients = TaskGradients(trainable.module, self.weights)
        self.aggregated = update
        gradients, losses = self.gradients, Losses({}, 0)
        for batch in update:
            found, own = gradients.compute(trainable, batch)
            losses = losses.plus(found)
            for parameter, gradient in zip(gradients.own[batch.source], own, strict=True):
                parameter.grad = None if gradient is None else own_scale * gradient
        matrix = gradients.matrix
        aggregate = self._aggregate(matrix).mul_(scale) if distributed.is_first() else torch.empty_like(matrix[0])
        distributed.take_first(aggregate)
        parts = aggregate.split([parameter.numel() for parameter in gradients.shared])
        for parameter, part, used in zip(gradients.shared, parts, gradients.used, strict=True):
            parameter.grad = part.view_as(parameter) if used else None
        return losses

    def conflicts(self, trainable: Trainable, update: Update) -> dict[str, Tensor]:
        if self.gradients is None or [*map(id, update)] != [*map(id, self.aggregated)]:
            return super().conflicts(trainable, update)
        return self.gradients.conflicts()  # the step has just computed these gradients

    def _aggregate(self, matrix: Tensor) -> Tensor:
        try:
            return self._combined(matrix)
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
        spanned = values > values.max() * SMALLEST_EIGENVALUE
        spreads, basis = values[spanned].sqrt(), vectors[:, spanned]  # [dimensions], [tasks, dimensions]
        # Of a joint norm from 1 to 2, because torchjd takes small gradients for zero. A power of two rounds nothing.
        size = torch.exp2(norms.norm().log2().floor()) if self.homogeneous else 1.0
        combined = size * self.aggregator(norms[:, None] / size * basis * spreads)  # [dimensions]
        weights = inverse * (basis @ (combined / spreads))  # [tasks]
        aggregate = torch.zeros_like(matrix[0])
        for weight, gradient in zip(weights.tolist(), matrix, strict=True):
            aggregate.add_(gradient, alpha=weight)
        return aggregate


class Summing(Aggregation):
    """Parallel gradients are added up."""

    reduction: Literal["sum", "mean"] = "sum"
    """The `sum` of the tasks' gradients, as in the paper, or their `mean`, on the scale of the scheduler average."""

    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in super().arguments().items() if name != "reduction"}

    def scales(self) -> tuple[float, float]:
        scale = 1.0 if self.reduction == "sum" else 1 / len(self.weights)
        return scale, scale


@register("pcgrad")
class PCGrad(Summing):
    """PCGrad (Yu et al. 2020, arXiv 2001.06782, algorithm 1).

    https://github.com/WeiChengTseng/Pytorch-PCGrad averages as `reduction=mean` does only for parameters that all tasks
    share; gradients of the others are added up there.
    """


@register("gradvac")
class GradVac(Summing):
    """GradVac (Wang et al. 2021, arXiv 2010.05874, algorithm 1)."""

    beta: Share = 0.01
    """How fast the target cosines follow the observed ones."""

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__(config, device)
        # Creates its state, all zero, so that a saved state can be loaded.
        self.aggregator(torch.zeros(len(self.weights), 1, dtype=torch.float64))

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"eps": 1e-30}  # torchjd adds `eps` to products of norms, which may be small


@register("graddrop")
class GradDrop(Summing):
    """GradDrop (Chen et al. 2020, arXiv 2010.06808, algorithm 1), which looks at each parameter by itself."""

    def _combined(self, matrix: Tensor) -> Tensor:
        return self.aggregator(matrix)


@register("config")
class ConFIG(Summing):
    """ConFIG (Liu et al. 2024, arXiv 2408.11104, equation 2)."""

    ignores_weights = True


@register("mgda")
class MGDA(Aggregation):
    """MGDA (Sener & Koltun 2018, arXiv 1810.04650, algorithm 2)."""


@register("imtl_g")
class IMTLG(Aggregation):
    """IMTL-G (Liu et al. 2021, "Towards Impartial Multi-task Learning")."""

    ignores_weights = True


@register("aligned_mtl")
class AlignedMTL(Aggregation):
    """Aligned-MTL (Senushkin et al. 2023, arXiv 2305.19000, algorithm 1)."""


@register("random")
class Random(Aggregation):
    """Random weights (Lin et al. 2021, arXiv 2111.10603, algorithm 2), a baseline that other methods should beat."""


@register("upgrad")
class UPGrad(Aggregation):
    """UPGrad (Quinton & Rey 2024, arXiv 2406.16232)."""


@register("dualproj")
class DualProj(Aggregation):
    """Projection on the dual cone (Lopez-Paz & Ranzato 2017, arXiv 1706.08840, equation 11)."""


@register("cagrad")
class CAGrad(Aggregation):
    """CAGrad (Liu et al. 2021, arXiv 2110.14048, algorithm 1).

    If some weighted mean of the gradients is zero, as where a task has none, the aggregate is their average, as in
    https://github.com/Cranial-XIX/CAGrad. torchjd gives zero, which is too far from the average for c < 1.
    """

    c: AtLeastZero = 0.5
    """How far the update may be from the average gradient, in units of its norm. 0: the average itself."""

    def _combined(self, matrix: Tensor) -> Tensor:
        combined = super()._combined(matrix)
        return combined if combined.any() else matrix.mean(dim=0)


@register("nash_mtl")
class NashMTL(Summing):
    """Nash-MTL (Navon et al. 2022, arXiv 2202.01017, algorithm 1).

    It starts each search at the last solution, which torchjd does not keep in the module's state.
    """

    homogeneous = False
    ignores_weights = True

    def arguments(self) -> dict[str, Any]:
        return {"n_tasks": len(self.weights)}

    def get_extra_state(self) -> Tensor:
        return torch.as_tensor(self.aggregator.weighting.prvs_alpha)

    def set_extra_state(self, state: Tensor) -> None:
        self.aggregator.weighting.prvs_alpha = state.numpy()

    def _combined(self, matrix: Tensor) -> Tensor:
        return super()._combined(matrix) if matrix.any() else torch.zeros_like(matrix[0])  # torchjd divides by the norm

    def _aggregate(self, matrix: Tensor) -> Tensor:
        with warnings.catch_warnings():  # cvxpy warns that torchjd's problem is slow to set up
            warnings.filterwarnings("ignore", "You are solving a parameterized problem that is not DPP")
            return super()._aggregate(matrix)


@register("fairgrad")
class FairGrad(Summing):
    """FairGrad (Ban & Ji 2024, arXiv 2402.15638, equation 4)."""

    homogeneous = False  # how the aggregate grows with the gradients depends on alpha
    alpha: Annotated[float, Field(ge=0.01)] = 1.0
    """The kind of fairness. 1: proportional fairness, where task weights have no effect; large values approach max-min
    fairness."""

    def __init__(self, config: ScheduledTraining, device: torch.device = CPU) -> None:
        super().__init__(config, device)
        self.ignores_weights = self.alpha == 1

"""A small problem of three tasks, and the gradients of each task's loss from one joint graph."""

import weakref
from contextlib import suppress

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.stages.settings import FinetuneConfig
from multitask.training.schedulers import build_scheduler
from multitask.training.source import Batch, Losses, Update

TASKS = ("sentiment", "paraphrase", "similarity")
SHARED = ("encoder.layer.weight", "encoder.layer.bias", "heads.paraphrase.0.weight", "heads.paraphrase.0.bias")
OWN = {
    "sentiment": tuple(f"heads.sentiment.{layer}.{kind}" for layer in (0, 1) for kind in ("weight", "bias")),
    "paraphrase": ("heads.paraphrase.1.weight", "heads.paraphrase.1.bias"),
    "similarity": ("heads.similarity.1.weight", "heads.similarity.1.bias"),
}
SOLVERS = {"upgrad": "quadprog", "dualproj": "quadprog", "cagrad": "cvxpy", "nash_mtl": "ecos"}
UPDATE: Update = tuple(Batch(name, np.arange(k, k + 4)) for k, name in enumerate(TASKS))


def needs(scheduler: str) -> None:
    """Skip the test where the solver of a scheduler is not installed."""
    if scheduler in SOLVERS:
        pytest.importorskip(SOLVERS[scheduler])


def tasks_of(scheduler: str) -> tuple[str, ...]:
    """As many of the tasks as a scheduler takes; all where its packages are not installed."""
    for count in (3, 2, 1):
        with suppress(InputError):
            build_scheduler(FinetuneConfig(TASKS[:count], scheduler=scheduler), torch.device("cpu"))
            return TASKS[:count]
    return TASKS


class Toy:
    """Squared errors in float64. Two heads share a layer; a pooler, an untrained head and a frozen layer are idle."""

    def __init__(self, seed: int = 0, dropout: float = 0.0) -> None:
        torch.manual_seed(seed)
        common = nn.Linear(4, 4)
        encoder = {"layer": nn.Linear(3, 4), "pooler": nn.Linear(4, 4), "frozen": nn.Linear(4, 4)}
        heads = {
            name: nn.Sequential(common if name in TASKS[1:] else nn.Linear(4, 4), nn.Linear(4, 1))
            for name in (*TASKS, "reviews")
        }
        parts = {"encoder": nn.ModuleDict(encoder), "heads": nn.ModuleDict(heads)}
        self.module: nn.Module = nn.ModuleDict(parts).double()
        encoder["frozen"].requires_grad_(False)
        self.encoder, self.heads = encoder, heads
        self.dropout = nn.Dropout(dropout)
        self.inputs = torch.randn(8, 3, dtype=torch.float64)
        self.targets = torch.randn(8, 3, dtype=torch.float64)
        self.graphs: list[weakref.ref[Tensor]] = []
        self.most_alive = 0  # graphs at once

    def parts(self, update: Update) -> list[Update]:
        return [update]

    def losses(self, update: Update) -> Losses:
        terms = {}
        for batch in update:
            hidden = torch.tanh(self.encoder["frozen"](self.dropout(self.encoder["layer"](self.inputs[batch.rows]))))
            errors = self.heads[batch.source](hidden)[:, 0] - self.targets[batch.rows, TASKS.index(batch.source)]
            terms[batch.source] = batch.share * errors.square().mean()
        self.graphs += [weakref.ref(term) for term in terms.values()]
        self.most_alive = max(self.most_alive, sum(graph() is not None for graph in self.graphs))
        return Losses(terms, tokens=10 * len(update), watched={f"{name} size": torch.tensor(4.0) for name in terms})

    def named(self) -> dict[str, nn.Parameter]:
        return dict(self.module.named_parameters())

    def gradients(self) -> dict[str, Tensor | None]:
        """The gradients in the parameters."""
        return {name: parameter.grad for name, parameter in self.named().items()}

    def reference(self) -> dict[str, dict[str, Tensor]]:
        """Each task's gradient by the parameters' names, from one graph."""
        trained = {name: parameter for name, parameter in self.named().items() if parameter.requires_grad}
        found = {}
        for task, loss in self.losses(UPDATE).terms.items():
            gradients = torch.autograd.grad(loss, [*trained.values()], retain_graph=True, materialize_grads=True)
            found[task] = dict(zip(trained, gradients, strict=True))
        return found

    def matrix(self) -> NDArray[np.float64]:
        """The tasks' gradients over shared parameters, [tasks, parameters]."""
        return np.stack([torch.cat([own[name].ravel() for name in SHARED]) for own in self.reference().values()])

    def shared(self) -> NDArray[np.float64]:
        """The gradient in the shared parameters, [parameters]."""
        return np.concatenate([self.named()[name].grad.numpy().ravel() for name in SHARED])


def cosines(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    return unit @ unit.T

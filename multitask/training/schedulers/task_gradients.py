"""Each task's own gradient of the parameters that several tasks train, and how much these gradients conflict."""

from collections.abc import Mapping, Sequence
from itertools import combinations, zip_longest

import torch
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.base import distributed
from multitask.base.device import widest_dtype
from multitask.training.source import Batch, Losses, Trainable

BLOCK = 2**18
"""Parameters whose gradients are in float64 at the same time: 2 MiB for each task."""


class TaskGradients:
    """A matrix with a row for each task: the gradient of its weighted loss over the shared parameters.

    The rows are computed one after the other, so that only one task's graph is in memory. With several ranks, every
    rank has the gradients of the whole batch. `weights` are the factors of the losses, in the order of the rows.
    """

    def __init__(self, module: nn.Module, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self.shared, self.own = split_parameters(module, list(weights))
        if not self.shared:
            raise InputError("freeze leaves no weights that tasks share, so their gradients cannot conflict")
        self.used = [False] * len(self.shared)  # whether any task uses the parameter; none uses the pooler
        sizes = [parameter.numel() for parameter in self.shared]
        first = self.shared[0]
        self.matrix = torch.zeros(len(weights), sum(sizes), device=first.device, dtype=first.dtype)  # [tasks, shared]
        self.rows = {
            name: [part.view_as(p) for part, p in zip(row.split(sizes), self.shared, strict=True)]
            for name, row in zip(weights, self.matrix, strict=True)
        }

    def compute(self, trainable: Trainable, batch: Batch) -> tuple[Losses, list[Tensor | None]]:
        """Fill the row of the batch's task with the gradient of its weighted loss.

        Returns the losses, detached, and the gradients of the task's own parameters, None for an unused parameter. The
        latter are those of this rank's rows, because the loop averages the gradients in parameters over ranks.
        """
        name = batch.source
        found, gradients = Losses({}, 0), list[Tensor | None]()
        parameters = [*self.shared, *self.own[name]]
        for part in trainable.parts((batch,)):
            losses = trainable.losses(part)
            more = torch.autograd.grad(self.weights[name] * losses.terms[name], parameters, allow_unused=True)
            gradients = [a if b is None else b if a is None else a + b for a, b in zip_longest(gradients, more)]
            found = found.plus(losses.detached())
        for index, part in enumerate(self.rows[name]):
            if (gradient := gradients[index]) is None:
                part.zero_()
            else:
                part.copy_(gradient)
                self.used[index] = True
        distributed.average(self.rows[name])
        return found, gradients[len(self.shared) :]

    def conflicts(self) -> dict[str, Tensor]:
        """Norms and cosines of the tasks' gradients. A cosine below 0 is a conflict (arXiv 2001.06782, definition 1).

        Scalars by name, such as `cosine sentiment/paraphrase` and `norm sentiment`. The cosine is 0 if either gradient
        has norm 0.
        """
        gramian = gramian_of(self.matrix)
        norms = gramian.diagonal().sqrt()  # [tasks]
        tiny = torch.finfo(gramian.dtype).tiny
        cosines = {
            f"cosine {first}/{second}": gramian[i, j] / (norms[i] * norms[j]).clamp(min=tiny)
            for (i, first), (j, second) in combinations(enumerate(self.weights), 2)
        }
        return cosines | {f"norm {name}": norm for name, norm in zip(self.weights, norms, strict=True)}


def gramian_of(matrix: Tensor) -> Tensor:
    """Scalar products of the rows of a matrix [tasks, parameters], in `widest_dtype`: [tasks, tasks].

    A product in float32 adds up its rounding errors on some processors: 0.3% with 30 million random parameters, 6% with
    equal ones. Whether gradients conflict, and by how much, would depend on the machine.
    """
    gramian = matrix.new_zeros(len(matrix), len(matrix), dtype=widest_dtype(matrix.device))
    for block in matrix.split(BLOCK, dim=1):  # so that no copy of all gradients is needed
        wide = block.to(gramian.dtype)
        gramian += wide @ wide.T
    return gramian


def split_parameters(
    module: nn.Module, tasks: Sequence[str]
) -> tuple[list[nn.Parameter], dict[str, list[nn.Parameter]]]:
    """Split trained parameters into shared ones (outside the heads, or in several heads) and each task's own.

    Parameters under `heads.<task>.` belong to the task.
    """
    users: dict[nn.Parameter, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):  # heads may share layers
        part, _, rest = name.partition(".")
        if parameter.requires_grad:
            users.setdefault(parameter, set()).add(rest.partition(".")[0] if part == "heads" else "")
    trained = {parameter: names & {"", *tasks} for parameter, names in users.items()}
    shared = [parameter for parameter, names in trained.items() if "" in names or len(names) > 1]
    return shared, {task: [parameter for parameter, names in trained.items() if names == {task}] for task in tasks}

"""R-Drop: two passes over the same batch, with different dropout, should give the same outputs.

Source: Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", arXiv 2106.14448, algorithm 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from multitask.tasks.task import Task
from multitask.training.regularisation.base import Compute, divergences
from multitask.training.trainable import Losses


@dataclass(frozen=True)
class RDrop:
    """½ (L₁ + L₂) + α · ½ [KL(P₁‖P₂) + KL(P₂‖P₁)], where L and P are the loss and the output of each pass.

    The paper adds up the two losses; their mean, as in the authors' code (https://github.com/dropreg/R-Drop), has the
    scale of one pass. Outputs of regressions differ by ½ of their mean squared difference.

    Args:
        weight: α.
        tasks: the trained tasks by name.
    """

    weight: float
    tasks: Mapping[str, Task]

    def __call__(self, compute: Compute) -> Losses:
        first, second = compute(), compute()
        apart = {name: value / 2 for name, value in divergences(self.tasks, first.outputs, second.outputs).items()}
        watched = {f"{name} r_drop": value.detach() for name, value in apart.items()}
        return replace(
            first,
            terms={name: mean + self.weight * apart[name] for name, mean in _means(first.terms, second.terms).items()},
            watched={**_means(first.watched, second.watched), **watched},
        )


def _means(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: (value + second[name]) / 2 for name, value in first.items()}

"""Inputs and objectives that the tests of this folder share."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from multitask.objectives import OBJECTIVES, Objective, build_objective


@dataclass(frozen=True)
class Batch:
    name: str
    anchors: Tensor  # [pairs, dim] float64
    positives: Tensor  # [pairs, dim] float64
    differentiable: bool = True  # False: some objective has a kink here, so only its value is defined

    def __str__(self) -> str:
        return self.name


def random_batch(seed: int, pairs: int = 6, dim: int = 5, noise: float = 0.7) -> Batch:
    """Positives are noisy anchors. Some rows pass a gate or hinge and some do not."""
    generator = torch.Generator().manual_seed(seed)
    anchors = torch.randn(pairs, dim, dtype=torch.float64, generator=generator)
    positives = anchors + noise * torch.randn(pairs, dim, dtype=torch.float64, generator=generator)
    return Batch(f"random-{seed}", anchors, positives)


def _awkward() -> list[Batch]:
    one, two, six = random_batch(10, pairs=1), random_batch(24, pairs=2), random_batch(12)
    twice = torch.tensor([0, 1, 2, 0, 1, 2])
    some_zero = torch.tensor([1, 0, 1, 1, 0, 1])[:, None]
    apart = torch.eye(6, dtype=torch.float64)
    return [
        Batch("one pair", one.anchors, one.positives),
        Batch("two pairs", two.anchors, two.positives),
        Batch("identical views", six.anchors, six.anchors.clone(), differentiable=False),
        Batch("one pair, identical views", one.anchors, one.anchors.clone(), differentiable=False),
        Batch("opposite views", six.anchors, -six.anchors, differentiable=False),
        Batch("duplicated sentences", six.anchors[twice], six.positives[twice], differentiable=False),
        Batch("collapsed", six.anchors[:1].repeat(6, 1), six.anchors[:1].repeat(6, 1), differentiable=False),
        Batch("some zero vectors", six.anchors * some_zero, six.positives * some_zero.flip(0), differentiable=False),
        Batch("all zero vectors", torch.zeros(6, 5).double(), torch.zeros(6, 5).double(), differentiable=False),
        Batch("every gate closed", apart + 1e-3, apart + 2e-3, differentiable=False),
        Batch("huge", six.anchors * 1e4, six.positives * 1e4),
        Batch("tiny", six.anchors * 1e-6, six.positives * 1e-6),
    ]


AWKWARD_BATCHES = _awkward()
RANDOM_BATCHES = [random_batch(seed) for seed in range(2)]


MIXTURES = [("arccon", "arccon", "arccon"), ("mpt", "mpt", "mpt"), ("met", "infonce", "mat"), ("mat", "arccon", "met")]


COMPONENTS = {"dissipation": 0.3, "weight": 0.05, "ratio": 1.5}
TAKE_COMPONENTS = ("mhe", "mhs", "barlow_twins", "vicreg")


def components_of(name: str) -> dict[str, float]:
    """The components that an objective takes; mhs uses the hardest negative alone, so it has no weights."""
    return {key: value for key, value in COMPONENTS.items() if (name, key) != ("mhs", "weight")}


EACH_OBJECTIVE = [
    *map(build_objective, sorted(OBJECTIVES)),
    *(build_objective(name, uniformity_weight=1.25, **components_of(name)) for name in TAKE_COMPONENTS),
]
"""Each name once, and once with all components."""


def _forms() -> list[Objective]:
    forms = []
    for name in TAKE_COMPONENTS:
        for size in (1, 2):
            for chosen in combinations(components_of(name).items(), size):
                forms += [build_objective(name, uniformity_weight=1.25, **dict(chosen))]
    for name in ("barlow_twins", "vicreg"):
        forms.append(build_objective(name, power=3))
        forms.append(build_objective(name, power=0.5, dissipation=0.6, ratio=1.5))
    return [
        *EACH_OBJECTIVE,
        *forms,
        build_objective("infonce", temperature=0.5),
        build_objective("infonce", temperature=0.1, hard_negative_weight=1.0),
        build_objective("arccon", angle=0.5, temperature=0.2),
        build_objective("met", margin=2),  # every hinge open, so that the floor under the distance shows
        build_objective("mat", margin=1),
        build_objective("align_uniform", alpha=1, t=3, uniformity_weight=0.2),
        build_objective("gradient", dissipation=None, ratio=1.5),
        build_objective("gradient", power=0, dissipation=0.8),
        build_objective("gradient", power=3, ratio=0),
        build_objective("cosent", scale=3),
        build_objective("quora_pairs", form="literal"),
        *(
            build_objective("mixed", dissipation_of=dissipation, weight_of=weight, ratio_of=ratio)
            for dissipation, weight, ratio in MIXTURES
        ),
    ]


ALL_OBJECTIVES = _forms()


def labels_for(objective: Objective, pairs: int) -> Tensor | None:
    if objective.takes_labels == "none":
        return None
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)[:pairs]
    return labels if objective.takes_labels == "0 or 1" else labels * 0.75


def some_false_negatives(pairs: int) -> Tensor:
    """A mask that is not symmetric and leaves the first pair without any negative."""
    mask = torch.rand(pairs, pairs, generator=torch.Generator().manual_seed(3)) < 0.3
    mask[0], mask[:, 0] = True, True
    return mask


def value_and_gradient(
    loss: Callable[..., Tensor], batch: Batch, dtype: torch.dtype = torch.float64, **arguments: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Value, and gradients with respect to the raw anchors and positives."""
    anchors = batch.anchors.to(dtype, copy=True).requires_grad_()
    positives = batch.positives.to(dtype, copy=True).requires_grad_()
    value = loss(anchors, positives, **arguments)
    gradients = torch.autograd.grad(value, [anchors, positives], allow_unused=True, materialize_grads=True)
    return value.detach(), *gradients

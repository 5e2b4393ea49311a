"""Losses whose pull on the positive does not depend on the negatives: the ICLR 2023 paper's decoupled baselines."""

from dataclasses import dataclass

from torch import Tensor

from multitask.objectives.alignment_uniformity import alignment, uniformity
from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.margin_triplets import Hinge
from multitask.objectives.negatives import only_negatives, zero_if_empty
from multitask.objectives.parameters import number


@register("dcl")
@dataclass(frozen=True)
class DecoupledContrastive(Objective):
    """mean_i (−s_ii/τ + log Σ_{j≠i} e^{s_ij/τ}) (Yeh et al. 2021).

    The second part of an anchor without any negative is 0.

    Args: temperature: τ.
    """

    temperature: float = number(0.05, above=0)

    def loss(self, pairs: Pairs) -> Tensor:
        return decoupled_losses(pairs, self.temperature).mean()


@register("dcl_positive")
@dataclass(frozen=True)
class DecoupledContrastivePositive(Hinge):
    """`dcl` with each anchor's loss cut at 0 from below; an anchor without any negative contributes 0.

    Args: temperature: τ.
    """

    temperature: float = number(0.05, above=0)

    def excess(self, pairs: Pairs) -> Tensor:
        return decoupled_losses(pairs, self.temperature)


def decoupled_losses(pairs: Pairs, temperature: float) -> Tensor:
    """−s_ii/τ + log Σ_{j≠i} e^{s_ij/τ}  # [pairs]."""
    logits = only_negatives(pairs.u @ pairs.v.T / temperature, pairs.excluded)
    return zero_if_empty(logits.logsumexp(-1)) - pairs.positive / temperature


@register("align_uniform")
@dataclass(frozen=True)
class AlignUniform(Objective):
    """(1−λ)·mean_i‖u_i−v_i‖^α + λ·(2t + ½[log mean_{i<j} e^{−t‖u_i−u_j‖²} + the same of v]) (Wang & Isola 2020).

    With one pair the spreading part is the constant 2t.

    Args:
        uniformity_weight: λ, 0 to 1.
        alpha: α, at least 1 (below, the gradient is infinite at u = v).
        t: sharpness of the Gaussian kernel.
    """

    uniformity_weight: float = number(0.5, least=0, most=1)
    alpha: float = number(2.0, least=1)
    t: float = number(2.0, above=0)

    def loss(self, pairs: Pairs) -> Tensor:
        excluded = pairs.excluded_within
        spreading = 2 * self.t + (uniformity(pairs.u, self.t, excluded) + uniformity(pairs.v, self.t, excluded)) / 2
        return (1 - self.uniformity_weight) * alignment(
            pairs.u, pairs.v, self.alpha
        ) + self.uniformity_weight * spreading

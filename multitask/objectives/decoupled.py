"""Decoupled losses: the pull on the positive does not depend on the negatives.

Source: the baselines of "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence
Representations" (ICLR 2023).
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from multitask.objectives.base import LARGEST_WEIGHT, SMALLEST_TEMPERATURE, Objective, UnitPairs, register
from multitask.objectives.geometry import alignment, only_negatives, uniformity, zero_if_empty
from multitask.objectives.margin_triplets import Hinge


@register("dcl")
class DecoupledContrastive(Objective):
    """mean_i (−s_ii/τ + log Σ_{j≠i} e^{s_ij/τ}).

    For an anchor without a negative, the second term is 0.

    Source: Decoupled Contrastive Learning (Yeh et al. 2021).
    """

    takes_hard_negatives = True
    temperature: Annotated[float, Field(ge=SMALLEST_TEMPERATURE)] = 0.05
    """Temperature τ of the exponentials."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        return decoupled_losses(pairs, self.temperature).mean()

    def full_push(self, push: Tensor) -> Tensor:
        return push  # this loss dissipates nothing


@register("dcl_positive")
class DecoupledContrastivePositive(Hinge):
    """mean_i [−s_ii/τ + log Σ_{j≠i} e^{s_ij/τ}]_+: `dcl`, where an anchor with a loss below 0 contributes 0.

    Source: Decoupled Contrastive Learning (Yeh et al. 2021), with the cut added.
    """

    temperature: Annotated[float, Field(ge=SMALLEST_TEMPERATURE)] = 0.05
    """Temperature τ of the exponentials."""

    def excess(self, pairs: UnitPairs) -> Tensor:
        return decoupled_losses(pairs, self.temperature)

    def full_push(self, push: Tensor) -> Tensor:
        return push.new_tensor(1 / self.temperature)


def decoupled_losses(pairs: UnitPairs, temperature: float) -> Tensor:
    """−s_ii/τ + log Σ_{j≠i} e^{s_ij/τ}  # [pairs]."""
    logits = only_negatives(pairs.u @ pairs.candidates.T / temperature, pairs.excluded)
    return zero_if_empty(logits.logsumexp(-1)) - pairs.positive / temperature


@register("align_uniform")
class AlignUniform(Objective):
    """(1−λ)·mean_i‖u_i−v_i‖^α + λ·(2t + ½[log mean_{i<j} e^{−t‖u_i−u_j‖²} + log mean_{i<j} e^{−t‖v_i−v_j‖²}]).

    The mean over anchors i<j also has all pairs of an anchor and a hard negative. Without any pair, the uniformity term
    is the constant 2t.

    Source: Wang & Isola 2020.
    """

    takes_hard_negatives = True
    has_mutual_negatives = True
    uniformity_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight λ of the uniformity term; the alignment term has 1 − λ."""
    alpha: Annotated[float, Field(ge=1, le=64)] = 2.0
    """Exponent α of the alignment distance. Below 1 the gradient would be infinite at u_i = v_i; 2^α must be finite."""
    t: Annotated[float, Field(gt=0, le=LARGEST_WEIGHT)] = 2.0
    """Sharpness t of the Gaussian kernel."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        excluded, weight = pairs.excluded_within, self.uniformity_weight
        of_anchors = uniformity(pairs.u, self.t, excluded, pairs.hard)
        of_positives = uniformity(pairs.v, self.t, excluded[:, : len(pairs.v)])
        spreading = 2 * self.t + (of_anchors + of_positives) / 2
        return (1 - weight) * alignment(pairs.u, pairs.v, self.alpha) + weight * spreading

    def full_push(self, push: Tensor) -> Tensor:
        return push  # this loss dissipates nothing

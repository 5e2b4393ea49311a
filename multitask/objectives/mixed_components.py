"""One gradient from the dissipation, the weights and the ratio of up to three losses."""

import math
from typing import Literal

from torch import Tensor

from multitask.objectives.alignment_uniformity import arccos
from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.closed_forms import DISSIPATIONS, RATIOS, WEIGHTS, Negatives
from multitask.objectives.negatives import only_negatives

Loss = Literal["infonce", "arccon", "mpt", "met", "mat"]
SMALLEST = 0.01
"""Limit of the angles to positives in the ratio, from 0 and from π, where the ratio has poles (met's floor)."""


@register("mixed")
class Mixed(Objective):
    """mean_i GD_i Σ_{j≠i} W_ij (s_ij − r_i s_ii), where GD, W and r have no gradient.

    GD (gradient dissipation), W (weights) and r (ratio) are each taken from a loss with its default parameters. If
    all three are from one loss, the gradients of anchors and positives are those of that loss, up to the factors in
    `closed_forms`. An anchor without a negative contributes 0.

    Source: the paradigm of arXiv 2402.18281, section 3; the mixture is not in the paper.
    """

    dissipation_of: Loss = "infonce"
    """The loss that the gradient dissipation GD is from."""
    weight_of: Loss = "infonce"
    """The loss that the weights W over negatives are from."""
    ratio_of: Loss = "infonce"
    """The loss that the ratio r is from."""

    def loss(self, pairs: Pairs) -> Tensor:
        similarity = pairs.u @ pairs.v.T
        dissipation, weights, ratio = self._components(similarity.detach(), pairs.positive.detach(), pairs.excluded)
        push = (weights * similarity).sum(-1)
        return (dissipation * (push - ratio * weights.sum(-1) * pairs.positive)).mean()

    def full_push(self, push: Tensor) -> Tensor:
        return push.new_tensor(1.0)  # the weights of each anchor sum to 1

    def _components(self, similarity: Tensor, positive: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """GD [pairs], W [pairs, pairs], r [pairs]."""
        negatives = Negatives.of_cosines(only_negatives(similarity, excluded))
        angle, hardest = arccos(positive), arccos(negatives.hardest)
        dissipation = DISSIPATIONS[self.dissipation_of](angle, negatives).to(similarity.dtype)
        weights = WEIGHTS[self.weight_of](negatives).masked_fill(excluded, 0)
        ratio = RATIOS[self.ratio_of](angle.clamp(SMALLEST, math.pi - SMALLEST), hardest)
        return dissipation, weights, ratio

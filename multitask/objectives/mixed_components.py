"""Mix and match: dissipation, weight and ratio of three losses, put together in one gradient."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from multitask.objectives.alignment_uniformity import arccos
from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.closed_forms import DISSIPATIONS, RATIOS, WEIGHTS, Negatives
from multitask.objectives.negatives import only_negatives

Loss = Literal["infonce", "arccon", "mpt", "met", "mat"]
SMALLEST = 0.01
"""Angles to positives below this, or this near π, count as this in the ratio, which has poles there (met's floor)."""


@register("mixed")
@dataclass(frozen=True)
class Mixed(Objective):
    """mean_i GD_i Σ_{j≠i} W_ij (s_ij − r_i s_ii), with GD, W and r as constants, each that of a loss at its defaults.

    Source: the paradigm of arXiv 2402.18281, section 3, whose losses each have all three components of their own. With
    all three of one loss, gradients are that loss's, of anchors and of positives, but for the factors that
    `closed_forms` names. An anchor without any negative contributes 0.

    Args:
        dissipation_of: the loss whose GD it is.
        weight_of: the loss whose W it is.
        ratio_of: the loss whose r it is.
    """

    dissipation_of: Loss = "infonce"
    weight_of: Loss = "infonce"
    ratio_of: Loss = "infonce"

    def loss(self, pairs: Pairs) -> Tensor:
        similarity = pairs.u @ pairs.v.T
        dissipation, weights, ratio = self._components(similarity.detach(), pairs.positive.detach(), pairs.excluded)
        push = (weights * similarity).sum(-1)
        return (dissipation * (push - ratio * weights.sum(-1) * pairs.positive)).mean()

    def _components(self, similarity: Tensor, positive: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """GD [pairs], W [pairs, pairs], r [pairs]."""
        negatives = Negatives.of_cosines(only_negatives(similarity, excluded))
        angle, hardest = arccos(positive), arccos(negatives.hardest)
        dissipation = DISSIPATIONS[self.dissipation_of](angle, negatives).to(similarity.dtype)
        weights = WEIGHTS[self.weight_of](negatives).masked_fill(excluded, 0)
        ratio = RATIOS[self.ratio_of](angle.clamp(SMALLEST, math.pi - SMALLEST), hardest)
        return dissipation, weights, ratio

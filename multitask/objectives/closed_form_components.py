"""Dissipation, weights and ratio of contrastive losses in closed form, and a loss that mixes those of several.

The gradient of an anchor on the unit sphere is factor · GD · Σ_{j≠i} W_j (v_j − r v_i), with the gradient dissipation
GD from 0 (no gradient) to 1, weights W that sum to 1, and the ratio r. The factor is 1/τ for infonce and arccon, 1 for
mpt, 1/d for met and 1/sin θ for mat, where d and θ are the distance and the angle to the hardest negative. All losses
have their default parameters. All angles are in radians.

Source: arXiv 2402.18281, section 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from multitask.objectives.base import Objective, UnitPairs, register
from multitask.objectives.geometry import arccos, only_negatives
from multitask.objectives.infonce import ArcCon, InfoNCE
from multitask.objectives.margin_triplets import MarginAngularTriplet, MarginEuclideanTriplet, MarginProductTriplet

INFONCE, ARCCON = InfoNCE(), ArcCon()
MPT, MET, MAT = MarginProductTriplet(), MarginEuclideanTriplet(), MarginAngularTriplet()


@dataclass(frozen=True)
class Negatives:
    """The negatives of anchors, by their cosines with the anchor."""

    hardest: Tensor  # the largest cosine, [...]
    excess: Tensor  # the cosines minus the largest one, [..., negatives]

    @classmethod
    def of_cosines(cls, cosines: Tensor) -> Self:
        """From the cosines, [..., negatives]."""
        hardest = cosines.amax(-1)
        return cls(hardest, cosines - hardest[..., None])

    def hardest_weight(self, temperature: float) -> Tensor:
        """Softmax weight of the hardest negative, e^{s/τ} / Σ_j e^{s_j/τ}  # [...]."""
        return 1 / (self.excess / temperature).exp().sum(-1)

    def logit(self, hardest_weight: Tensor, temperature: float) -> Tensor:
        """The logit log Σ_j e^{s_j/τ}, from the hardest weight at the same temperature  # [...]."""
        return self.hardest / temperature - hardest_weight.log()

    def softmax(self, temperature: float) -> Tensor:
        """All softmax weights  # [..., negatives]."""
        return (self.excess / temperature).softmax(-1)

    def one_hot(self) -> Tensor:
        """Weight 1 on the hardest negative; equally hard ones share it  # [..., negatives]."""
        hardest = (self.excess == 0).to(self.excess.dtype)
        return hardest / hardest.sum(-1, keepdim=True)


def _soft(positive_cosine: Tensor, negatives: Negatives, temperature: float) -> Tensor:
    """1 − p, where p is the positive's probability in a softmax over all cosines."""
    logit = negatives.logit(negatives.hardest_weight(temperature), temperature)
    return torch.sigmoid(logit - positive_cosine / temperature)


DISSIPATIONS: dict[str, Callable[[Tensor, Negatives], Tensor]] = {
    "infonce": lambda positive, negatives: _soft(positive.cos(), negatives, INFONCE.temperature),
    "arccon": lambda positive, negatives: _soft((positive + ARCCON.angle).cos(), negatives, ARCCON.temperature),
    "mpt": lambda positive, negatives: (positive.cos() - negatives.hardest < MPT.margin).float(),
    "met": lambda positive, negatives: (
        (2 - 2 * negatives.hardest).clamp_min(0).sqrt() - 2 * (positive / 2).sin().abs() < MET.margin
    ).float(),
    "mat": lambda positive, negatives: (
        negatives.hardest.clamp(-1, 1).acos() - positive < MAT.margin * math.pi
    ).float(),
}
"""GD of an anchor: its angle to its positive [...], its negatives (of a shape that broadcasts) -> [...].

infonce: 1 − p_ii. arccon: the same, with the margin added to the positive's angle.
mpt: 1 if s_ii − max_j s_ij < m, else 0. met: 1 if min_j d_ij − d_ii < m with d = sqrt(2 − 2s), else 0.
mat: 1 if min_j θ_ij − θ_ii < m·π, else 0. All but mat use only the cosine of an angle beyond [0, π].
"""

WEIGHTS: dict[str, Callable[[Negatives], Tensor]] = {
    "infonce": lambda negatives: negatives.softmax(INFONCE.temperature),
    "arccon": lambda negatives: negatives.softmax(ARCCON.temperature),
    **dict.fromkeys(("mpt", "met", "mat"), Negatives.one_hot),
}
"""W of an anchor's negatives -> [..., negatives]."""

RATIOS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "infonce": lambda positive, _: torch.ones_like(positive),
    "arccon": lambda positive, _: (positive + ARCCON.angle).sin() / positive.sin(),
    "mpt": lambda positive, _: torch.ones_like(positive),
    "met": lambda positive, negative: (negative / 2).sin() / (positive / 2).sin(),
    "mat": lambda positive, negative: negative.sin() / positive.sin(),
}
"""r of an anchor: its angles to its positive and to its hardest negative, both [...] -> [...]."""


LossName = Literal["infonce", "arccon", "mpt", "met", "mat"]
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

    takes_hard_negatives = True
    dissipation_of: LossName = "infonce"
    """The loss that the gradient dissipation GD is from."""
    weight_of: LossName = "infonce"
    """The loss that the weights W over negatives are from."""
    ratio_of: LossName = "infonce"
    """The loss that the ratio r is from."""

    def loss(self, pairs: UnitPairs) -> Tensor:
        similarity = pairs.u @ pairs.candidates.T
        dissipation, weights, ratio = self._components(similarity.detach(), pairs.positive.detach(), pairs.excluded)
        push = (weights * similarity).sum(-1)
        return (dissipation * (push - ratio * weights.sum(-1) * pairs.positive)).mean()

    def full_push(self, push: Tensor) -> Tensor:
        return push.new_tensor(1.0)  # the weights of each anchor sum to 1

    def _components(self, similarity: Tensor, positive: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """GD [pairs], W [pairs, pairs + hard_negatives], r [pairs]."""
        negatives = Negatives.of_cosines(only_negatives(similarity, excluded))
        angle, hardest = arccos(positive), arccos(negatives.hardest)
        dissipation = DISSIPATIONS[self.dissipation_of](angle, negatives).to(similarity.dtype)
        weights = WEIGHTS[self.weight_of](negatives).masked_fill(excluded, 0)
        ratio = RATIOS[self.ratio_of](angle.clamp(SMALLEST, math.pi - SMALLEST), hardest)
        return dissipation, weights, ratio

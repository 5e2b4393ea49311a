"""Gradient dissipation GD, weights W and ratio r of contrastive losses as functions of angles.

The gradient of an anchor on the unit sphere is factor · GD · Σ_{j≠i} W_j (v_j − r v_i), with GD from 0 (no gradient)
to 1 and weights W that sum to 1. The factor is 1/τ for infonce and arccon, 1 for mpt, 1/d for met and 1/sin θ for mat,
where d and θ are the distance and the angle to the hardest negative.

All losses have their default parameters. All angles are in radians.

Source: arXiv 2402.18281, section 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

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

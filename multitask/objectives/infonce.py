"""InfoNCE and its variants: cross-entropy over the cosine similarities of a batch."""

import math
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from multitask.objectives.base import LARGEST_WEIGHT, SMALLEST_TEMPERATURE, Objective, UnitPairs, register
from multitask.objectives.geometry import arccos


@register("infonce")
class InfoNCE(Objective):
    """mean_i −log softmax_j(s_ij/τ)[i].

    An anchor without a negative contributes 0.

    Source: SimCSE (arXiv 2104.08821), equations 1 and 5.
    """

    temperature: Annotated[float, Field(ge=SMALLEST_TEMPERATURE)] = 0.05
    """Temperature τ of the softmax."""
    hard_negative_weight: Annotated[float, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT)] = 0.0
    """Added to the logit of a pair's own hard negative; other than 0 it needs one hard negative per pair."""
    takes_hard_negatives: ClassVar[bool] = True

    def similarity(self, pairs: UnitPairs) -> Tensor:
        """Cosines of anchors with positives, then with hard negatives  # [pairs, pairs + hard_negatives]."""
        return pairs.u @ pairs.candidates.T

    def loss(self, pairs: UnitPairs) -> Tensor:
        logits = self.similarity(pairs) / self.temperature
        if pairs.hard is not None and self.hard_negative_weight != 0:
            logits = self._weigh_own_hard_negative(logits)
        if pairs.false_negatives is not None:
            logits[:, : len(logits)].masked_fill_(pairs.false_negatives, -math.inf)
        if pairs.false_hard_negatives is not None:
            logits[:, len(logits) :].masked_fill_(pairs.false_hard_negatives, -math.inf)
        return cross_entropy(logits, torch.arange(len(logits), device=logits.device))

    def full_push(self, push: Tensor) -> Tensor:
        return push.new_tensor(1 / self.temperature)  # the limit for a positive less similar than all negatives

    def _weigh_own_hard_negative(self, logits: Tensor) -> Tensor:
        pairs, candidates = logits.shape
        if candidates != 2 * pairs:
            raise ValueError(
                f"{self.name}: {candidates - pairs} hard negatives for {pairs} pairs; "
                "hard_negative_weight needs exactly one for each"
            )
        own = logits.diagonal(offset=pairs) + self.hard_negative_weight
        return torch.diagonal_scatter(logits, own, offset=pairs)


@register("mnrl")
class MultipleNegativesRanking(Objective):
    """mean_i −log softmax_j(scale·s_ij)[i]: `infonce` with temperature 1/scale.

    Source: MultipleNegativesRankingLoss of sentence-transformers.
    """

    scale: Annotated[float, Field(gt=0, le=LARGEST_WEIGHT)] = 20.0
    """Factor of the cosines, 1/τ."""
    takes_hard_negatives: ClassVar[bool] = True

    @property
    def temperature(self) -> float:
        """Temperature τ of the softmax."""
        return 1 / self.scale

    def loss(self, pairs: UnitPairs) -> Tensor:
        return InfoNCE(self.temperature).loss(pairs)

    def full_push(self, push: Tensor) -> Tensor:
        return push.new_tensor(self.scale)


@register("arccon")
class ArcCon(InfoNCE):
    """`infonce` with s_ii replaced by cos(θ_ii + angle), where θ_ii = arccos s_ii.

    Source: ArcCSE (Zhang et al. 2022), equation 3.
    """

    angle: Annotated[float, Field(ge=0, le=math.pi)] = math.radians(10)
    """Angular margin in radians, added to θ_ii."""

    def similarity(self, pairs: UnitPairs) -> Tensor:
        similarity = super().similarity(pairs)
        return torch.diagonal_scatter(similarity, torch.cos(arccos(similarity.diagonal()) + self.angle))

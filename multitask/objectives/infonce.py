"""InfoNCE and what is InfoNCE in other words: cross-entropy over the similarities of a batch."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from minbert.errors import InputError
from multitask.objectives.alignment_uniformity import arccos
from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.parameters import number


@register("infonce")
@dataclass(frozen=True)
class InfoNCE(Objective):
    """mean_i −log softmax_j(s_ij/τ)[i] (SimCSE, arXiv 2104.08821, equations 1 and 5).

    Hard negatives w_k give every row further logits u_i·w_k/τ. An anchor without any negative contributes 0.

    Args:
        temperature: τ.
        hard_negative_weight: added to the logit of the pair's own hard negative; then there must be one for each pair.
    """

    temperature: float = number(0.05, above=0)
    hard_negative_weight: float = number(0.0)
    takes_hard_negatives: ClassVar[bool] = True

    def similarity(self, pairs: Pairs) -> Tensor:
        """Anchors against positives, then hard negatives  # [pairs, pairs + hard_negatives]."""
        candidates = pairs.v if pairs.hard is None else torch.cat([pairs.v, pairs.hard])
        return pairs.u @ candidates.T

    def loss(self, pairs: Pairs) -> Tensor:
        logits = self.similarity(pairs) / self.temperature
        if pairs.hard is not None and self.hard_negative_weight != 0:
            logits = self._weigh_own_hard_negative(logits)
        if pairs.false_negatives is not None:
            logits[:, : len(logits)].masked_fill_(pairs.false_negatives, -math.inf)
        if pairs.false_hard_negatives is not None:
            logits[:, len(logits) :].masked_fill_(pairs.false_hard_negatives, -math.inf)
        return cross_entropy(logits, torch.arange(len(logits), device=logits.device))

    def _weigh_own_hard_negative(self, logits: Tensor) -> Tensor:
        pairs, candidates = logits.shape
        if candidates != 2 * pairs:
            raise InputError(
                f"{self.name}: {candidates - pairs} hard negatives for {pairs} pairs; "
                "hard_negative_weight needs exactly one for each"
            )
        own = logits.diagonal(offset=pairs) + self.hard_negative_weight
        return torch.diagonal_scatter(logits, own, offset=pairs)


@register("mnrl")
@dataclass(frozen=True)
class MultipleNegativesRanking(Objective):
    """`infonce` as sentence-transformers names it (MultipleNegativesRankingLoss).

    Args: scale: 1/τ.
    """

    scale: float = number(20.0, above=0)
    takes_hard_negatives: ClassVar[bool] = True

    def loss(self, pairs: Pairs) -> Tensor:
        return InfoNCE(temperature=1 / self.scale).loss(pairs)


@register("arccon")
@dataclass(frozen=True)
class ArcCon(InfoNCE):
    """`infonce` with s_ii replaced by cos(θ_ii + angle), θ = arccos s (ArcCSE, Zhang et al. 2022, equation 3).

    Args: angle: the additive margin in radians, 0 to π.
    """

    angle: float = number(math.radians(10), least=0, most=math.pi)

    def similarity(self, pairs: Pairs) -> Tensor:
        similarity = super().similarity(pairs)
        return torch.diagonal_scatter(similarity, torch.cos(arccos(similarity.diagonal()) + self.angle))

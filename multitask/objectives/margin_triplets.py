"""Triplet losses with a margin, on the hardest negative of each anchor, in three measures of closeness.

Source: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations"
(ICLR 2023). An anchor without any negative contributes 0.
"""

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import relu

from multitask.objectives.alignment_uniformity import arccos
from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.negatives import hardest
from multitask.objectives.parameters import number


class Hinge(Objective):
    """mean_i [excess_i]_+ over the anchors that have a negative."""

    def excess(self, pairs: Pairs) -> Tensor:
        """By how much each anchor misses its goal; at or below 0 it gets no gradient  # [pairs]."""
        raise NotImplementedError

    def loss(self, pairs: Pairs) -> Tensor:
        return relu(self._excess_of_comparable(pairs)).mean()

    def active(self, pairs: Pairs) -> Tensor:
        return self._excess_of_comparable(pairs) > 0

    def _excess_of_comparable(self, pairs: Pairs) -> Tensor:
        return self.excess(pairs).masked_fill(pairs.excluded.all(-1), 0)


@register("mpt")
@dataclass(frozen=True)
class MarginProductTriplet(Hinge):
    """mean_i [max_{j≠i} s_ij − s_ii + m]_+.

    Args: margin: m, in cosine units, 0 to 2.
    """

    margin: float = number(0.23, least=0, most=2)

    def excess(self, pairs: Pairs) -> Tensor:
        return hardest(pairs.u @ pairs.v.T, pairs.excluded) - pairs.positive + self.margin


@register("met")
@dataclass(frozen=True)
class MarginEuclideanTriplet(Hinge):
    """mean_i [d_ii − min_{j≠i} d_ij + m]_+ with d_ij = sqrt(max(2 − 2 s_ij, 1e-4)).

    Args: margin: m, in distance on the unit sphere, 0 to 2.
    """

    margin: float = number(0.45, least=0, most=2)

    def excess(self, pairs: Pairs) -> Tensor:
        # d falls as s rises: the nearest negative is the most similar one
        nearest = hardest(pairs.u @ pairs.v.T, pairs.excluded)
        return _distance(pairs.positive) - _distance(nearest) + self.margin


def _distance(cosine: Tensor) -> Tensor:
    return (2 - 2 * cosine).clamp_min(1e-4).sqrt()


@register("mat")
@dataclass(frozen=True)
class MarginAngularTriplet(Hinge):
    """mean_i [θ_ii − min_{j≠i} θ_ij + m·π]_+ with θ_ij = arccos s_ij.

    Args: margin: m, in units of π, 0 to 1.
    """

    margin: float = number(0.15, least=0, most=1)

    def excess(self, pairs: Pairs) -> Tensor:
        nearest = hardest(pairs.u @ pairs.v.T, pairs.excluded)
        return arccos(pairs.positive) - arccos(nearest) + self.margin * math.pi

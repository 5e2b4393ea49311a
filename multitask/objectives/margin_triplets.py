"""Triplet losses with a margin on each anchor's hardest negative: by inner product, distance and angle."""

import math
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field
from torch import Tensor
from torch.nn.functional import relu

from multitask.objectives.base import Objective, UnitPairs, register
from multitask.objectives.geometry import arccos, hardest


class Hinge(Objective):
    """mean_i [excess_i]_+, where an anchor without a negative contributes 0."""

    takes_hard_negatives = True

    def excess(self, pairs: UnitPairs) -> Tensor:
        """The loss of each anchor before it is cut at 0; an anchor at or below 0 gets no gradient  # [pairs]."""
        raise NotImplementedError

    def loss(self, pairs: UnitPairs) -> Tensor:
        return relu(self._excess_of_comparable(pairs)).mean()

    def active(self, pairs: UnitPairs) -> Tensor:
        return self._excess_of_comparable(pairs) > 0

    def _excess_of_comparable(self, pairs: UnitPairs) -> Tensor:
        return self.excess(pairs).masked_fill(pairs.excluded.all(-1), 0)


@register("mpt")
class MarginProductTriplet(Hinge):
    """mean_i [max_{j≠i} s_ij − s_ii + m]_+.

    Source: the code of "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified
    Paradigm for Gradient" (arXiv 2402.18281). The loss was proposed in the paper that `met` and `mat` name.
    """

    margin: Annotated[float, Field(ge=0, le=2)] = 0.23
    """Margin m between two cosines."""

    def excess(self, pairs: UnitPairs) -> Tensor:
        return hardest(pairs.u @ pairs.candidates.T, pairs.excluded) - pairs.positive + self.margin

    def undissipated(self) -> Self:
        return replace(self, margin=2.0)


@register("met")
class MarginEuclideanTriplet(Hinge):
    """mean_i [d_ii − min_{j≠i} d_ij + m]_+ with d_ij = sqrt(max(2 − 2 s_ij, 1e-4)).

    Source: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence
    Representations" (ICLR 2023).
    """

    margin: Annotated[float, Field(ge=0, le=2)] = 0.45
    """Margin m between two distances of unit vectors."""

    def excess(self, pairs: UnitPairs) -> Tensor:
        # The distance falls as the cosine rises, so the nearest negative is the most similar one.
        nearest = hardest(pairs.u @ pairs.candidates.T, pairs.excluded)
        return _distance(pairs.positive) - _distance(nearest) + self.margin

    def undissipated(self) -> Self:
        return replace(self, margin=2.0)


def _distance(cosine: Tensor) -> Tensor:
    return (2 - 2 * cosine).clamp_min(1e-4).sqrt()


@register("mat")
class MarginAngularTriplet(Hinge):
    """mean_i [θ_ii − min_{j≠i} θ_ij + m·π]_+ with θ_ij = arccos s_ij.

    Source: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence
    Representations" (ICLR 2023).
    """

    margin: Annotated[float, Field(ge=0, le=1)] = 0.15
    """Margin m between two angles, in units of π."""

    def excess(self, pairs: UnitPairs) -> Tensor:
        nearest = hardest(pairs.u @ pairs.candidates.T, pairs.excluded)
        return arccos(pairs.positive) - arccos(nearest) + self.margin * math.pi

    def undissipated(self) -> Self:
        return replace(self, margin=1.0)

"""The gradient paradigm as a loss: its gradient is made of a gate, weights over negatives and a ratio."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from multitask.objectives.base import LARGEST_WEIGHT, SMALLEST_TEMPERATURE, Objective, UnitPairs, register
from multitask.objectives.geometry import dissipation_gate, only_negatives, weight_logits


@register("gradient")
class GradientParadigm(Objective):
    """half(u, sg(v)) + half(v, sg(u)), with the gradient GD_i · Σ_{j≠i} W_ij (v_j − r·v_i) of an anchor in the first.

    half(x, y) is the mean of W_ij (x_i·y_j − r·a_i) over the rows i that pass the gate and all columns j.
    a_i = u_i·v_i; its gradient goes to u_i and to v_i.
    GD_i (gradient dissipation) is 1 for a row that passes the gate, s_ii − max_{j≠i} s_ij < m, and 0 for others; in
    half(v, u) the maximum is over the column of s.
    W_i = softmax over j≠i of s_ij/τ, without gradient.
    Hard negatives are further columns of the first half, which is still divided by N for the number of columns.
    If no row of a half passes the gate, the half is 0 and has no gradient. A row without a negative contributes 0.
    With `negatives=hardest`, half(v, u) has the pairs that anchors keep, so a few of its rows have no negative.

    Source: "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for
    Gradient" (arXiv 2402.18281), section 3.
    """

    takes_hard_negatives = True
    dissipation: Annotated[float | None, Field(ge=-2, le=2)] = 0.30
    """Margin m of the dissipation gate; none: every row passes."""
    weight: Annotated[float, Field(ge=SMALLEST_TEMPERATURE)] = 0.05
    """Temperature τ of the weights W over negatives."""
    ratio: Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)] = 1.0
    """Ratio r of the pull on the positive to the push from the negatives in each half. Both halves pull an anchor, but
    only one pushes it, so the ratio of its whole gradient, which `probe` measures, is about 2r."""
    power: Annotated[float | None, Field(ge=0, le=LARGEST_WEIGHT)] = None
    """Exponent p of the weights W_ij ∝ max(s_ij, 1e-4)^p, which replace the softmax; 0: uniform."""

    def __post_init__(self) -> None:
        if self.power is not None and self.weight != GradientParadigm.weight:
            raise ValueError("weight and power are two forms of one component; give one of them")

    def loss(self, pairs: UnitPairs) -> Tensor:
        u, v = pairs.u.detach(), pairs.v.detach()
        similarity, of_positives, excluded = self._similarities(pairs)
        of_anchors = self._half(pairs.u, pairs.v, pairs.with_hard(v), similarity, pairs.excluded)
        return of_anchors + self._half(pairs.v, pairs.u, u, of_positives, excluded)

    def active(self, pairs: UnitPairs) -> Tensor | None:
        if self.dissipation is None:
            return None
        similarity, of_positives, excluded = self._similarities(pairs)
        return torch.cat([self._gate(similarity, pairs.excluded), self._gate(of_positives, excluded)])

    def full_push(self, push: Tensor) -> Tensor:
        # The rows that pass share one normaliser, and the weights of each row sum to 1. A row that alone passes has 1.
        full = push.amax()
        return full.where(full > 0, 1.0)

    def _similarities(self, pairs: UnitPairs) -> tuple[Tensor, Tensor, Tensor]:
        """Of anchors with candidates, of positives with anchors, and which anchors are no negatives of a positive."""
        similarity = pairs.u.detach() @ pairs.candidates.detach().T
        among = len(pairs.v)
        return similarity, similarity[:, :among].T, pairs.excluded[:, :among].T

    def _half(self, x: Tensor, y: Tensor, negatives: Tensor, similarity: Tensor, excluded: Tensor) -> Tensor:
        logits = weight_logits(similarity, temperature=self.weight, power=self.power)
        weights = only_negatives(logits, excluded).softmax(-1).masked_fill(excluded, 0)  # [pairs, negatives]
        gate = self._gate(similarity, excluded)
        negative = (x * (weights @ negatives)).sum(-1)  # Σ_j W_ij x_i·y_j, without a second matrix of all
        target = negative - self.ratio * weights.sum(-1) * (x * y).sum(-1)
        return (target * gate).sum() / (gate.sum().clamp_min(1) * len(x))

    def _gate(self, similarity: Tensor, excluded: Tensor) -> Tensor:
        return dissipation_gate(similarity, similarity.diagonal(), excluded, margin=self.dissipation)

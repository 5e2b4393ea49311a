"""The gradient paradigm as a loss: gate, weights and ratio are given, the gradient follows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multitask.objectives.base import Objective, Pairs, register
from multitask.objectives.components import dissipation_gate, weight_logits
from multitask.objectives.negatives import only_negatives
from multitask.objectives.parameters import number


@register("gradient")
@dataclass(frozen=True)
class GradientParadigm(Objective):
    """half(u, sg(v)) + half(v, sg(u)), whose gradient of an anchor is GD_i · Σ_{j≠i} W_ij (v_j − r·v_i).

    Source: arXiv 2402.18281, section 3.

    half(x, y) = mean over the rows that pass the gate, and over all columns j, of W_ij (x_i·y_j − r·a_i), where
    a_i = u_i·v_i carries gradient into both sides; the gate is s_ii − max_{j≠i} s_ij < m (for half(v, u) the
    maximum runs over the column of s); W_i is the softmax of s_ij/τ over j≠i, without gradient.
    A half in which no row passes the gate is 0 with zero gradient; a row without any negative contributes 0.

    Args:
        dissipation: m; None: every row passes.
        weight: τ of the weights.
        ratio: r.
        power: p; W_ij ∝ max(s_ij, 1e-4)^p instead of the softmax (p = 0: uniform).
    """

    dissipation: float | None = number(0.30, least=-2, most=2)
    weight: float = number(0.05, above=0)
    ratio: float = number(1.0, least=0)
    power: float | None = number(None, least=0)

    def loss(self, pairs: Pairs) -> Tensor:
        similarity = pairs.u.detach() @ pairs.v.detach().T
        return self._half(pairs.u, pairs.v, similarity, pairs.excluded) + self._half(
            pairs.v, pairs.u, similarity.T, pairs.excluded.T
        )

    def active(self, pairs: Pairs) -> Tensor | None:
        if self.dissipation is None:
            return None
        similarity = pairs.u @ pairs.v.T
        return torch.cat([self._gate(similarity, pairs.excluded), self._gate(similarity.T, pairs.excluded.T)])

    def _half(self, x: Tensor, y: Tensor, similarity: Tensor, excluded: Tensor) -> Tensor:
        logits = weight_logits(similarity, self.weight, self.power)
        weights = only_negatives(logits, excluded).softmax(-1).masked_fill(excluded, 0)  # [pairs, pairs]
        gate = self._gate(similarity, excluded)
        negative = (x * (weights @ y.detach())).sum(-1)  # Σ_j W_ij x_i·y_j without a second [pairs, pairs] matrix
        target = negative - self.ratio * weights.sum(-1) * (x * y).sum(-1)
        return (target * gate).sum() / (gate.sum().clamp_min(1) * len(x))

    def _gate(self, similarity: Tensor, excluded: Tensor) -> Tensor:
        return dissipation_gate(similarity, similarity.diagonal(), excluded, self.dissipation)

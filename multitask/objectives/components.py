"""Two components of a gradient that make a loss work for ranking: the dissipation gate and weights over negatives.

The third component, the ratio, is a factor in each loss.

Source: arXiv 2402.18281, sections 3 and 4.
"""

import torch
from torch import Tensor

from multitask.objectives.negatives import hardest

POWER_FLOOR = 1e-4
"""Lower limit of similarities in the power form, which needs positive numbers."""


@torch.no_grad()
def dissipation_gate(similarity: Tensor, positive: Tensor | float, excluded: Tensor, margin: float | None) -> Tensor:
    """True for rows with positive_i − max_{j≠i} s_ij < m; without a margin m, for all rows  # [rows] bool."""
    if margin is None:
        return torch.ones(len(similarity), dtype=torch.bool, device=similarity.device)
    return positive - hardest(similarity, excluded) < margin


def weight_logits(similarity: Tensor, temperature: float, power: float | None) -> Tensor:
    """Logarithms of the unnormalised weights over negatives: s/τ, or with a power p instead p·log max(s, 1e-4)."""
    return similarity / temperature if power is None else power * similarity.clamp_min(POWER_FLOOR).log()

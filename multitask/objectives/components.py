"""The components of the gradient that make a loss work for ranking: dissipation gate and weights over negatives.

Source: arXiv 2402.18281, sections 3 and 4. Nothing here carries a gradient. The third component, the ratio, is a factor
in each loss.
"""

import torch
from torch import Tensor

from multitask.objectives.negatives import hardest

# Similarities below this count as this in the power form, which needs them above 0.
POWER_FLOOR = 1e-4


@torch.no_grad()
def dissipation_gate(similarity: Tensor, positive: Tensor | float, excluded: Tensor, margin: float | None) -> Tensor:
    """Whose hardest negative is near: positive_i − max_{j≠i} s_ij < m; no margin: everyone  # [rows] bool."""
    if margin is None:
        return torch.ones(len(similarity), dtype=torch.bool, device=similarity.device)
    return positive - hardest(similarity, excluded) < margin


def weight_logits(similarity: Tensor, temperature: float, power: float | None) -> Tensor:
    """Log of the unnormalised weights: s/τ, or with a power p the alternative form p·log max(s, 1e-4)."""
    return similarity / temperature if power is None else power * similarity.clamp_min(POWER_FLOOR).log()

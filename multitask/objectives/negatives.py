"""Reductions over the negatives of each row of a similarity matrix, and the components of a gradient made of them.

`excluded` [rows, columns] is True where a column is not a negative of the row. The maximum over no negatives is −∞ in
the formulas. Here it is the dtype's lowest finite number, so that no gradient becomes inf − inf.
"""

import torch
from torch import Tensor

POWER_FLOOR = 1e-4
"""Lower limit of similarities in the power form of weights, which needs positive numbers."""


def diagonal_mask(x: Tensor) -> Tensor:
    """True on the diagonal  # [len(x), len(x)] bool."""
    return torch.eye(len(x), dtype=torch.bool, device=x.device)


def only_negatives(similarity: Tensor, excluded: Tensor) -> Tensor:
    """The matrix with the dtype's lowest number in the excluded entries."""
    return similarity.masked_fill(excluded, torch.finfo(similarity.dtype).min)


def hardest(similarity: Tensor, excluded: Tensor) -> Tensor:
    """Maximum over the negatives of each row; ties share the gradient  # [rows]."""
    return only_negatives(similarity, excluded).amax(-1)


def zero_if_empty(value: Tensor) -> Tensor:
    """A maximum or logsumexp over negatives, or 0 where there was no negative."""
    return value.masked_fill(value < torch.finfo(value.dtype).min / 2, 0)


@torch.no_grad()
def dissipation_gate(similarity: Tensor, positive: Tensor | float, excluded: Tensor, margin: float | None) -> Tensor:
    """True for rows with positive_i − max_{j≠i} s_ij < m; without a margin m, for all rows  # [rows] bool.

    Source: arXiv 2402.18281, sections 3 and 4.
    """
    if margin is None:
        return torch.ones(len(similarity), dtype=torch.bool, device=similarity.device)
    return positive - hardest(similarity, excluded) < margin


def weight_logits(similarity: Tensor, temperature: float, power: float | None) -> Tensor:
    """Logarithms of the unnormalised weights over negatives: s/τ, or with a power p instead p·log max(s, 1e-4)."""
    return similarity / temperature if power is None else power * similarity.clamp_min(POWER_FLOOR).log()

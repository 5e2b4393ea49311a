"""Geometry of a batch on the unit sphere: unit vectors, angles, alignment, uniformity, and reductions over negatives.

`excluded` [rows, columns] is True where a column is not a negative of the row. The maximum over no negatives is −∞ in
the formulas. Here it is the dtype's lowest finite number, so that no gradient becomes inf − inf.
"""

import math

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


def unit(x: Tensor) -> Tensor:
    """Embeddings of any floating dtype -> unit vectors in fp32 (float64 stays float64)  # [n, dim].

    A zero vector stays zero and has a finite gradient. (Dividing by a small ε would make the gradient huge.)
    """
    x = x if x.dtype == torch.float64 else x.float()
    norm = x.norm(dim=-1, keepdim=True)
    return x / norm.masked_fill(norm == 0, 1)


def arccos(cosine: Tensor) -> Tensor:
    """Angle in radians, with finite value and gradient at ±1. The error is at most sqrt(2ε), ε of the dtype."""
    limit = 1 - torch.finfo(cosine.dtype).eps
    return torch.acos(cosine.clamp(-limit, limit))


def alignment(u: Tensor, v: Tensor, alpha: float = 2.0) -> Tensor:
    """mean_i ‖u_i − v_i‖^α of unit vectors [pairs, dim] -> scalar (Wang & Isola 2020, section 4.1.1)."""
    return (u - v).norm(dim=-1).pow(alpha).mean()


def ordered(logits: Tensor) -> Tensor:
    """Add log 2 to the columns of hard negatives: then Σ e^{...} has all pairs twice, as it has (i, j) and (j, i).

    [pairs, pairs + hard_negatives] -> the same shape.
    """
    anchors, hard = logits.split([len(logits), logits.shape[1] - len(logits)], dim=1)
    return torch.cat([anchors, hard + math.log(2)], dim=1)


def uniformity(x: Tensor, t: float = 2.0, excluded: Tensor | None = None, hard: Tensor | None = None) -> Tensor:
    """Logarithm of mean_{i<j} e^{−t‖x_i − x_j‖²} of unit vectors [n, dim] -> scalar (Wang & Isola 2020, section 4.1.2).

    Args:
        x: unit vectors.
        t: sharpness of the Gaussian kernel.
        excluded: [n, n + hard] bool, symmetric but for hard negatives, True on the diagonal and for pairs to leave out;
            None: all pairs i<j.
        hard: unit vectors [hard, dim] that pair with each of x, but not with each other. They need `excluded`.

    Without any pair the value is 0, as for points that coincide.
    """
    squared_norm = x.square().sum(-1)
    others, norms = x, squared_norm
    if hard is not None:
        others, norms = torch.cat([x, hard]), torch.cat([squared_norm, hard.square().sum(-1)])
    excluded = diagonal_mask(x) if excluded is None else excluded
    squared_distance = squared_norm[:, None] + norms - 2 * x @ others.T  # [n, n + hard]
    kernel = (-t * squared_distance).masked_fill(excluded, torch.finfo(x.dtype).min)
    counted = ~excluded
    if hard is not None:
        kernel, counted = ordered(kernel), torch.cat([counted, counted[:, len(x) :]], 1)
    count = counted.sum().clamp_min(1).to(x.dtype)
    return zero_if_empty(kernel.logsumexp((0, 1))) - count.log()

"""Geometry of the unit sphere: unit vectors, angles, alignment and uniformity, for losses and for logging."""

import torch
from torch import Tensor

from multitask.objectives.negatives import diagonal_mask, zero_if_empty


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


def uniformity(x: Tensor, t: float = 2.0, excluded: Tensor | None = None) -> Tensor:
    """Logarithm of mean_{i<j} e^{−t‖x_i − x_j‖²} of unit vectors [n, dim] -> scalar (Wang & Isola 2020, section 4.1.2).

    Args:
        x: unit vectors.
        t: sharpness of the Gaussian kernel.
        excluded: [n, n] bool, symmetric, True on the diagonal and for pairs to leave out; None: all pairs i<j.

    Without any pair the value is 0, as for points that coincide.
    """
    excluded = diagonal_mask(x) if excluded is None else excluded
    squared_norm = x.square().sum(-1)
    squared_distance = squared_norm[:, None] + squared_norm - 2 * x @ x.T  # [n, n]
    kernel = (-t * squared_distance).masked_fill(excluded, torch.finfo(x.dtype).min)
    count = (~excluded).sum().clamp_min(1).to(x.dtype)
    return zero_if_empty(kernel.logsumexp((0, 1))) - count.log()

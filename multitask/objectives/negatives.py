"""Reductions over the negatives of each row of a similarity matrix.

`excluded` [rows, columns] is True where a column is not a negative of the row. The maximum over no negatives is −∞ in
the formulas. Here it is the dtype's lowest finite number, so that no gradient becomes inf − inf.
"""

import torch
from torch import Tensor


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

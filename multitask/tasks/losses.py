"""Losses by row that `kinds` combine: focal loss, the term for ordered classes, and the mean of weighted rows."""

import torch
from torch import Tensor


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Σ w l / Σ w of losses [rows] with the rows' weights, scalar; 0 if all weights are 0."""
    if weights is None:
        return losses.mean()
    return (weights * losses).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def focus(log_likelihood: Tensor, gamma: float) -> Tensor:
    """(1 - p)^γ, the factor by which focal loss lowers the cross-entropy of gold labels with probability p; any shape.

    Source: Lin et al. 2017, "Focal Loss for Dense Object Detection", arXiv 1708.02002, equation 4.
    """
    missed = -torch.expm1(log_likelihood)
    return missed.clamp(min=torch.finfo(missed.dtype).tiny) ** gamma  # at 0, powers below 1 have no gradient


def distance_loss(log_probabilities: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """-Σ_j log(1 - p_j) d(y, j)^α, where d is the number of classes between y and j; [rows, classes] -> [rows].

    Source: Castagnos et al. 2022, "A Simple Log-based Loss Function for Ordinal Text Classification", COLING 2022,
    OLL-α.
    """
    top = log_probabilities.argmax(dim=1, keepdim=True)
    others = log_probabilities.scatter(1, top, -torch.inf)
    # 1 - p rounds to 0 where p is close to 1: there, the other classes are added up.
    log_missed = torch.log1p(-others.exp()).scatter(1, top, others.logsumexp(dim=1, keepdim=True))
    classes = torch.arange(log_probabilities.shape[1], device=labels.device)
    distances = (classes - labels[:, None]).abs().to(log_probabilities.dtype)
    return -(log_missed * distances**alpha).sum(dim=1)

"""Which other sentences of a batch count as an anchor's negatives.

To add a way, write a function of `WAYS` and its name in `NegativesConfig`.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from multitask.data.examples import Rows
from multitask.objectives import unit
from multitask.objectives.negatives import diagonal_mask, only_negatives
from multitask.runtime.random_streams import torch_seed
from multitask.training.config import NegativesConfig

Excluded = Tensor
"""True where column j is not a negative of row i  # [rows, rows] bool."""


def excluded_negatives(
    anchors: Tensor, positives: Tensor, rows: Rows, excluded: Excluded | None, config: NegativesConfig
) -> Excluded | None:
    """What is excluded from a batch's negatives, besides what is excluded already; None if nothing is.

    Args:
        anchors: embeddings [rows, dim].
        positives: embeddings [rows, dim].
        rows: numbers of the batch's rows, which decide what is random.
        excluded: negatives that are known to be false; None if there are none.
        config: the way and its parameters.
    """
    if config.negatives == "all":
        return excluded
    diagonal = diagonal_mask(anchors)
    known = diagonal if excluded is None else diagonal | excluded
    with torch.no_grad(), torch.autocast(anchors.device.type, enabled=False):
        cosines = unit(anchors.detach().float()) @ unit(positives.detach().float()).T
        return WAYS[config.negatives](cosines, known, rows, config) & ~diagonal


def _random(cosines: Tensor, known: Excluded, rows: Rows, config: NegativesConfig) -> Excluded:
    """Keep a number of negatives drawn at random for each anchor. The rows decide the draw, on every rank alike."""
    draws = torch.Generator().manual_seed(torch_seed(0, "random negatives", *map(int, rows)))
    return _all_but_highest(torch.rand(cosines.shape, generator=draws).to(cosines.device), known, config)


def _hardest(cosines: Tensor, known: Excluded, _rows: Rows, config: NegativesConfig) -> Excluded:
    """Keep the negatives that are most similar to the anchor now (Robinson et al. 2021, arXiv 2010.04592)."""
    return _all_but_highest(cosines, known, config)


def _unlike(cosines: Tensor, known: Excluded, _rows: Rows, config: NegativesConfig) -> Excluded:
    """Leave out what is so similar that it may be a false negative (DCLR, arXiv 2205.00656, section 3.2)."""
    return known | (cosines >= config.false_negative_cosine)


def _all_but_highest(values: Tensor, known: Excluded, config: NegativesConfig) -> Excluded:
    count = min(config.negatives_kept, len(values) - 1)
    kept = only_negatives(values, known).topk(count, dim=1).indices
    return known | torch.ones_like(known).scatter(1, kept, value=False)


WAYS: dict[Literal["random", "hardest", "unlike"], Callable[[Tensor, Excluded, Rows, NegativesConfig], Excluded]] = {
    "random": _random,
    "hardest": _hardest,
    "unlike": _unlike,
}

"""Which sentences of a batch are negatives: against brute force, and in a training step."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from multitask.training.config import NegativesConfig
from multitask.training.contrastive_source import excluded_negatives


def batch(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cosines of anchors and positives, and a mask of a few known duplicates."""
    draws = torch.Generator().manual_seed(seed)
    anchors, positives = torch.randn(2, rows, 6, generator=draws)
    known = (torch.rand(rows, rows, generator=draws) < 0.1).fill_diagonal_(fill_value=False)
    return torch.nn.functional.cosine_similarity(anchors[:, None], positives[None], dim=2), known


@given(st.integers(2, 12), st.integers(1, 14), st.integers(0, 99))
def test_the_hardest_are_the_most_similar_that_are_no_known_duplicates(rows: int, kept: int, seed: int) -> None:
    cosines, known = batch(rows, seed)
    config = NegativesConfig("hardest", negatives_kept=kept)
    excluded = excluded_negatives(cosines, np.arange(rows), known, config)
    assert excluded is not None
    for i in range(rows):
        possible = sorted((j for j in range(rows) if j != i and not known[i, j]), key=lambda j: -float(cosines[i, j]))
        assert {j for j in range(rows) if not excluded[i, j]} == {i, *possible[:kept]}


@given(st.integers(2, 12), st.integers(1, 14), st.integers(0, 99))
def test_random_ones_are_as_many_and_the_rows_decide_them(rows: int, kept: int, seed: int) -> None:
    cosines, known = batch(rows, seed)
    config = NegativesConfig("random", negatives_kept=kept)
    numbers = np.arange(rows) + seed
    excluded = excluded_negatives(cosines, numbers, known, config)
    assert excluded is not None
    possible = rows - 1 - known.sum(1)
    assert torch.equal((~excluded).sum(1) - 1, possible.clamp(max=kept))
    assert (excluded | ~known).all()
    again = excluded_negatives(-cosines, numbers, known, config)
    assert torch.equal(excluded, torch.as_tensor(again))


def test_random_ones_differ_between_batches_and_are_spread_evenly() -> None:
    cosines, _ = batch(8, 0)
    config = NegativesConfig("random", negatives_kept=2)
    drawn = [excluded_negatives(cosines, np.arange(8) + n, None, config) for n in range(400)]
    shares = torch.stack([~torch.as_tensor(mask) for mask in drawn]).float().mean(0)
    off_diagonal = shares[~torch.eye(8, dtype=torch.bool)]
    assert off_diagonal.sub(2 / 7).abs().max() < 5 * (2 / 7 * 5 / 7 / 400) ** 0.5


def test_unlike_leaves_out_what_is_too_similar() -> None:
    cosines, known = batch(10, 3)
    config = NegativesConfig("unlike", false_negative_cosine=0.3)
    excluded = excluded_negatives(cosines, np.arange(10), known, config)
    expected = (known | (cosines >= 0.3)).fill_diagonal_(fill_value=False)
    assert torch.equal(torch.as_tensor(excluded), expected)
    assert expected.sum() > known.sum()


def test_all_others_change_nothing() -> None:
    cosines, known = batch(4, 0)
    assert excluded_negatives(cosines, np.arange(4), None, NegativesConfig()) is None
    assert excluded_negatives(cosines, np.arange(4), known, NegativesConfig()) is known

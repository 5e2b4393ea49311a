"""Attention is softmax(Q Kᵀ / √head size) V for every head, in wide and narrow grids."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from minbert.attention import attend_in_grid, attend_in_narrow_grid

BATCH, SEQ, HEADS, SIZE = 3, 5, 4, 6
LENGTHS = (5, 2, 1)


def slow(inputs: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    """One sentence, head and query at a time; positions after a sentence's end stay zero."""
    width = HEADS * SIZE
    found = np.zeros((BATCH, SEQ, width))
    for row, length in enumerate(lengths):
        for head in range(HEADS):
            query, key, value = (
                inputs[row, :length, part * width + head * SIZE : part * width + (head + 1) * SIZE] for part in range(3)
            )
            for position in range(length):
                weights = softmax([query[position] @ other / SIZE**0.5 for other in key])
                found[row, position, head * SIZE : (head + 1) * SIZE] = weights @ value
    return found


@pytest.fixture
def inputs() -> torch.Tensor:
    return 2 * torch.randn(BATCH, SEQ, 3 * HEADS * SIZE, generator=torch.Generator().manual_seed(0))


def test_masked_attention_is_that_of_each_sentence_alone(inputs):
    mask = torch.arange(SEQ) < torch.tensor(LENGTHS)[:, None]
    found = attend_in_grid(inputs, SIZE, mask[:, None, None, :], 0.0)
    np.testing.assert_allclose(found[mask].numpy(), slow(inputs.numpy(), LENGTHS)[mask.numpy()], atol=1e-5)


def test_without_mask_wide_and_narrow_grids_agree(inputs):
    expected = slow(inputs.numpy(), (SEQ,) * BATCH)
    for found in (attend_in_grid(inputs, SIZE, None, 0.0), attend_in_narrow_grid(inputs, SIZE)):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_dropout_acts_on_the_weights(inputs):
    torch.manual_seed(0)
    assert not torch.allclose(attend_in_grid(inputs, SIZE, None, 0.5), attend_in_grid(inputs, SIZE, None, 0.0))

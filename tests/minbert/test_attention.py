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


@pytest.mark.parametrize("training", [False, True])
def test_masked_attention_is_that_of_each_sentence_alone(inputs, training):
    mask = torch.arange(SEQ) < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        found = attend_in_grid(inputs, SIZE, mask[:, None, None, :], 0.0, training)
    np.testing.assert_allclose(found[mask].numpy(), slow(inputs.numpy(), LENGTHS)[mask.numpy()], atol=1e-5)


def test_without_mask_all_ways_agree(inputs):
    expected = slow(inputs.numpy(), (SEQ,) * BATCH)
    with torch.no_grad():
        ways = [attend_in_grid(inputs, SIZE, None, 0.0, training) for training in (False, True)]
    for found in (*ways, attend_in_narrow_grid(inputs, SIZE)):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_the_gradient_is_that_of_the_formula(inputs):
    """The formula in double precision, with all positions in one matrix of scores; padding gets no gradient."""
    mask = torch.arange(SEQ) < torch.tensor(LENGTHS)[:, None]
    probe = torch.randn(BATCH, SEQ, HEADS * SIZE, generator=torch.Generator().manual_seed(1)) * mask[:, :, None]
    exact = inputs.double().requires_grad_()
    query, key, value = exact.view(BATCH, SEQ, 3, HEADS, SIZE).unbind(2)
    scores = torch.einsum("bqhs,bkhs->bhqk", query, key) / SIZE**0.5
    weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
    (torch.einsum("bhqk,bkhs->bqhs", weights, value).flatten(2) * probe).sum().backward()
    ours = inputs.requires_grad_()
    (attend_in_grid(ours, SIZE, mask[:, None, None, :], 0.0, training=True) * probe).sum().backward()
    np.testing.assert_allclose(ours.grad, exact.grad, atol=1e-5)
    assert not ours.grad[~mask].any()


def test_dropout_acts_on_the_weights_and_keeps_their_mean(inputs):
    torch.manual_seed(0)
    many = torch.stack([attend_in_grid(inputs, SIZE, None, 0.5, training=True) for _ in range(4000)])
    whole = attend_in_grid(inputs, SIZE, None, 0.0, training=True)
    assert not torch.allclose(many[0], whole, atol=0.1)
    assert ((many.mean(0) - whole).abs() < 5 * many.std(0) / len(many) ** 0.5 + 1e-6).all()


def test_training_draws_and_rounds_alike_with_and_without_gradients(inputs):
    torch.manual_seed(0)
    found = attend_in_grid(inputs.requires_grad_(), SIZE, None, 0.5, training=True)
    torch.manual_seed(0)
    with torch.no_grad():
        assert torch.equal(found, attend_in_grid(inputs, SIZE, None, 0.5, training=True))

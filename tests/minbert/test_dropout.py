"""Dropout: its distribution, its gradient and its generator."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare

from minbert.dropout import dropout

UNITS = 400_000


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_units_are_dropped_with_the_probability_and_the_others_scaled(probability, dtype):
    torch.manual_seed(0)
    found = dropout(torch.ones(UNITS, dtype=dtype), probability)
    kept = torch.unique(found[found != 0]).tolist()
    assert kept == [pytest.approx(1 / (1 - probability), rel=2e-4 if dtype == torch.float32 else 2**-8)]
    assert binomtest(int((found == 0).sum()), UNITS, probability).pvalue > 1e-4


def test_units_are_dropped_independently():
    """Four units share a random word: all 16 patterns of a word's units come as often as independence says."""
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(UNITS // 4, 4), 0.3) == 0).numpy()
    counts = np.bincount(dropped @ [1, 2, 4, 8], minlength=16)
    number = np.array([pattern.bit_count() for pattern in range(16)])
    assert chisquare(counts, UNITS / 4 * 0.3**number * 0.7 ** (4 - number)).pvalue > 1e-4


@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (5, 7), (2, 3, 11), (0, 4)])
def test_any_shape_and_the_gradient_of_what_was_kept(shape):
    torch.manual_seed(0)
    hidden = torch.randn(shape, requires_grad=True)
    found = dropout(hidden, 0.4)
    assert found.shape == shape
    found.sum().backward()
    scale = 65536 / (65536 - round(0.4 * 65536))
    assert torch.equal(hidden.grad, (found.detach() != 0) * torch.tensor(scale))


def test_nothing_and_everything_is_dropped():
    hidden = torch.randn(100)
    assert torch.equal(dropout(hidden, 0.0), hidden)
    assert not dropout(hidden, 1.0).any()


def test_the_seed_decides_and_a_state_continues():
    torch.manual_seed(1)
    first = dropout(torch.ones(1000), 0.5)
    state = torch.get_rng_state()
    second = dropout(torch.ones(1000), 0.5)
    torch.set_rng_state(state)
    assert torch.equal(dropout(torch.ones(1000), 0.5), second)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(dropout(torch.ones(1000), 0.5), first)

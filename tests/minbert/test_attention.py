"""Attention is softmax(Q Kᵀ / √head size) V for every head, in wide and narrow grids; dropout and its generator."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import binomtest, chisquare

from minbert.attention import attend_by_flash, attend_in_grid, attend_in_narrow_grid, attend_packed, flash_computes
from minbert.dropout import dropout
from minbert.packing import PackedBatch

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


PACKED = (3, 17, 1, 70, 17)
FLASH_SIZE = 32


def packed_inputs(device: str, dtype: torch.dtype) -> tuple[PackedBatch, torch.Tensor]:
    """Sentences of several lengths, and queries, keys and values of their tokens, with a gradient."""
    batch = PackedBatch.from_sequences([np.ones(length, np.int64) for length in PACKED])
    values = torch.randn(sum(PACKED), 3 * HEADS * FLASH_SIZE, generator=torch.Generator().manual_seed(2))
    return batch.to(torch.device(device)), values.to(device, dtype).requires_grad_()


def test_flash_attention_takes_what_packed_attention_takes():
    """On meta, where the operator only says shapes."""
    batch, inputs = packed_inputs("meta", torch.bfloat16)
    context = attend_by_flash(inputs, batch.bounds, batch.longest, FLASH_SIZE, 0.1)
    context.sum().backward()
    assert context.shape == (sum(PACKED), HEADS * FLASH_SIZE)
    assert inputs.grad.shape == inputs.shape


@pytest.mark.gpu
def test_flash_attention_equals_the_processor_in_value_and_gradient():
    found = {}
    for device, dtype in (("cpu", torch.float32), ("cpu", torch.bfloat16), ("cuda", torch.bfloat16)):
        batch, inputs = packed_inputs(device, dtype)
        assert flash_computes(inputs, FLASH_SIZE) == (device == "cuda")
        context = attend_packed(inputs, batch, FLASH_SIZE, 0.0, training=True)
        probe = torch.randn(context.shape, generator=torch.Generator().manual_seed(3))
        (context.float() * probe.to(device)).sum().backward()
        found[device, dtype] = context.detach().float().cpu(), inputs.grad.float().cpu()
    for exact, rounded, flash in zip(*found.values(), strict=True):
        assert (flash - exact).norm() <= 2 * (rounded - exact).norm()
        assert (flash - exact).norm() <= 0.02 * exact.norm()


@pytest.mark.gpu
def test_flash_attention_drops_weights_keeps_their_mean_and_repeats_its_bits():
    batch, inputs = packed_inputs("cuda", torch.bfloat16)

    def drawn(seed):
        torch.manual_seed(seed)
        inputs.grad = None
        context = attend_packed(inputs, batch, FLASH_SIZE, 0.5, training=True)
        context.sum().backward()
        return context.detach(), inputs.grad.clone()

    torch.use_deterministic_algorithms(True)
    try:
        assert all(map(torch.equal, drawn(0), drawn(0)))
    finally:
        torch.use_deterministic_algorithms(False)
    whole = attend_packed(inputs, batch, FLASH_SIZE, 0.0, training=False).float()
    many = torch.stack([drawn(seed)[0].float() for seed in range(1000)])
    assert not torch.allclose(many[0], whole, atol=0.1)
    assert ((many.mean(0) - whole).abs() < 6 * many.std(0) / len(many) ** 0.5 + 0.01).all()


@pytest.mark.gpu
def test_flash_attention_never_waits_for_the_device():
    batch, inputs = packed_inputs("cuda", torch.bfloat16)
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend_packed(inputs, batch, FLASH_SIZE, 0.1, training=True).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


# Dropout: its distribution, its gradient and its generator.


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

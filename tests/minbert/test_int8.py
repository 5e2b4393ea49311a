"""Layers in 8 bits against the same arithmetic in NumPy, and against the layers that they replace."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, gelu

from minbert.int8 import Int8Linear, Range, products_are_exact, to_int8
from minbert.model import BertModel
from minbert.packing import PackedBatch
from tests.minbert.test_inference_layer import CONFIG, batch_of

pytestmark = pytest.mark.skipif(not products_are_exact(), reason="products of 8-bit integers overflow here")


def range_of(x: Tensor) -> Range:
    return Range(x.amin(0), x.amax(0))


def drawn(seed: int) -> tuple[nn.Linear, Tensor]:
    """A linear map, and inputs [tokens, channels] of which one channel is large."""
    torch.manual_seed(seed)
    x = torch.randn(50, 16)
    x[:, 3] *= 20
    return nn.Linear(16, 8).requires_grad_(requires_grad=False), x


def arithmetic(linear: Int8Linear, x: Tensor) -> np.ndarray:
    """The linear map by its definition, in 64-bit integers."""
    scale, zero = linear.inputs.scale, linear.inputs.zero
    levels = np.clip(np.round((x * linear.multipliers).numpy() + np.float32(zero)), 0, 255).astype(np.int64)
    products = (levels - zero) @ linear.weight.numpy().astype(np.int64).T
    return products * scale * linear.scales.numpy() + linear.bias.numpy()


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20))
def test_rounding_is_off_by_half_a_step_and_keeps_zero(values):
    x = torch.tensor([*values, 0.0])[:, None]
    linear = Int8Linear(nn.Linear(1, 1), range_of(x[:-1]))
    back = (linear.round(x).int() - linear.inputs.zero) / linear.multipliers
    assert (back - x).abs().max() <= 1.001 / linear.multipliers  # half a step, and half of one for the exact zero
    assert back[-1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_map_is_integer_arithmetic_and_a_large_channel_costs_the_others_little(seed):
    linear, x = drawn(seed)
    rounded, exact = Int8Linear(linear, range_of(x)), linear(x)
    np.testing.assert_allclose(rounded(x).numpy(), arithmetic(rounded, x), rtol=1e-5, atol=1e-5)
    assert torch.equal(rounded(100 * (1 + x.abs())), rounded(1000 * (1 + x.abs())))  # cut off
    step = range_of(x).rounding().scale  # without factors the other channels, of size 1, would have steps of this size
    levels = ((x / step).round() * step) @ linear.weight.T + linear.bias
    assert (rounded(x) - exact).abs().mean() < 0.6 * (levels - exact).abs().mean()


def test_gelu_is_part_of_the_product():
    linear, x = drawn(0)
    exact = gelu(linear(x))
    rounding = range_of(exact.reshape(-1, 1)).rounding()
    plain, fused = Int8Linear(linear, range_of(x)), Int8Linear(linear, range_of(x), rounding)
    levels = fused(x)
    assert levels.dtype == torch.uint8
    expected = (gelu(plain(x)) / rounding.scale).round() + rounding.zero
    assert (levels - expected.clamp(0, 255)).abs().max() <= 1


@pytest.fixture(scope="module")
def models() -> tuple[BertModel, BertModel]:
    """The same weights in fp32 and in 8 bits."""
    torch.manual_seed(0)
    whole, rounded = BertModel(CONFIG).eval(), BertModel(CONFIG).eval()
    rounded.load_state_dict(whole.state_dict())
    to_int8(rounded, batch_of(1, 20))
    return whole, rounded


@pytest.mark.parametrize("autocast", [False, True])
@torch.no_grad()
def test_states_are_close_to_those_in_fp32(models, autocast):
    batch = batch_of(2, 10)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole, rounded = (model.forward_packed(batch).float() for model in models)
    assert all(isinstance(layer.output, Int8Linear) for layer in models[1].layers)
    assert cosine_similarity(whole, rounded).min() > 0.995
    assert not torch.equal(whole, rounded)


@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(models):
    several = batch_of(3, 5)
    lengths = several.offsets.diff().tolist()
    together = models[1].forward_packed(several).split(lengths)
    for ids, states in zip(several.input_ids.split(lengths), together, strict=True):
        alone = models[1].forward_packed(PackedBatch.from_sequences([ids.numpy()]))
        torch.testing.assert_close(alone, states, rtol=0, atol=0.02)

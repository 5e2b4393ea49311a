"""Layers in bf16 with weights laid out once, against the ordinary layers."""

import copy
import os
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cosine_similarity, gelu

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.inference_layer import Bf16Linear, Bf16Model, processor_has_bf16
from minbert.model import BertModel
from minbert.packing import PackedBatch

# As the processor itself says, so that a wrong `processor_has_bf16` fails instead of skipping all tests.
NATIVE = "ONEDNN_MAX_CPU_ISA" not in os.environ and bool(torch.cpu.get_capabilities().get("avx512_bf16"))
pytestmark = pytest.mark.skipif(
    not NATIVE and not processor_has_bf16(), reason="this processor has no products in bf16"
)
CONFIG = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=40,
)  # fmt: skip


def batch_of(seed: int, count: int) -> PackedBatch:
    draw = torch.Generator().manual_seed(seed)
    lengths = sorted(torch.randint(2, 30, (count,), generator=draw).tolist(), reverse=True)
    sequences = [torch.randint(5, 100, (length,), generator=draw).numpy() for length in lengths]
    return PackedBatch.from_sequences(sequences, unpadded=True)


def test_a_processor_with_the_instructions_is_known():
    assert processor_has_bf16()


@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["none", "gelu"]))
@torch.no_grad()
def test_a_map_is_the_rounded_product_of_rounded_numbers(tokens, inputs, outputs, activation):
    torch.manual_seed(tokens)
    linear, x = nn.Linear(inputs, outputs), torch.randn(tokens, inputs)
    found = Bf16Linear(linear, activation)(x)
    exact = x.bfloat16().double() @ linear.weight.bfloat16().double().T + linear.bias.bfloat16().double()
    exact = gelu(exact) if activation == "gelu" else exact
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5)


@torch.no_grad()
def test_states_are_as_near_to_fp32_as_those_of_ordinary_layers_under_autocast():
    torch.manual_seed(0)
    whole, rounded = BertModel(CONFIG).eval(), BertModel(CONFIG).eval()
    rounded.load_state_dict(whole.state_dict())
    rounded = Bf16Model(rounded)
    assert all(isinstance(layer.output, Bf16Linear) for layer in rounded.layers)
    batch = batch_of(1, 12)
    exact = whole.forward_packed(batch)
    with torch.autocast("cpu", torch.bfloat16):
        ordinary, found = whole.forward_packed(batch), rounded.forward_packed(batch)
    assert found.dtype == ordinary.dtype
    assert (found - exact).norm() <= 1.2 * (ordinary - exact).norm()
    assert cosine_similarity(found, exact).min() > 0.9999
    first = rounded.forward_packed(batch, first_only=True)
    assert cosine_similarity(first, exact[batch.offsets[:-1]]).min() > 0.9999


def rounded_model() -> BertModel:
    torch.manual_seed(0)
    return Bf16Model(BertModel(CONFIG))


def loaded_into_another(model: BertModel) -> BertModel:
    other = Bf16Model(BertModel(CONFIG))
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), loaded_into_another]
)
@torch.no_grad()
def test_a_copy_computes_the_same(copied):
    model, batch = rounded_model(), batch_of(3, 4)
    assert torch.equal(copied(model).forward_packed(batch), model.forward_packed(batch))


def test_it_cannot_be_trained_without_dropout():
    model = rounded_model()
    with pytest.raises(InputError, match="keep_layers=True"):
        model.train()


@torch.no_grad()
def test_layers_without_neurons_stay():
    model = BertModel(BertConfig.from_dict({**CONFIG.to_dict(), "layer_intermediate_sizes": [0, 64]})).eval()
    batch = batch_of(2, 5)
    exact = model.forward_packed(batch)
    model = Bf16Model(model)
    assert [isinstance(layer.output, Bf16Linear) for layer in model.layers] == [False, True]
    with torch.autocast("cpu", torch.bfloat16):
        assert cosine_similarity(exact, model.forward_packed(batch)).min() > 0.9999


def test_torch_without_the_private_operators_takes_ordinary_layers(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", type("Operators", (), {"_is_mkldnn_bf16_supported": lambda: True}))
    assert not processor_has_bf16()

"""A pruned encoder computes, in smaller matrices, what the whole encoder computes with the removed units silenced."""

import json
import logging
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.remove_heads_and_neurons import Units, masked, without_units

BERT = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=20,
    initializer_range=0.2,
    max_position_embeddings=16,
)
ROBERTA = BertConfig(**(vars(BERT) | {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 18}))
LENGTHS = (9, 5, 2, 7, 9, 1)
SENTENCES = [np.random.default_rng(length).integers(2, 50, length) for length in LENGTHS]


def model(config: BertConfig = BERT) -> BertModel:
    """Random weights, biases and norms included."""
    torch.manual_seed(0)
    made = BertModel(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.eval()


def units(heads: list[list[int]], neurons: list[list[int]]) -> Units:
    return Units(*(tuple(torch.tensor(layer, dtype=torch.bool) for layer in kind) for kind in (heads, neurons)))


AWKWARD = {
    "one head in each layer, no neurons at all": units([[0, 0, 1, 0]] * 3, [[0] * 20] * 3),
    "one layer without neurons": units([[1, 0, 1, 0], [1] * 4, [0, 0, 0, 1]], [[1] * 20, [0] * 20, [0, 1] * 10]),
    "heads only": units([[1, 1, 0, 0], [1] * 4, [0, 1, 1, 1]], [[1] * 20] * 3),
    "nothing removed": units([[1] * 4] * 3, [[1] * 20] * 3),
}


def padded(encoder: BertModel) -> torch.Tensor:
    """Hidden states of the sentences' tokens, end to end, by the padded path."""
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, sentence in enumerate(SENTENCES):
        ids[row, : len(sentence)], mask[row, : len(sentence)] = torch.from_numpy(sentence), 1
    return encoder(ids, mask).last_hidden_state[mask.bool()]


def packed(encoder: BertModel) -> torch.Tensor:
    return encoder.forward_packed(PackedBatch.from_sequences(SENTENCES))


PATHS = {"padded": padded, "packed": packed}


def silenced(encoder: BertModel, kept: Units) -> BertModel:
    """A copy of the whole encoder in which the output weights of all other units are zero."""
    copy = BertModel(encoder.config).eval()
    copy.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        for layer, heads, neurons in zip(copy.layers, kept.heads, kept.neurons, strict=True):
            for head in range(4):
                layer.attention.output.weight[:, 8 * head : 8 * head + 8] *= float(heads[head])
            layer.output.weight *= neurons.float()
    return copy


def drawn(seed: int, share: float) -> Units:
    """Units kept at random, with at least one head in each layer."""
    torch.manual_seed(seed)
    kept = Units.full(BERT, share).map(lambda shares: torch.bernoulli(shares).bool())
    for heads in kept.heads:
        heads[torch.randint(4, ())] = True
    return kept


def assert_same_everywhere(config: BertConfig, kept: Units) -> None:
    whole = model(config)
    smaller, reference = without_units(whole, kept), silenced(whole, kept)
    for compute in PATHS.values():
        expected = compute(reference)
        assert torch.allclose(compute(smaller), expected, atol=1e-5)
        with masked(whole, kept.map(torch.Tensor.float)):
            assert torch.allclose(compute(whole), expected, atol=1e-5)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_removed_masked_and_silenced_units_give_the_same_on_both_paths(seed: int, share: float) -> None:
    assert_same_everywhere(BERT, drawn(seed, share))


@pytest.mark.parametrize("config", [BERT, ROBERTA], ids=lambda config: config.model_type)
@pytest.mark.parametrize("kept", AWKWARD.values(), ids=AWKWARD)
def test_extremes_give_the_same_too(config: BertConfig, kept: Units) -> None:
    assert_same_everywhere(config, kept)


def test_masks_matter_and_go_away() -> None:
    encoder = model()
    before = packed(encoder)
    with masked(encoder, AWKWARD["heads only"].map(torch.Tensor.float)):
        assert (packed(encoder) - before).abs().max() > 0.1
    assert torch.equal(packed(encoder), before)


def test_weights_that_are_left_have_the_gradient_of_the_masked_model() -> None:
    kept, whole = AWKWARD["one layer without neurons"], model()
    smaller = without_units(whole, kept)
    direction = torch.randn(sum(LENGTHS), 32)
    with masked(whole, kept.map(torch.Tensor.float)):
        (packed(whole) * direction).sum().backward()
    (packed(smaller) * direction).sum().backward()
    heads = kept.heads[0].repeat_interleave(8)
    ours, theirs = smaller.layers[0], whole.layers[0]
    pairs = [
        (ours.attention.query_key_value.weight.grad, theirs.attention.query_key_value.weight.grad[heads.repeat(3)]),
        (ours.attention.output.weight.grad, theirs.attention.output.weight.grad[:, heads]),
        (smaller.layers[2].output.weight.grad, whole.layers[2].output.weight.grad[:, kept.neurons[2]]),
        (smaller.layers[1].output.bias.grad, whole.layers[1].output.bias.grad),
        (smaller.embeddings.word.weight.grad, whole.embeddings.word.weight.grad),
    ]
    for own, expected in pairs:
        assert torch.allclose(own, expected, rtol=1e-4, atol=1e-4)


def test_the_whole_encoder_stays_as_it_is() -> None:
    whole = model()
    before = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    smaller = without_units(whole, AWKWARD["heads only"])
    with torch.no_grad():
        for parameter in smaller.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in whole.state_dict().items())


def test_a_pruned_encoder_can_be_pruned_again() -> None:
    once = without_units(model(), AWKWARD["one layer without neurons"])
    kept = units([[1, 0], [0, 1, 1, 1], [1]], [[0, 1] * 10, [], [1] * 10])
    twice = without_units(once, kept)
    assert twice.config.layer_sizes == [(1, 10), (3, 0), (1, 10)]
    with masked(once, kept.map(torch.Tensor.float)):
        assert torch.allclose(packed(twice), packed(once), atol=1e-5)


# Checkpoints.


@pytest.mark.parametrize("kept", AWKWARD.values(), ids=AWKWARD)
def test_round_trip_through_a_folder(kept: Units, tmp_path: Path) -> None:
    smaller = without_units(model(), kept)
    smaller.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = BertModel.from_pretrained(str(tmp_path))
    assert read.config == smaller.config
    assert read.config.pruned == (kept is not AWKWARD["nothing removed"])
    assert torch.equal(packed(read), packed(smaller))


def test_transformers_agrees_on_the_silenced_encoder_and_refuses_the_pruned_one(tmp_path: Path) -> None:
    whole, kept = model(), AWKWARD["one layer without neurons"]
    silenced(whole, kept).save(tmp_path / "silenced")
    smaller = without_units(whole, kept)
    smaller.save(tmp_path / "pruned")
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(tmp_path / "silenced").eval()
        ids = torch.from_numpy(SENTENCES[0])[None]
        assert torch.allclose(theirs(ids).last_hidden_state, smaller(ids).last_hidden_state, atol=1e-5)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with pytest.raises(RuntimeError):  # it must not load other weights silently
        AutoModel.from_pretrained(tmp_path / "pruned")


def test_an_encoder_that_is_not_pruned_keeps_its_config_and_identity(tmp_path: Path) -> None:
    """Hashes of all artefacts depend on these fields."""
    fields = set(asdict(BERT)) - {"layer_heads", "layer_intermediate_sizes"}
    assert len(fields) == 13
    assert set(BERT.values()) == fields
    assert set(BERT.to_dict()) == fields | {"architectures", "hidden_act", "position_embedding_type"}
    model().save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == BERT.to_dict()


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"layer_heads": [1, 2]}, "layer_heads is [1, 2]; expected 3 numbers from 1 to 4"),
        ({"layer_intermediate_sizes": [0, 21, 1]}, "layer_intermediate_sizes is [0, 21, 1]; expected 3 numbers from 0"),
        ({"layer_heads": [True, 2, 3]}, "layer_heads.0 is true; expected a whole number"),
    ],
)
def test_sizes_that_cannot_be_are_refused(change: dict, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        BertConfig.from_dict(BERT.to_dict() | change)
    assert complaint in str(caught.value)


# Training.


def test_a_layer_without_neurons_works_in_bf16() -> None:
    smaller = without_units(model(), AWKWARD["one head in each layer, no neurons at all"])
    with torch.autocast("cpu", torch.bfloat16):
        low = packed(smaller)
    assert torch.allclose(low.float(), packed(smaller), atol=0.1)

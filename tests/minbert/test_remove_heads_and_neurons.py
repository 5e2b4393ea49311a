"""A pruned encoder computes, in smaller matrices, what the whole encoder computes with the removed units silenced."""

import logging
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from minbert.config import BertConfig
from minbert.model import BertModel
from minbert.remove_heads_and_neurons import Units, masked, without_units
from tests.minbert.references import random_sentences, run_packed, run_padded

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
SENTENCES = random_sentences((9, 5, 2, 7, 9, 1), 50)


def model(config: BertConfig = BERT) -> BertModel:
    """Random weights, biases and norms included."""
    torch.manual_seed(0)
    made = BertModel(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.eval()


def packed(encoder: BertModel) -> torch.Tensor:
    return run_packed(encoder, SENTENCES)[0]


def units(heads: list[list[int]], neurons: list[list[int]]) -> Units:
    return Units(*(tuple(torch.tensor(layer, dtype=torch.bool) for layer in kind) for kind in (heads, neurons)))


AWKWARD = {
    "one head in each layer, no neurons at all": units([[0, 0, 1, 0]] * 3, [[0] * 20] * 3),
    "one layer without neurons": units([[1, 0, 1, 0], [1] * 4, [0, 0, 0, 1]], [[1] * 20, [0] * 20, [0, 1] * 10]),
    "heads only": units([[1, 1, 0, 0], [1] * 4, [0, 1, 1, 1]], [[1] * 20] * 3),
    "nothing removed": units([[1] * 4] * 3, [[1] * 20] * 3),
}


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


def assert_same_everywhere(config: BertConfig, kept: Units) -> None:
    whole = model(config)
    smaller, reference = without_units(whole, kept), silenced(whole, kept)
    for run in (run_padded, run_packed):
        expected = run(reference, SENTENCES)[0]
        assert torch.allclose(run(smaller, SENTENCES)[0], expected, atol=1e-5)
        with masked(whole, kept.map(torch.Tensor.float)):
            assert torch.allclose(run(whole, SENTENCES)[0], expected, atol=1e-5)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1))
def test_removed_masked_and_silenced_units_give_the_same_on_both_paths(seed, share):
    torch.manual_seed(seed)
    kept = Units.full(BERT, share).map(lambda shares: torch.bernoulli(shares).bool())
    for heads in kept.heads:
        heads[torch.randint(4, ())] = True
    assert_same_everywhere(BERT, kept)


@pytest.mark.parametrize("config", [BERT, ROBERTA], ids=lambda config: config.model_type)
@pytest.mark.parametrize("kept", AWKWARD.values(), ids=AWKWARD)
def test_extremes_give_the_same_too(config, kept):
    assert_same_everywhere(config, kept)


def test_masks_matter_and_go_away_and_the_whole_encoder_stays_as_it_is():
    encoder, kept = model(), AWKWARD["heads only"]
    before = packed(encoder)
    with masked(encoder, kept.map(torch.Tensor.float)):
        assert (packed(encoder) - before).abs().max() > 0.1
    with torch.no_grad():
        for parameter in without_units(encoder, kept).parameters():
            parameter.zero_()
    assert torch.equal(packed(encoder), before)


def test_a_pruned_encoder_can_be_pruned_again():
    once = without_units(model(), AWKWARD["one layer without neurons"])
    kept = units([[1, 0], [0, 1, 1, 1], [1]], [[0, 1] * 10, [], [1] * 10])
    twice = without_units(once, kept)
    assert twice.config.layer_sizes == [(1, 10), (3, 0), (1, 10)]
    with masked(once, kept.map(torch.Tensor.float)):
        assert torch.allclose(packed(twice), packed(once), atol=1e-5)


@pytest.mark.parametrize("kept", AWKWARD.values(), ids=AWKWARD)
def test_round_trip_through_a_folder(kept, tmp_path):
    smaller = without_units(model(), kept)
    smaller.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = BertModel.from_pretrained(str(tmp_path))
    assert read.config == smaller.config
    assert read.config.pruned == (kept is not AWKWARD["nothing removed"])
    assert torch.equal(packed(read), packed(smaller))


def test_transformers_refuses_a_pruned_encoder(tmp_path):
    without_units(model(), AWKWARD["one layer without neurons"]).save(tmp_path)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with pytest.raises(RuntimeError):  # it must not load other weights silently
        AutoModel.from_pretrained(tmp_path)


def test_a_layer_without_neurons_works_in_bf16():
    smaller = without_units(model(), AWKWARD["one head in each layer, no neurons at all"])
    with torch.autocast("cpu", torch.bfloat16):
        low = packed(smaller)
    assert torch.allclose(low.float(), packed(smaller), atol=0.1)

"""The encoder computes what transformers computes, in value and gradient; the limits are those of fp32."""

import pytest
import torch
from transformers.utils.logging import disable_progress_bar

from minbert import BertConfig, BertModel, load_tokenizer
from minbert.download_checkpoint import BUNDLED
from tests.minbert.equivalence import (
    RANDOM_CASES,
    bundled_case,
    composed_sentences,
    gradient_differences,
    transfer,
    value_differences,
)

VALUES, GRADIENTS = 1e-5, 1e-4
SMALL = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, type_vocab_size=2
)

disable_progress_bar()


def assert_equal(reference, model, inputs, inputs_for_gradient):
    for differences in value_differences(reference, model, inputs).values():
        assert max(differences) < VALUES
    assert max(gradient_differences(reference, model, inputs_for_gradient).values()) < GRADIENTS


@pytest.mark.parametrize("case", RANDOM_CASES)
def test_random_shapes_equal_transformers(case):
    reference, inputs = RANDOM_CASES[case]()
    assert_equal(reference, transfer(reference), inputs, inputs)


def test_real_weights_equal_transformers_on_sentences_of_mixed_length():
    reference, (ids, types) = bundled_case(composed_sentences(6))
    assert_equal(reference, BertModel.from_pretrained(BUNDLED), (ids, types), (ids[3:], types[3:]))


def test_a_text_beyond_the_encoders_length_is_cut_by_the_tokenizer_and_refused_by_the_model():
    model, tokenizer = BertModel.from_pretrained(BUNDLED), load_tokenizer(BUNDLED)
    with torch.no_grad():
        batch = tokenizer(["word " * 1000])
        assert batch.input_ids.shape == (1, 512)
        assert model(batch.input_ids, batch.attention_mask).last_hidden_state.shape == (1, 512, 384)
    with pytest.raises(ValueError, match="513 tokens exceed the encoder's 512"):
        model(torch.ones(1, 513, dtype=torch.int64))


def test_initialisation_follows_the_config():
    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=1, initializer_range=0.05))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1.0 if name.endswith("weight") else 0.0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.05), name


def test_set_dropout_replaces_every_dropout() -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)).train()
    ids = torch.arange(1, 13).view(2, 6)
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.set_dropout(0.0)
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    assert model.config.hidden_dropout_prob == 0.1

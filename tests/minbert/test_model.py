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
    reference, (ids, types) = bundled_case(composed_sentences(35))
    assert_equal(reference, BertModel.from_pretrained(BUNDLED), (ids, types), (ids[2:12], types[2:12]))


def test_the_comparison_notices_a_bias_that_is_off_by_a_thousandth():
    reference, inputs = RANDOM_CASES["BERT, 1 layer, width 32"]()
    model = transfer(reference)
    with torch.no_grad():
        model.layers[0].attention.query_key_value.bias[0] += 1e-3
    assert all(hidden > VALUES for hidden, _ in value_differences(reference, model, inputs).values())
    assert min(gradient_differences(reference, model, inputs).values()) > GRADIENTS


def test_token_types_matter_and_default_to_zero():
    torch.manual_seed(0)
    model = BertModel(SMALL).eval()
    ids = torch.randint(1, 50, (3, 7))
    zero, one = torch.zeros_like(ids), torch.ones_like(ids)
    left_out = model(ids).last_hidden_state
    assert torch.equal(left_out, model(ids, torch.ones_like(ids), zero).last_hidden_state)
    assert not torch.allclose(left_out, model(ids, token_type_ids=one).last_hidden_state, atol=1e-2)


def test_padding_has_no_influence_on_real_tokens():
    torch.manual_seed(0)
    model = BertModel(SMALL).eval()
    ids = torch.randint(1, 50, (2, 9))
    mask = torch.tensor([[1] * 9, [1] * 4 + [0] * 5])
    other = torch.where(mask.bool(), ids, 49 - ids)
    assert torch.equal(
        model(ids, mask).last_hidden_state[mask.bool()], model(other, mask).last_hidden_state[mask.bool()]
    )
    alone = model(ids[1:, :4]).last_hidden_state
    assert torch.allclose(alone[0], model(ids, mask).last_hidden_state[1, :4], atol=1e-6)


def test_a_text_beyond_the_encoders_length_is_cut_by_the_tokenizer_and_refused_by_the_model():
    model, tokenizer = BertModel.from_pretrained(BUNDLED), load_tokenizer(BUNDLED)
    with torch.no_grad():
        batch = tokenizer(["word " * 1000])
        assert batch.input_ids.shape == (1, 512)
        assert model(batch.input_ids, batch.attention_mask).last_hidden_state.shape == (1, 512, 384)
    with pytest.raises(ValueError, match="513 tokens exceed the encoder's 512"):
        model(torch.ones(1, 513, dtype=torch.int64))


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    model = BertModel(SMALL)
    ids = torch.randint(1, 50, (2, 6))
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.eval()
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)


def test_attention_dropout_acts_on_its_own():
    torch.manual_seed(0)
    config = BertConfig(**(vars(SMALL) | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.5}))
    model = BertModel(config)
    ids = torch.randint(1, 50, (2, 6))
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)


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

"""The encoder computes what transformers computes, in value and gradient; the limits are those of fp32."""

import numpy as np
import pytest
import torch
from transformers import BertModel as TheirBert
from transformers.utils.logging import disable_progress_bar

from minbert import BertConfig, BertModel, load_tokenizer
from minbert.download_checkpoint import BUNDLED, resolve
from tests.minbert.references import assert_equal, composed_sentences, random_reference, random_sentences, transfer

SHAPES = {  # family, layers, width, heads, intermediate, positions, token types
    ("bert", 1, 32, 2, 64, 64, 2): (1, 2, 3, 17, 40, 41, 64),
    ("bert", 3, 60, 6, 100, 80, 3): (1, 2, 3, 17, 40, 41, 64),
    ("bert", 5, 96, 4, 384, 512, 2): (512, 1, 30, 200),
    ("roberta", 2, 40, 5, 72, 66, 1): (1, 2, 3, 17, 40, 41, 64),
}

disable_progress_bar()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_shapes_equal_transformers(shape):
    reference = random_reference(*shape)
    sentences = random_sentences(SHAPES[shape], reference.config.vocab_size)
    types = [np.random.default_rng(0).integers(0, shape[-1], len(sentence)) for sentence in sentences]
    assert_equal(reference, transfer(reference), sentences, types)


def test_real_weights_equal_transformers_on_sentences_of_mixed_length():
    reference = TheirBert.from_pretrained(resolve(BUNDLED), attn_implementation="eager").eval()
    sentences = load_tokenizer(BUNDLED).encode(composed_sentences(8))[2:]
    assert_equal(reference, BertModel.from_pretrained(BUNDLED), sentences)


def test_more_tokens_than_the_encoder_has_positions_are_refused():
    with pytest.raises(ValueError, match="513 tokens exceed the encoder's 512"):
        BertModel.from_pretrained(BUNDLED)(torch.ones(1, 513, dtype=torch.int64))


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


def test_set_dropout_replaces_every_dropout():
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)).train()
    ids = torch.arange(1, 13).view(2, 6)
    assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.set_dropout(0.0)
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    assert model.config.hidden_dropout_prob == 0.1

"""A config equals what transformers reads from the same `config.json`, or an error names the key."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig as TheirBert
from transformers import RobertaConfig as TheirRoberta

from minbert.config import BertConfig
from minbert.errors import InputError

THEIRS = {"bert": TheirBert, "roberta": TheirRoberta}
KEYS = [key for key in BertConfig().to_dict() if key in TheirBert().to_dict() and key != "architectures"]


@settings(deadline=None)
@given(
    model_type=st.sampled_from(["bert", "roberta"]), left_out=st.sets(st.sampled_from(KEYS)), heads=st.integers(1, 8)
)
def test_values_and_defaults_are_those_of_transformers(model_type, left_out, heads):
    written = THEIRS[model_type](hidden_size=heads * 96, num_attention_heads=heads, type_vocab_size=1).to_dict()
    left_out = left_out - {"model_type", "hidden_size", "num_attention_heads"}
    values = {key: value for key, value in written.items() if key not in left_out}
    expected = THEIRS[model_type].from_dict(values).to_dict()
    ours = BertConfig.from_dict(values).to_dict()
    assert {key: ours[key] for key in KEYS} == {key: expected[key] for key in KEYS}


def test_a_bert_may_have_no_padding_token():
    written = TheirBert(pad_token_id=None).to_dict()
    assert written["pad_token_id"] is None
    assert BertConfig.from_dict(written) == BertConfig()
    with pytest.raises(InputError, match="pad_token_id is null; expected a whole number"):
        BertConfig.from_dict({**written, "model_type": "roberta"})


def test_roberta_counts_positions_from_after_the_padding_id():
    roberta = BertConfig(model_type="roberta", pad_token_id=1, max_position_embeddings=514)
    assert (roberta.position_offset, roberta.max_length) == (2, 512)
    assert (BertConfig().position_offset, BertConfig().max_length) == (0, 512)


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; this encoder computes 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": 770}, "hidden_size 770 does not divide into 12 heads"),
        ({"hidden_size": "768"}, "hidden_size is "),
        ({"vocab_size": None}, "vocab_size is "),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps is "),
        ({"vocab_size": 0}, "vocab_size is "),
        ({"max_position_embeddings": 1}, "max_position_embeddings 1 leaves no room"),
        ({"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 3}, "leaves no room"),
    ],
)
def test_an_unsupported_config_is_refused(change, complaint):
    with pytest.raises(InputError) as caught:
        BertConfig.from_dict(BertConfig().to_dict() | change)
    assert complaint in str(caught.value)

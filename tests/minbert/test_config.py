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


def test_roberta_counts_positions_from_after_the_padding_id():
    roberta = BertConfig(model_type="roberta", pad_token_id=1, max_position_embeddings=514)
    assert (roberta.position_offset, roberta.max_length) == (2, 512)
    assert (BertConfig().position_offset, BertConfig().max_length) == (0, 512)


def test_fields_of_pruning_and_of_sizes_are_left_out_where_they_are_not_set():
    """Hashes of all artefacts depend on these fields."""
    fields = set(vars(BertConfig())) - {"layer_heads", "layer_intermediate_sizes", "matryoshka_dimensions"}
    assert len(fields) == 13
    assert set(BertConfig().values()) == fields
    assert set(BertConfig().to_dict()) == fields | {"architectures", "hidden_act", "position_embedding_type"}


@pytest.mark.parametrize(
    "key, value",
    [
        ("model_type", "gpt2"),
        ("model_type", None),
        ("model_type", [["x" * 70_000]]),
        ("hidden_act", "relu"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("hidden_size", 770),
        ("hidden_size", "768"),
        ("hidden_size", True),
        ("vocab_size", None),
        ("vocab_size", 0),
        ("vocab_size", 2**62),
        ("type_vocab_size", -1),
        ("layer_norm_eps", "tiny"),
        ("layer_norm_eps", -1.0),
        ("hidden_dropout_prob", 2),
        ("attention_probs_dropout_prob", float("nan")),
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", -1),
        ("pad_token_id", 30522),
        ("pad_token_id", "x" * 70_000),
        ("max_position_embeddings", 2),
        ("max_position_embeddings", 10**400),
        ("layer_heads", [1, 2]),
        ("layer_heads", [True] * 12),
        ("layer_intermediate_sizes", [0, 3073] * 6),
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_an_unsupported_config_is_refused_in_one_short_line(key, value):
    with pytest.raises(InputError, match=rf"^place: {key}\b") as caught:
        BertConfig.from_dict(BertConfig().to_dict() | {key: value}, "place")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": 10**9, "max_position_embeddings": 10**9},  # 10^12 parameters
        {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 3},  # no room for a sentence
        {"model_type": "roberta", "pad_token_id": None},
    ],
)
def test_values_that_do_not_fit_together_are_refused(changes):
    with pytest.raises(InputError):
        BertConfig.from_dict(BertConfig().to_dict() | changes)

"""Checkpoints of transformers load with equal outputs or are refused in one line; transformers loads what we save."""

import json
import logging
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, BertForMaskedLM, RobertaForMaskedLM
from transformers import BertConfig as TheirBert
from transformers import RobertaConfig as TheirRoberta

from minbert import BertModel
from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import sha256_of_file, write_json
from tests.minbert.references import (
    IDS,
    INDEX,
    SHAPE,
    as_pickle,
    assert_same_outputs,
    load_error,
    outputs,
    random_reference,
    rewrite,
    save_in_several_files,
    save_reference,
    stored_tensors,
)

# What loads.


def with_old_norms(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }


HEADS = {"cls.predictions.bias": torch.ones(101), "lm_head.bias": torch.ones(101)}
WRITTEN = {
    "prefix and heads": lambda tensors, prefix: {f"{prefix}.{name}": t for name, t in tensors.items()} | HEADS,
    "heads and positions": lambda tensors, _: tensors | HEADS | {"embeddings.position_ids": torch.arange(40)[None]},
    "gamma and beta": lambda tensors, _: with_old_norms(tensors),
}


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
@pytest.mark.parametrize("written", WRITTEN)
def test_other_names_and_tensors_of_heads(tmp_path, model_type, written, caplog):
    reference = save_reference(tmp_path, model_type)
    rewrite(tmp_path, WRITTEN[written](stored_tensors(tmp_path), model_type))
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)
    assert not caplog.records


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_pytorch_model_bin(tmp_path, zipped):
    reference = save_reference(tmp_path)
    as_pickle(tmp_path, _use_new_zipfile_serialization=zipped)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)


@pytest.mark.parametrize("old_norms", [False, True])
def test_weights_in_several_files(tmp_path, old_norms):
    reference = save_in_several_files(tmp_path)
    assert len([*tmp_path.glob("model-*.safetensors")]) > 2
    assert not (tmp_path / "model.safetensors").exists()
    if old_norms:
        index = json.loads((tmp_path / INDEX).read_text())
        write_json(tmp_path / INDEX, {"weight_map": with_old_norms(index["weight_map"])})
        for path in tmp_path.glob("model-*.safetensors"):
            safetensors.torch.save_file(with_old_norms(safetensors.torch.load_file(path)), path)
    assert_same_outputs(BertModel.from_pretrained(str(tmp_path)), reference)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_fp32(tmp_path, dtype):
    reference = save_reference(tmp_path).to(dtype)
    reference.save_pretrained(tmp_path)
    model = BertModel.from_pretrained(str(tmp_path))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert_same_outputs(model, reference.float())


@pytest.mark.parametrize("masked", [BertForMaskedLM, RobertaForMaskedLM])
def test_a_masked_language_model_has_no_pooler_and_gets_the_same_one_each_time(tmp_path, masked, caplog):
    base = random_reference("bert" if masked is BertForMaskedLM else "roberta", *SHAPE)
    reference = masked(base.config)
    reference.base_model.load_state_dict(base.state_dict(), strict=False)
    reference.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING, "minbert"):
        model = BertModel.from_pretrained(str(tmp_path))
    assert "no pooler" in caplog.text
    expected = reference.eval().base_model(IDS).last_hidden_state
    assert (model(IDS).last_hidden_state - expected).abs().max() < 1e-5
    assert model.pooler.weight.std().item() == pytest.approx(base.config.initializer_range, rel=0.1)
    torch.manual_seed(99)
    assert torch.equal(model.pooler.weight, BertModel.from_pretrained(str(tmp_path)).pooler.weight)


def test_a_loaded_model_can_be_trained_and_saved_over_the_files_it_came_from(tmp_path):
    save_reference(tmp_path)
    digest = sha256_of_file(tmp_path / "model.safetensors")
    model = BertModel.from_pretrained(str(tmp_path))
    assert not model.training
    model(IDS).pooler_output.sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert sha256_of_file(tmp_path / "model.safetensors") == digest
    model.save(tmp_path)
    assert all(map(torch.equal, outputs(model), outputs(BertModel.from_pretrained(str(tmp_path)))))


def test_loading_draws_no_numbers(tmp_path):
    save_reference(tmp_path)
    before = torch.get_rng_state()
    BertModel.from_pretrained(str(tmp_path))
    assert torch.equal(before, torch.get_rng_state())


# What is refused.


def test_all_tensors_that_do_not_fit_are_listed_in_one_error(tmp_path):
    save_reference(tmp_path)
    tensors = stored_tensors(tmp_path)
    del tensors["encoder.layer.1.output.dense.bias"], tensors["pooler.dense.bias"]
    tensors["encoder.layer.2.output.dense.bias"] = torch.ones(24)
    tensors["embeddings.word_embeddings.weight"] = torch.ones(7, 24)
    rewrite(tmp_path, tensors)
    assert load_error(tmp_path) == (
        f"{tmp_path / 'model.safetensors'}: the weights do not fit config.json: "
        "missing encoder.layer.1.output.dense.bias; missing pooler.dense.bias; "
        "unexpected encoder.layer.2.output.dense.bias; "
        "misshaped embeddings.word_embeddings.weight [7, 24], expected [101, 24]"
    )
    rewrite(tmp_path, {"embeddings.LayerNorm.bias": torch.ones(24)})
    assert load_error(tmp_path).endswith("; and 16 more")


@pytest.mark.parametrize(
    "places",
    [
        *(None, {}, [], {"a": 1}, {"a": "../model.safetensors"}, {"a": "/x.safetensors"}, {"a": "x.bin"}),
        *({"a": "sub/x.safetensors"}, {str(i): f"{i}.safetensors" for i in range(1001)}),
    ],
    ids=lambda places: str(places)[:30],
)
def test_an_index_of_weights_that_names_no_files_beside_it(tmp_path, places):
    save_in_several_files(tmp_path)
    write_json(tmp_path / INDEX, {"weight_map": places})
    assert load_error(tmp_path) == (
        f"{tmp_path / INDEX}: expected a weight_map from tensors to files NAME.safetensors beside it, 1000 at most"
    )


def test_one_of_several_files_that_is_missing_or_lacks_a_tensor(tmp_path):
    save_in_several_files(tmp_path)
    path = tmp_path / json.loads((tmp_path / INDEX).read_text())["weight_map"]["pooler.dense.bias"]
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file({name: t for name, t in tensors.items() if name != "pooler.dense.bias"}, path)
    assert load_error(tmp_path) == f"{path}: lacks the tensor pooler.dense.bias, which {INDEX} places there"
    path.write_bytes(b"damaged")
    assert load_error(tmp_path).startswith(f"{path}: not a readable weights file (")
    path.unlink()
    assert load_error(tmp_path) == f"{path}: no such file"


class RunsCode:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, write):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    witness = tmp_path / "code-has-run"
    content = {"embeddings.LayerNorm.bias": RunsCode(witness)}
    write(content, tmp_path / "pytorch_model.bin")
    assert "pytorch_model.bin: not a readable weights file" in load_error(tmp_path)
    assert not witness.exists()
    pickle.loads(pickle.dumps(content))
    assert witness.exists()


@pytest.mark.parametrize("content", [[torch.ones(2)], {"a": [1]}, {1: torch.ones(2)}, torch.ones(3)])
def test_a_pickle_of_something_else_is_refused(tmp_path, content):
    save_reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(content, tmp_path / "pytorch_model.bin")
    assert "expected a state dict of tensors" in load_error(tmp_path)


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_truncated_weights_are_refused(tmp_path, kind):
    save_reference(tmp_path)
    if kind != "safetensors":
        as_pickle(tmp_path, _use_new_zipfile_serialization=kind == "zip")
    (path,) = (p for p in tmp_path.iterdir() if p.name != "config.json")
    content = path.read_bytes()
    for length in [0, 1, 5, 9, *range(100, len(content), len(content) // 20)]:
        path.write_bytes(content[:length])
        assert load_error(tmp_path).startswith(f"{path}: not a readable weights file (")


# What we save.


@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_saved_weights_load_in_transformers_and_come_back_bit_for_bit(tmp_path, model_type):
    reference = save_reference(tmp_path / "source", model_type)
    model = BertModel.from_pretrained(str(tmp_path / "source"))
    (tmp_path / "saved").mkdir()
    model.save(tmp_path / "saved")
    theirs, report = AutoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(theirs) is type(reference)
    assert not any(report.values())
    for name, tensor in reference.state_dict().items():
        assert torch.equal(theirs.state_dict()[name], tensor), name
    assert_same_outputs(theirs.eval(), model)
    again = BertModel.from_pretrained(str(tmp_path / "saved"))
    assert again.config == model.config
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


# A config equals what transformers reads from the same `config.json`, or an error names the key.


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
        *(("model_type", "gpt2"), ("model_type", None), ("model_type", [["x" * 70_000]]), ("hidden_act", "relu")),
        *(("position_embedding_type", "relative_key"), ("is_decoder", True), ("hidden_size", 770)),
        *(("hidden_size", "768"), ("hidden_size", True), ("vocab_size", None), ("vocab_size", 0)),
        *(("vocab_size", 2**62), ("type_vocab_size", -1), ("layer_norm_eps", "tiny"), ("layer_norm_eps", -1.0)),
        *(("hidden_dropout_prob", 2), ("attention_probs_dropout_prob", float("nan")), ("num_hidden_layers", 10**6)),
        *(("num_hidden_layers", -1), ("pad_token_id", 30522), ("pad_token_id", "x" * 70_000)),
        *(("max_position_embeddings", 2), ("max_position_embeddings", 10**400), ("layer_heads", [1, 2])),
        *(("layer_heads", [True] * 12), ("layer_intermediate_sizes", [0, 3073] * 6)),
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

"""A checkpoint that no encoder can compute is refused in one short line, before memory is allocated on its word."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from minbert import load_tokenizer
from minbert.checkpoint import not_finite, write_tensors
from minbert.download_checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from multitask import SentenceEncoder
from tests.minbert.reference_checkpoints import load_error, read_tensors, rewrite, save_reference


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        SentenceEncoder.load(folder, device="cpu", precision="fp32")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000
    return str(caught.value)


@pytest.fixture
def checkpoint(tiny_encoder, tmp_path) -> Path:
    """A copy of a small checkpoint with its tokenizer, to damage."""
    for path in tiny_encoder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps((json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}) | values))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_are_not_finite_are_refused_with_their_tensor(tmp_path, value, dtype):
    save_reference(tmp_path)
    tensors = {name: tensor.to(dtype) for name, tensor in read_tensors(tmp_path).items()}
    name = "encoder.layer.1.output.dense.weight"
    tensors[name][3, 5] = value
    rewrite(tmp_path, tensors)
    assert load_error(tmp_path).startswith(f"{tmp_path / 'model.safetensors'}: the tensor {name} has values that are")


def test_opposite_infinities_and_large_finite_values_are_told_apart():
    largest = torch.finfo(torch.float32).max
    assert not_finite({"a": torch.tensor([largest, largest])}) is None
    assert not_finite({"a": torch.zeros(2), "b": torch.tensor([float("inf"), float("-inf")])}) == "b"
    assert not_finite({"empty": torch.zeros(0), "ids": torch.arange(3)}) is None


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(InputError, match="the tensor b has values"):
        write_tensors({"a": torch.zeros(1), "b": torch.tensor(float("nan"))}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("complaint", "changes"),
    [
        ("hidden_dropout_prob is 2; expected at most 1", {"hidden_dropout_prob": 2}),
        ("attention_probs_dropout_prob is NaN", {"attention_probs_dropout_prob": float("nan")}),
        ("layer_norm_eps is -1.0; expected", {"layer_norm_eps": -1.0}),
        ("num_hidden_layers is 1000000; expected at most 1000", {"num_hidden_layers": 10**6}),
        ("num_hidden_layers is -1; expected", {"num_hidden_layers": -1}),
        ("pad_token_id is 600; expected 0 to", {"pad_token_id": 600}),
        ("vocab_size is 4611686018427387904; expected at most 10000000000", {"vocab_size": 2**62}),
        ("parameters; expected at most", {"vocab_size": 10**9, "max_position_embeddings": 10**9}),
        ("type_vocab_size is -1; expected at least 1", {"type_vocab_size": -1}),
        ("max_position_embeddings is 1000", {"max_position_embeddings": 10**400}),
        ('pad_token_id is "xxx', {"pad_token_id": "x" * 70_000}),
        ("model_type is [[", {"model_type": [["x" * 70_000]]}),
        ("max_position_embeddings 2 leaves no room for a sentence", {"max_position_embeddings": 2}),
        ("hidden_size is true; expected a whole number", {"hidden_size": True}),
    ],
)
def test_sizes_out_of_range(checkpoint, complaint, changes):
    change(checkpoint, "config.json", **changes)
    found = refusal(checkpoint)
    assert found.startswith(f"{checkpoint / 'config.json'}: {complaint}") or "parameters" in complaint in found
    assert len(found) < 400


def test_many_missing_tensors_are_one_short_line(checkpoint):
    change(checkpoint, "config.json", num_hidden_layers=12)
    message = refusal(checkpoint)
    assert "missing encoder.layer.2.attention.self.query.weight" in message
    assert "more" in message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[" * 100_000 + "]" * 100_000, "not valid JSON (maximum recursion depth"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "not valid JSON (Exceeds the limit"),
        ("[]", "[] where dict was expected"),
        ("é".encode("latin-1"), "not UTF-8 (byte 0)"),
    ],
    ids=["deep", "long number", "list", "latin-1"],
)
@pytest.mark.parametrize("file", ["config.json", "1_Pooling/config.json", "sentence_bert_config.json"])
def test_json_that_is_no_configuration(checkpoint, file, content, complaint):
    change(checkpoint, file)
    (checkpoint / "modules.json").write_text("[]")  # a folder of sentence-transformers: all three files are read
    (checkpoint / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refusal(checkpoint)
    assert message.startswith(f"{checkpoint / file}: ")
    assert complaint in message


@pytest.mark.parametrize("length", ["512", 2.5, True, -1, 0, [512]])
def test_a_sentence_length_that_is_none(checkpoint, length):
    file, key = "sentence_bert_config.json", "max_seq_length"
    (checkpoint / "modules.json").write_text("[]")
    change(checkpoint, file, **{key: length})
    assert f"{checkpoint / file}: {key} is {length!r}; expected a number of tokens" in refusal(checkpoint)


def test_a_pooling_of_another_shape_names_no_pooling_that_is_known(checkpoint):
    change(checkpoint, "1_Pooling/config.json", pooling_mode=5)
    assert SentenceEncoder.load(checkpoint, device="cpu").pooling == "cls"


@pytest.mark.parametrize("place", ["vocabulary", "specials"])
def test_a_tokenizer_with_more_ids_than_the_table_has_rows(checkpoint, place):
    rows = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    path = checkpoint / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    if place == "vocabulary":
        tokenizer["model"]["vocab"]["[SEP]s"] = rows
    else:
        tokenizer["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", rows], "cls": ["[CLS]", 1]}
    path.write_text(json.dumps(tokenizer))
    assert re.search(
        rf"gives '\[SEP\]s?' the id {rows}, .*; take tokenizer and weights from the same", refusal(checkpoint)
    )


def test_a_tokenizer_without_special_tokens(checkpoint):
    """An empty sentence would have no token."""
    path = checkpoint / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"post_processor": None}))
    assert refusal(checkpoint).startswith(f"{checkpoint}: the tokenizer adds no special tokens, such as [CLS]")


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"vocab.txt": "é".encode("latin-1")}, "vocab.txt: not UTF-8 (byte 0)"),
        ({"tokenizer.json": b"\xff"}, "tokenizer.json: not UTF-8 (byte 0)"),
        ({"tokenizer_config.json": b"[]"}, "tokenizer_config.json: [] where dict was expected"),
        ({"tokenizer_config.json": b'{"do_lower_case": "no"}'}, "tokenizer_config.json: not the settings of a BERT"),
    ],
)
def test_tokenizer_files_of_another_kind(tmp_path, files, complaint):
    for name in ("config.json", "vocab.txt"):
        (tmp_path / name).write_bytes((resolve(BUNDLED) / name).read_bytes())
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_tokenizer(str(tmp_path))
    assert complaint in str(caught.value)


def test_a_tokenizer_that_cannot_split_a_text_is_named(checkpoint):
    path = checkpoint / "tokenizer.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["model"]["unk_token"] = "[NONE]"
    path.write_text(json.dumps(settings))
    tokenizer = load_tokenizer(str(checkpoint))
    for split in (tokenizer.encode, tokenizer.lengths):
        with pytest.raises(InputError, match=f"{checkpoint}: the tokenizer cannot split the text .*Missing"):
            split(["\u4e00\u16a0"])
    with pytest.raises(TypeError):  # of the caller
        tokenizer.encode([None])


def test_the_reason_of_a_damaged_file_is_short(checkpoint):
    (checkpoint / "tokenizer.json").write_text(json.dumps({"version": "x" * 5000, "model": {"type": "x" * 5000}}))
    assert len(refusal(checkpoint)) < 400

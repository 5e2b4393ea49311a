"""A checkpoint that no encoder can compute, a small file that claims much, and one that never ends: one short line."""

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minbert import checkpoint as checkpoint_module
from minbert import load_tokenizer
from minbert.checkpoint import not_finite, read_tensors, write_tensors
from minbert.download_checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from minbert.files import read_arrays, read_json, read_text, read_toml, sha256_of_file
from multitask import SentenceEncoder
from tests.minbert.references import load_error, rewrite, save_reference, stored_tensors


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        SentenceEncoder.load(folder, device="cpu", precision="fp32")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


@pytest.fixture
def checkpoint(tiny_encoder, tmp_path) -> Path:
    """A copy of a small checkpoint with its tokenizer, to damage."""
    for path in tiny_encoder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change(path: Path, **values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps((json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}) | values))


# Weights.


@pytest.mark.parametrize(
    "value, dtype", [("nan", torch.float32), ("inf", torch.float16), ("-inf", torch.bfloat16)], ids=str
)
def test_weights_that_are_not_finite_are_refused_with_their_tensor(tmp_path, value, dtype):
    save_reference(tmp_path)
    tensors = {name: tensor.to(dtype) for name, tensor in stored_tensors(tmp_path).items()}
    name = "encoder.layer.1.output.dense.weight"
    tensors[name][3, 5] = float(value)
    rewrite(tmp_path, tensors)
    assert load_error(tmp_path).startswith(f"{tmp_path / 'model.safetensors'}: the tensor {name} has values that are")
    with pytest.raises(InputError, match=f"the tensor {name} has values"):
        write_tensors(tensors, tmp_path / "again.safetensors")
    assert not (tmp_path / "again.safetensors").exists()


def test_opposite_infinities_and_large_finite_values_are_told_apart():
    largest = torch.finfo(torch.float32).max
    assert not_finite({"a": torch.tensor([largest, largest])}) is None
    assert not_finite({"a": torch.zeros(2), "b": torch.tensor([float("inf"), float("-inf")])}) == "b"
    assert not_finite({"empty": torch.zeros(0), "ids": torch.arange(3)}) is None


def test_expanded_tensors_are_not_written_out(tmp_path):
    torch.save({"a": torch.zeros(1).expand(2**45)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: 140,737,488,355,328 bytes of content"):
        read_tensors(tmp_path / "pytorch_model.bin")


NESTED = "ignore:The PyTorch API of nested tensors"
TENSORS = {
    "meta": lambda: torch.zeros(3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "many dimensions": lambda: torch.zeros([1] * 9),
    "sparse": lambda: torch.eye(3).to_sparse(),
}


@pytest.mark.filterwarnings(NESTED)
@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_are_no_plain_numbers_are_one_line(tmp_path, kind):
    torch.save({"a": TENSORS[kind]()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: the tensor a is torch\.float32 \(.*\); expected fp64"):
        read_tensors(tmp_path / "pytorch_model.bin")


def test_a_large_header_is_one_line(tmp_path):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"tensor {i}": entry for i in range(20_000)}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InputError, match=r"x\.safetensors: .*\(a header of 1,\d+,\d+ bytes; expected at most 1,04"):
        read_tensors(tmp_path / "x.safetensors")


def test_weights_that_no_encoder_has_are_refused_before_they_are_read(checkpoint, monkeypatch):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**28], "data_offsets": [0, 2**30]}}).encode()
    with (checkpoint / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**30)  # a sparse file
    monkeypatch.setattr(checkpoint_module, "not_finite", None)  # cannot be called
    with pytest.raises(InputError, match=r"the weights do not fit config\.json: missing "):
        SentenceEncoder.load(checkpoint, device="cpu", precision="fp32")


def test_numbers_of_4_bits_are_one_line(tmp_path):
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
    with pytest.raises(InputError, match=r"x\.safetensors: the tensor a is torch\.float4_e2m1fn_x2"):
        read_tensors(tmp_path / "x.safetensors")


# Files of any kind.


@pytest.mark.parametrize(
    "read", [read_text, read_json, read_toml, read_tensors, sha256_of_file], ids=lambda read: read.__name__
)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, read, kind):
    target = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.safetensors").symlink_to(target)
    with pytest.raises(InputError, match=r"link\.safetensors: not a regular file"):
        read(tmp_path / "link.safetensors")


def test_arrays_that_decompress_to_far_more_than_their_file_are_not_read(tmp_path):
    np.savez_compressed(tmp_path / "trained_on.npz", sentences=np.zeros(2**24, np.uint64))
    with pytest.raises(InputError, match=r"trained_on\.npz: 134,\d+,\d+ bytes of content, more than 100 times"):
        read_arrays(tmp_path / "trained_on.npz")
    noise = np.random.default_rng(0).bytes(2**20)  # the file is large enough, but not what it stores of the zeros
    np.savez_compressed(tmp_path / "trained_on.npz", sentences=np.zeros(2**23 + 1), noise=np.frombuffer(noise, "u1"))
    with pytest.raises(InputError, match=r"trained_on\.npz: 67,\d+,\d+ bytes of content, more than 100 times"):
        read_arrays(tmp_path / "trained_on.npz")
    np.savez_compressed(tmp_path / "trained_on.npz", sentences=np.zeros(1000, np.uint64))  # small ones may be uniform
    assert not read_arrays(tmp_path / "trained_on.npz")["sentences"].any()
    with (tmp_path / "trained_on.npz").open("r+b") as opened:
        opened.truncate(20 * 2**30)  # a sparse file
    with pytest.raises(InputError, match=r"trained_on\.npz: 21,474,836,480 bytes; expected at most"):
        read_arrays(tmp_path / "trained_on.npz")


@pytest.mark.parametrize("file", ["merges.txt", "config.json", "tokenizer.json"])
def test_a_huge_file_is_not_read(checkpoint, file):
    with (checkpoint / file).open("wb") as opened:
        opened.truncate(50 * 10**9)  # a sparse file
    assert f"{file}: 50,000,000,000 bytes; expected at most" in refusal(checkpoint)


# Configurations of an encoder and of sentence-transformers.


def of_sentence_transformers(checkpoint: Path) -> None:
    """Make the folder one of sentence-transformers."""
    modules = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "1_Pooling"}]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    change(checkpoint / "1_Pooling" / "config.json", pooling_mode="mean")


@pytest.mark.parametrize("file", ["config.json", "1_Pooling/config.json", "sentence_bert_config.json"])
@pytest.mark.parametrize("content", [b"[]", b"\xe9"])
def test_json_that_is_no_configuration(checkpoint, file, content):
    of_sentence_transformers(checkpoint)  # all three files are read
    (checkpoint / file).write_bytes(content)
    assert refusal(checkpoint).startswith(f"{checkpoint / file}: ")


@pytest.mark.parametrize("length", ["512", 2.5, True, 0])
def test_a_sentence_length_that_is_none(checkpoint, length):
    of_sentence_transformers(checkpoint)
    path = checkpoint / "sentence_bert_config.json"
    change(path, max_seq_length=length)
    assert f"{path}: max_seq_length is {length!r}; expected a number of tokens" in refusal(checkpoint)


def test_a_pooling_of_another_shape_is_no_pooling_that_is_known(checkpoint):
    change(path := checkpoint / "1_Pooling" / "config.json", pooling_mode=5)
    assert refusal(checkpoint) == f"{path}: pools by 5; to compute cls or mean, set pooling"


# Tokenizers.


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
    change(checkpoint / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert re.search(rf"gives '\[SEP\]s?' the id {rows}, ", refusal(checkpoint))


def test_a_tokenizer_without_special_tokens(checkpoint):
    """An empty sentence would have no token."""
    change(checkpoint / "tokenizer.json", post_processor=None)
    change(checkpoint / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert refusal(checkpoint).startswith(f"{checkpoint}: the tokenizer adds no special tokens, such as [CLS]")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vocab.txt", b"\xe9"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"not json"),
        ("tokenizer.json", b"\xff"),
        ("tokenizer.json", json.dumps({"version": "x" * 5000, "model": {"type": "x" * 5000}}).encode()),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b"{"),
    ],
)
def test_tokenizer_files_of_another_kind(checkpoint, file, content):
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "vocab.txt").write_bytes((resolve(BUNDLED) / "vocab.txt").read_bytes())
    (checkpoint / file).write_bytes(content)
    assert refusal(checkpoint).startswith(f"{checkpoint / file}: ")


def test_a_tokenizer_without_padding_token_and_none_at_all(checkpoint):
    path = checkpoint / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace("[PAD]", "[NIL]"), encoding="utf-8")
    assert refusal(checkpoint) == f"{checkpoint}: the tokenizer's vocabulary lacks [PAD]"
    change(checkpoint / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert "the tokenizer has no token [PAD]; " in refusal(checkpoint)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint / name).unlink()
    assert refusal(checkpoint) == f"{checkpoint}: no tokenizer; expected tokenizer.json or vocab.txt"


def test_a_tokenizer_that_cannot_split_a_text_is_named(checkpoint):
    path = checkpoint / "tokenizer.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["model"]["unk_token"] = "[NONE]"
    path.write_text(json.dumps(settings))
    change(checkpoint / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    tokenizer = load_tokenizer(str(checkpoint))
    for split in (tokenizer.encode, tokenizer.lengths):
        with pytest.raises(InputError, match=f"{checkpoint}: the tokenizer cannot split the text .*Missing"):
            split(["\u4e00\u16a0"])
    with pytest.raises(TypeError):  # of the caller
        tokenizer.encode([None])
    for wrong in ("half \ud800", ("a", "half \udfff")):
        with pytest.raises(InputError, match=f"{checkpoint}: the tokenizer cannot split the text .*half "):
            tokenizer.encode(["a", wrong])

"""Small files that claim much, and files that never end, are refused before memory is allocated or time is lost."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.checkpoint import read_tensors
from minbert.errors import InputError
from minbert.files import read_arrays, read_json, read_text, read_toml, sha256_of_file
from minbert.tokenizer import load_tokenizer

READERS = (read_text, read_json, read_toml, read_tensors, sha256_of_file)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, read, kind):
    target = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.safetensors").symlink_to(target)
    with pytest.raises(InputError, match=r"link\.safetensors: not a regular file"):
        read(tmp_path / "link.safetensors")


def test_expanded_tensors_are_not_written_out(tmp_path):
    torch.save({"a": torch.zeros(1).expand(2**45)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: 140,737,488,355,328 bytes of content"):
        read_tensors(tmp_path / "pytorch_model.bin")


def test_arrays_that_decompress_to_far_more_than_their_file_are_not_read(tmp_path):
    np.savez_compressed(tmp_path / "trained_on.npz", sentences=np.zeros(2**24, np.uint64))
    with pytest.raises(InputError, match=r"trained_on\.npz: 134,\d+,\d+ bytes of content, more than 100 times"):
        read_arrays(tmp_path / "trained_on.npz")
    np.savez_compressed(tmp_path / "trained_on.npz", sentences=np.zeros(1000, np.uint64))  # small ones may be uniform
    assert not read_arrays(tmp_path / "trained_on.npz")["sentences"].any()


def test_numbers_of_4_bits_are_one_line(tmp_path):
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
    with pytest.raises(InputError, match=r"x\.safetensors: the tensor a is torch\.float4_e2m1fn_x2"):
        read_tensors(tmp_path / "x.safetensors")


def test_a_huge_file_of_the_tokenizer_is_not_read(tiny_encoder, tmp_path):
    for path in tiny_encoder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with (tmp_path / "merges.txt").open("wb") as file:
        file.truncate(50 * 10**9)  # a sparse file
    with pytest.raises(InputError, match=r"merges\.txt: 50,000,000,000 bytes; expected at most"):
        load_tokenizer(str(tmp_path))

"""A model whose description is damaged is refused in one line that names the file, before memory is allocated."""

import json
from pathlib import Path

import pytest
import torch

from minbert import BertModel, load_tokenizer
from minbert.checkpoint import read_tensors, write_tensors
from minbert.errors import InputError
from multitask.models.config import HeadsConfig
from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.declarations import task_of
from tests.conftest import COURSE_TASKS


@pytest.fixture
def folder(tiny_encoder: Path, tmp_path: Path) -> Path:
    encoder, tokenizer = BertModel.from_pretrained(str(tiny_encoder)), load_tokenizer(str(tiny_encoder))
    MultitaskModel(encoder, tokenizer, COURSE_TASKS, "mean", HeadsConfig(), 32).save(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, told: str, **changes: object) -> None:
    path = folder / "multitask.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=f"^{path}: {told}"):
        MultitaskModel.load(folder, "cpu")


@pytest.mark.parametrize("length", [65, 10**300, "12", 1.5, True, [], 2, -1])
def test_a_sentence_length_that_is_none(folder, length):
    refused(folder, "max_length is .{,80}; ", max_length=length)


@pytest.mark.parametrize(
    "heads",
    [
        {"dropout": None},
        {"residual": "no"},
        {"sharing": "some"},
        {"depth": 2},
        {"head_hidden_size": 10**9},
        ["dropout"],
    ],
)
def test_settings_of_heads_that_are_none(folder, heads):
    stored = json.loads((folder / "multitask.json").read_text())["heads"]
    name = next(iter(heads)) if isinstance(heads, dict) else ""
    refused(folder, f"heads.{{,1}}{name}", heads=stored | heads if isinstance(heads, dict) else heads)


def test_outputs_beyond_all_numbers_name_the_model(folder):
    path = folder / "heads.safetensors"
    write_tensors({name: torch.full_like(tensor, 3e38) for name, tensor in read_tensors(path).items()}, path)
    with pytest.raises(InputError, match=f"^{folder}: the model's outputs for .* are not finite"):
        MultitaskModel.load(folder, "cpu", "fp32").predict("sentiment", ["a"])


def test_text_of_a_declaration_that_is_none():
    with pytest.raises(InputError, match=r"tasks\.topic: Invalid JSON"):
        task_of("topic", {"kind": "classification", "text": ["\ud800"], "label": "topic"})

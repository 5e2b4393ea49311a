"""Small checkpoints written by transformers, and helpers that load them with our encoder."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from transformers.utils.logging import disable_progress_bar

from minbert import BertModel
from minbert.errors import InputError
from tests.minbert.equivalence import random_reference

SHAPE = (2, 24, 3, 40, 40, 1)
INDEX = "model.safetensors.index.json"
IDS = torch.randint(2, 101, (3, 9), generator=torch.Generator().manual_seed(0))

disable_progress_bar()


def save_reference(folder: Path, model_type: str = "bert") -> nn.Module:
    reference = random_reference(model_type, *SHAPE)
    reference.save_pretrained(folder)
    return reference


def save_in_several_files(folder: Path) -> nn.Module:
    reference = random_reference("bert", *SHAPE)
    reference.save_pretrained(folder, max_shard_size="20KB")
    return reference


@torch.no_grad()
def outputs(model: nn.Module) -> tuple[Tensor, Tensor]:
    found = model(IDS)
    return found.last_hidden_state, found.pooler_output


def assert_same_outputs(one: nn.Module, other: nn.Module) -> None:
    for x, y in zip(outputs(one), outputs(other), strict=True):
        assert (x - y).abs().max() < 1e-5


def stored_tensors(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def as_pickle(folder: Path, **options: bool) -> None:
    torch.save(stored_tensors(folder), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


def load_error(name: Path | str, revision: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        BertModel.from_pretrained(str(name), revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)

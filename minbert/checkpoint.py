"""Weights files: from Hugging Face's tensor names to the state dict of `BertModel`, and back."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import atomic_file, file_size, refuse_expanding_archive, refuse_expansion

logger = logging.getLogger("minbert")

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SHOWN = 20
"""How many tensors that do not fit an error lists."""


def load_weights(config: BertConfig, path: Path) -> dict[str, Tensor]:
    """Read a weights file into the state dict of `BertModel`, in fp32.

    The tensors of prediction heads are ignored. Without a pooler (checkpoints of masked language models have none), a
    new one is initialised at random from a fixed seed, with a warning.

    Raises:
        InputError: tensors are missing, unexpected or misshaped, and one message lists them; or a weight is not finite.
    """
    found = _encoder_tensors(read_tensors(path))
    if "pooler.dense.weight" not in found and "pooler.dense.bias" not in found:
        logger.warning("%s: the checkpoint has no pooler; its weights are initialised at random (seed 0)", path)
        generator = torch.Generator().manual_seed(0)
        size = config.hidden_size
        found["pooler.dense.weight"] = torch.randn(size, size, generator=generator) * config.initializer_range
        found["pooler.dense.bias"] = torch.zeros(size)
    shapes = {stored.theirs: stored.shape for stored in _stored_tensors(config)}
    problems = [f"missing {name}" for name in shapes if name not in found]
    problems += [f"unexpected {name}" for name in found if name not in shapes]
    problems += [
        f"misshaped {name} {list(found[name].shape)}, expected {list(shape)}"
        for name, shape in shapes.items()
        if name in found and found[name].shape != shape
    ]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise InputError(f"{path}: the weights do not fit config.json: {'; '.join(problems[:SHOWN])}{more}")
    parts: dict[str, list[Tensor]] = {}
    for stored in _stored_tensors(config):
        copied = found[stored.theirs].to(torch.float32, copy=True)  # a tensor that was read may map the file
        parts.setdefault(stored.ours, []).append(copied)
    return {name: tensors[0] if len(tensors) == 1 else torch.cat(tensors) for name, tensors in parts.items()}


def save_weights(
    config: BertConfig, state: Mapping[str, Tensor], path: Path, head: Mapping[str, Tensor] | None = None
) -> None:
    """Write the state dict of a `BertModel`, and `head` under its own names, as safetensors, atomically."""
    tensors = dict(head or {})
    taken: dict[str, int] = {}  # rows of our tensor that have been written
    for stored in _stored_tensors(config):
        start = taken.get(stored.ours, 0)
        rows = stored.shape[0]
        tensors[stored.theirs] = state[stored.ours][start : start + rows].clone()
        taken[stored.ours] = start + rows
    write_tensors(tensors, path)


@dataclass(frozen=True)
class _StoredTensor:
    """A tensor's name in Hugging Face's checkpoints and in ours. Tensors that share our name are stacked by rows."""

    theirs: str
    ours: str
    shape: tuple[int, ...]


def _stored_tensors(config: BertConfig) -> Iterator[_StoredTensor]:
    hidden = config.hidden_size

    def linear(theirs: str, ours: str, outputs: int, inputs: int) -> Iterator[_StoredTensor]:
        yield _StoredTensor(f"{theirs}.weight", f"{ours}.weight", (outputs, inputs))
        yield _StoredTensor(f"{theirs}.bias", f"{ours}.bias", (outputs,))

    def norm(theirs: str, ours: str) -> Iterator[_StoredTensor]:
        yield _StoredTensor(f"{theirs}.weight", f"{ours}.weight", (hidden,))
        yield _StoredTensor(f"{theirs}.bias", f"{ours}.bias", (hidden,))

    for kind, rows in (
        ("word", config.vocab_size),
        ("position", config.max_position_embeddings),
        ("token_type", config.type_vocab_size),
    ):
        yield _StoredTensor(f"embeddings.{kind}_embeddings.weight", f"embeddings.{kind}.weight", (rows, hidden))
    yield from norm("embeddings.LayerNorm", "embeddings.norm")
    for index, (heads, inner) in enumerate(config.layer_sizes):
        width = heads * config.head_size
        theirs, ours = f"encoder.layer.{index}", f"layers.{index}"
        for part in ("query", "key", "value"):
            yield from linear(f"{theirs}.attention.self.{part}", f"{ours}.attention.query_key_value", width, hidden)
        yield from linear(f"{theirs}.attention.output.dense", f"{ours}.attention.output", hidden, width)
        yield from norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.attention_norm")
        yield from linear(f"{theirs}.intermediate.dense", f"{ours}.intermediate", inner, hidden)
        yield from linear(f"{theirs}.output.dense", f"{ours}.output", hidden, inner)
        yield from norm(f"{theirs}.output.LayerNorm", f"{ours}.output_norm")
    yield from linear("pooler.dense", "pooler", hidden, hidden)


def _encoder_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the encoder, without heads and without the prefix of a model that contains the encoder."""
    for prefix in ("bert.", "roberta."):
        if any(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    heads = ("cls.", "lm_head.", "embeddings.position_ids")
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file, atomically.

    Raises:
        InputError: a tensor has a value that is not finite.
        DiskFullError: fewer bytes are free than the tensors have.
    """
    refuse_not_finite(tensors, path)
    owned = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    needed = sum(tensor.nbytes for tensor in owned.values())
    with atomic_file(path, needed) as temporary:
        safetensors.torch.save_file(owned, temporary, metadata={"format": "pt"})


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise InputError if a tensor of the file has a value that is not finite."""
    if (name := not_finite(tensors)) is not None:
        raise InputError(f"{path}: the tensor {name} has values that are NaN or infinite; the model computes nothing")


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Name of the first tensor with a value that is not finite; None if all values are finite."""
    for name, tensor in tensors.items():
        values = tensor.detach().float()
        # A sum is finite only if all values are, and 50 times as fast; a sum of finite values may still overflow.
        if not values.sum().isfinite() and not values.isfinite().all():
            return name
    return None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file, with LayerNorm's old names replaced.

    Raises:
        InputError: the file is no weights file, or a tensor has a value that is not finite.
    """
    file_size(path)
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
        else:
            refuse_expanding_archive(path)
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a readable weights file ({reason:.200})") from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise InputError(f"{path}: expected a state dict of tensors")
    if other := [name for name, t in tensors.items() if t.dtype not in DTYPES or t.layout != torch.strided]:
        found = f"{tensors[other[0]].dtype} ({tensors[other[0]].layout})"
        raise InputError(f"{path}: the tensor {other[0]} is {found}; expected fp64, fp32, fp16, bf16 or integers")
    refuse_expansion(path, sum(tensor.nbytes for tensor in tensors.values()))  # expanded tensors repeat few numbers
    refuse_not_finite(tensors, path)
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }

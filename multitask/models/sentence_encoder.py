"""SentenceEncoder turns sentences into embeddings, from any checkpoint or run.

`load_encoder` also loads encoders of other architectures.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.config import Long
from minbert.download_checkpoint import resolve
from minbert.errors import InputError, OtherArchitectureError
from minbert.files import atomic_folder
from minbert.inference_layer import Bf16Model, processor_has_bf16
from minbert.model import BertModel
from minbert.packing import PackedBatch, send
from minbert.tokenizer import Ids, Tokenizer, load_tokenizer
from multitask.base import logger
from multitask.base.device import PROCESSOR, Runtime, resolve_runtime
from multitask.base.options import Device, Precision
from multitask.base.progress import RowsDone, no_progress
from multitask.base.runs import is_run, locate_model
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples, LabelledData, RowNumbers, TextCounts
from multitask.data.messages import listed, quote
from multitask.models.compute_in_batches import (
    PoolingMethod,
    check_dimensions,
    compute_in_batches,
    pool,
    texts_to_embed,
)
from multitask.models.model_folder import (
    file_hashes,
    resolve_pooling,
    stored_include_prompt,
    stored_max_length,
    stored_prompts,
    stored_similarity,
    write_pooling,
)
from multitask.models.sentence_transformers_encoder import SentenceTransformersEncoder, further_modules
from multitask.models.settings import Pooling
from multitask.models.transformers_model import TransformersModel


class SentenceEncoder(nn.Module):
    """BERT with all that decides a sentence's embedding: tokenizer, pooling, longest sentence, and where it runs.

    Args:
        model: the encoder.
        tokenizer: of the encoder's vocabulary.
        pooling: what makes an embedding of token states: the first token's state or the mean.
        max_length: longer sentences are cut to so many tokens; None: to the encoder's limit.
        runtime: device and precision; the model is on this device.
    """

    def __init__(
        self,
        model: BertModel | TransformersModel,
        tokenizer: Tokenizer,
        pooling: PoolingMethod,
        max_length: int | None = None,
        runtime: Runtime = PROCESSOR,
    ) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = tokenizer.max_length if max_length is None else max_length
        self.runtime = runtime
        self.counts = TextCounts()  # of texts that were encoded

    @classmethod
    def read(cls, folder: Path, pooling: Pooling = "auto", max_length: int | None = None) -> Self:
        """Read a model's folder, with any pooling and length: to train, to score, or to add heads to.

        The model is in eval mode on the CPU, in fp32. Raises InputError for a folder that is damaged.
        """
        model: BertModel | TransformersModel
        try:
            model, tokenizer = BertModel.from_pretrained(str(folder)), load_tokenizer(str(folder))
        except OtherArchitectureError:
            model, tokenizer = TransformersModel.from_folder(folder)
            return cls(model, tokenizer, resolve_pooling(pooling, folder, unknown="mean"), max_length)
        return cls(model, tokenizer, resolve_pooling(pooling, folder), max_length)

    @classmethod
    def read_as_stored(cls, folder: Path, pooling: Pooling = "auto") -> Self:
        """Read a model's folder as `read` does. Sentences are cut to the length that the folder records, if any."""
        encoder = cls.read(folder, pooling)
        encoder.max_length = min(stored_max_length(folder) or encoder.max_length, encoder.max_length)
        return encoder

    @classmethod
    def load(
        cls,
        name: str | Path,
        revision: str | None = None,
        pooling: Pooling = "auto",
        device: Device = "auto",
        precision: Precision = "auto",
        keep_layers: bool = False,
    ) -> Self:
        """Load from a run's folder, a model folder, `all-minilm-l6-v2` or a hub id.

        Sentences are cut to the length that the model's folder records, if any. The pooling of a sentence-transformers
        folder is used; if that model scales its embeddings to length 1, pass `normalize` to `encode`. In bf16, weights
        are rounded here: use `encode`, and load in fp32 what is saved or called otherwise. On a processor, linear maps
        for inference, which cannot be trained, then replace those of the model, unless `keep_layers` is set.

        Raises:
            InputError: no such model, or one whose embeddings need more than this encoder and `pooling` is `auto`.
        """
        folder = locate_model(name, revision)
        runtime = resolve_runtime(device, precision)
        if pooling == "auto" and (reason := further_modules(folder)) is not None:
            remedy = "`load_encoder` computes this, and a pooling of your own ignores it"
            runs = "serve, explore and probe take a run itself, or its export --to transformers"
            raise InputError(f"{reason}; {remedy}; {runs}")
        return cls.read_as_stored(folder, pooling).on(runtime, keep_layers)

    def on(self, runtime: Runtime, keep_layers: bool = True) -> Self:
        """Move to the runtime's device. Unless it should `keep_layers`, the model is only for inference then.

        In bf16, weights are then rounded once: autocast would do so in every call, with the same result. On a
        processor, linear maps that cannot be trained replace those of the model. In fp32 it stays as it is.
        """
        self.runtime = runtime
        self.to(runtime.device)
        if keep_layers or runtime.precision != "bf16":
            return self
        if runtime.device.type == "cpu" and processor_has_bf16() and isinstance(self.model, BertModel):
            self.model = Bf16Model(self.model)
        else:
            for layer in self.model.modules():
                if isinstance(layer, nn.Linear):
                    layer.to(torch.bfloat16)
        return self

    def save(self, folder: Path, head: Mapping[str, Tensor] | None = None, keep: Sequence[Path] = ()) -> None:
        """Write the encoder's current weights as a checkpoint, with its pooling in sentence-transformers' format.

        Further tensors are written together with the encoder's; the files to keep are copied into the folder.
        """
        with atomic_folder(folder) as temporary:
            self.model.save(temporary, head)
            self.tokenizer.save(temporary)
            write_pooling(temporary, self.pooling, self.width)
            for path in keep:
                shutil.copyfile(path, temporary / path.name)

    @property
    def bert(self) -> BertModel:
        """The model as a BERT or RoBERTa. Raises InputError for another architecture."""
        if not isinstance(self.model, BertModel):
            kind = self.model.config.model_type
            raise InputError(f"{self.name}: this is a {kind}, and what was asked for needs a BERT or RoBERTa")
        return self.model

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        return self.model.config.hidden_size

    @property
    def name(self) -> str:
        """The checkpoint's folder, as errors name it."""
        return self.tokenizer.source

    @property
    def identity(self) -> str:
        """Hash (64 hex digits) of the folder's files, pooling and length, which decide an embedding up to rounding."""
        decisive = (file_hashes(Path(self.name)), self.pooling, self.max_length)
        return sha256(repr(decisive).encode()).hexdigest()

    @property
    def settings(self) -> dict[str, Any]:
        """How it embeds and computes, as records of scores name it."""
        return {"pooling": self.pooling, "max_length": self.max_length, **self.runtime.describe()}

    def trained_on(self, name: str) -> TrainedOn:
        """What its folder records of its training data; `name` is the user's name of the model."""
        return TrainedOn.of_folder(Path(self.name), name)

    def tokenised(self, examples: Examples, joint: bool = False, rows: RowNumbers | None = None) -> LabelledData:
        """Examples as token sequences, see `LabelledData.tokenised`."""
        return LabelledData.tokenised(examples, self.tokenizer, self.max_length, joint, rows)

    def embed(
        self,
        ids: Sequence[Ids],
        types: Sequence[Ids] | None = None,
        unpadded: bool = False,
        recompute: bool = False,
        longest: int | None = None,
    ) -> Tensor:
        """Embeddings of token sequences, [sequences, hidden] fp32, from one packed batch (see `PackedBatch`).

        A sequence of more than `longest` tokens (None: `max_length`) is that of windows laid end to end. Its embedding
        is their mean, weighted by their numbers of tokens: of mean pooling, the mean of all states.
        """
        batch, windows = self.packed(ids, types, unpadded, longest)
        if self.pooling == "cls":
            return merged(self.model.forward_packed(batch, recompute, first_only=True).float(), batch, windows)
        return merged(pool(self.model.forward_packed(batch, recompute), batch, self.pooling), batch, windows)

    def packed(
        self, ids: Sequence[Ids], types: Sequence[Ids] | None = None, unpadded: bool = False, longest: int | None = None
    ) -> tuple[PackedBatch, list[int]]:
        """Token sequences as one packed batch of their windows, and how many windows each has; see `embed`."""
        length = longest or self.max_length
        windows = [-(-len(sequence) // length) for sequence in ids]
        if len(windows) < sum(windows):
            types = None if types is None else in_windows(types, length)
            ids = in_windows(ids, length)
        return PackedBatch.from_sequences(ids, types, unpadded).to(self.runtime.device), windows

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Embeddings of a padded batch, all [batch, seq] int64 -> [batch, hidden] fp32; the form that ONNX knows."""
        hidden = self.model(input_ids, attention_mask, token_type_ids).last_hidden_state  # [batch, seq, hidden]
        if self.pooling == "cls":
            return hidden[:, 0]
        weights = attention_mask[:, :, None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)

    @overload
    def encode(
        self,
        sentences: str | Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        show_progress: bool = False,
        convert_to_tensor: Literal[False] = False,
        dimensions: int | None = None,
        prompt: str | None = None,
        long: Long = "head",
    ) -> NDArray[np.float32]: ...

    @overload
    def encode(
        self,
        sentences: str | Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        show_progress: bool = False,
        *,
        convert_to_tensor: Literal[True],
        dimensions: int | None = None,
        prompt: str | None = None,
        long: Long = "head",
    ) -> Tensor: ...

    def encode(
        self,
        sentences: str | Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        show_progress: bool = False,
        convert_to_tensor: bool = False,
        dimensions: int | None = None,
        prompt: str | None = None,
        long: Long = "head",
    ) -> NDArray[np.float32] | Tensor:
        """Embed sentences, in batches of similar length.

        Args:
            sentences: any number of texts, or one.
            batch_size: largest number of sentences in a batch; by default a batch is filled by tokens.
            normalize: scale every embedding to length 1.
            max_length: cut sentences to so many tokens; the encoder's own setting when left out.
            show_progress: show how many sentences are done: a bar on a terminal, otherwise lines.
            convert_to_tensor: return a torch tensor on the encoder's device instead of an array.
            dimensions: keep only so many numbers of each embedding, the first ones. Sizes that the model was not
                trained for (`--matryoshka`) lose more.
            prompt: fixed words around each sentence, such as `query: {text}`.
            long: how sentences of more than `max_length` tokens are read.

        Returns:
            [sentences, hidden] fp32, in the order given; [hidden] for one string.
        """
        check_dimensions(dimensions, self.width, self.name)
        texts = texts_to_embed(sentences, prompt)
        length = self.max_length if max_length is None else max_length
        encoded = self.tokenizer.encode_and_count(texts, length, long)
        self.counts.add(len(texts), encoded.unread)
        self.counts.add_long(len(texts), encoded.cut, length, long)
        tokens = encoded.ids
        on_cpu = self.runtime.device.type == "cpu"

        def embed(rows: RowNumbers) -> Tensor:
            found = self.embed([tokens[row] for row in rows], unpadded=on_cpu, longest=length)[:, :dimensions]
            return nn.functional.normalize(found) if normalize else found

        embeddings = np.empty((0, dimensions or self.width), np.float32)
        if tokens:
            lengths = np.array([len(ids) for ids in tokens], np.int64)
            with RowsDone(len(tokens), "sentences") if show_progress else nullcontext() as shown:
                on_rows = shown.add if shown else no_progress
                draws = self.model.training
                embeddings = compute_in_batches(lengths, embed, self.runtime, batch_size, on_rows, in_order=draws)
        found = embeddings[0] if isinstance(sentences, str) else embeddings
        return torch.from_numpy(found).to(self.runtime.device) if convert_to_tensor else found


def in_windows(sequences: Sequence[Ids], length: int) -> list[Ids]:
    """The windows of sequences that are windows laid end to end."""
    return [part for sequence in sequences for part in np.split(sequence, range(length, len(sequence), length))]


def merged(embeddings: Tensor, batch: PackedBatch, windows: Sequence[int]) -> Tensor:
    """Embeddings of windows [windows, hidden] -> of sequences with so many windows each, [sequences, hidden]."""
    if len(windows) == len(embeddings):
        return embeddings
    owner = send(torch.arange(len(windows)).repeat_interleave(torch.tensor(windows)), embeddings.device)
    tokens = batch.offsets.diff().to(embeddings.dtype)
    sums = tokens.new_zeros(len(windows)).index_add(0, owner, tokens)
    shares = tokens / sums.index_select(0, owner)
    return embeddings.new_zeros(len(windows), embeddings.shape[1]).index_add(0, owner, embeddings * shares[:, None])


Embedder = SentenceEncoder | SentenceTransformersEncoder
"""Turns sentences into embeddings."""


def load_encoder(
    name: str | Path,
    revision: str | None = None,
    pooling: Pooling = "auto",
    device: Device = "auto",
    precision: Precision = "auto",
) -> Embedder:
    """Load any encoder: as a `SentenceEncoder` if it can compute the model, otherwise with sentence-transformers.

    Args:
        name: a run's folder, a model folder, `all-minilm-l6-v2` or a hub id.
        revision: branch, tag or commit of a hub id.
        pooling: `auto` is what the model was tuned with. If that is not recorded, it is the first token for BERT and
            RoBERTa and the mean for other architectures.
        device: where to compute.
        precision: of matrix products.

    Raises:
        InputError: no such model, weights that exist only as a pickle, a model that needs sentence-transformers, which
            is not installed.
    """
    if not is_run(name):
        folder = resolve(str(name), revision, with_weights=False)
        if (kind := stored_similarity(folder)) != "cosine":
            logger.info("%s: search, mine and suites compare by cosine; this model is meant for %s", name, quote(kind))
        if (reason := further_modules(folder)) is not None:
            return SentenceTransformersEncoder(str(name), revision, pooling, device, precision, reason)
        if prompts := stored_prompts(folder):
            each = listed(f"{kind} {quote(words)}" for kind, words in prompts.items())
            logger.info("%s: no prompts are added to texts; this model has %s", name, each)
            if not stored_include_prompt(folder):
                logger.warning("%s: its mean leaves out prompts, but counts given words (--column or `prompt`)", name)
    return SentenceEncoder.load(name, revision, pooling, device, precision)

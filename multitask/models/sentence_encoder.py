"""SentenceEncoder turns sentences into embeddings, from any checkpoint or run.

`load_encoder` also loads encoders of other architectures.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.download_checkpoint import resolve
from minbert.errors import InputError
from minbert.inference_layer import Bf16Model, processor_has_bf16
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.base.device import Runtime, start
from multitask.base.options import Device, Precision
from multitask.base.progress import RowsDone, untold
from multitask.base.runs import is_run, locate_model
from multitask.data.examples import RowNumbers, Unread
from multitask.data.messages import quote
from multitask.data.texts import prompted
from multitask.models.compute_in_batches import PoolingMethod, check_dimensions, compute_in_batches, pool
from multitask.models.model_folder import file_hashes, resolve_pooling, stored_max_length
from multitask.models.other_architectures import SentenceTransformersEncoder, why_not_minbert
from multitask.models.settings import Pooling


class SentenceEncoder:
    """An encoder with its tokenizer and pooling: the first token's state or the mean.

    The model is in eval mode on the runtime's device. Sentences are cut to `max_length` tokens; None for the encoder's
    limit.
    """

    def __init__(
        self,
        model: BertModel,
        tokenizer: Tokenizer,
        pooling: PoolingMethod,
        runtime: Runtime,
        max_length: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.runtime = runtime
        self.max_length = tokenizer.max_length if max_length is None else max_length
        self.unread = Unread()  # texts that were encoded

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
        runtime = start(device, precision)
        model = BertModel.from_pretrained(str(folder)).to(runtime.device)
        if pooling == "auto" and (reason := why_not_minbert(folder)) is not None:
            raise InputError(f"{reason}; `load_encoder` computes this, and a pooling of your own ignores it")
        if not keep_layers:
            model = for_inference(model, runtime)
        tokenizer = load_tokenizer(str(folder))
        max_length = min(stored_max_length(folder) or tokenizer.max_length, tokenizer.max_length)
        return cls(model, tokenizer, resolve_pooling(pooling, folder), runtime, max_length)

    @property
    def name(self) -> str:
        """The checkpoint's folder, as errors name it."""
        return self.tokenizer.source

    @property
    def identity(self) -> str:
        """Hash (64 hex digits) of the folder's files, pooling and length, which decide an embedding up to rounding."""
        decisive = (file_hashes(Path(self.name)), self.pooling, self.max_length)
        return sha256(repr(decisive).encode()).hexdigest()

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

        Returns:
            [sentences, hidden] fp32, in the order given; [hidden] for one string.
        """
        check_dimensions(dimensions, width := self.model.config.hidden_size, self.name)
        texts: Sequence[Any] = [sentences] if isinstance(sentences, str) else sentences
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                value = f"{quote(text)} ({type(text).__name__})"
                raise InputError(f"sentence {number} is {value}; expected text (sentences are counted from 0)")
        texts = texts if prompt is None else prompted(prompt, texts)
        encoded = self.tokenizer.encode_and_count(texts, self.max_length if max_length is None else max_length)
        self.unread.add(len(texts), encoded.unread)
        tokens = encoded.ids
        on_cpu = self.runtime.device.type == "cpu"

        def embed(rows: RowNumbers) -> Tensor:
            batch = PackedBatch.from_sequences([tokens[row] for row in rows], unpadded=on_cpu)
            batch = batch.to(self.runtime.device)
            pooled = pool(self.model.forward_packed(batch), batch, self.pooling)[:, :dimensions]
            return torch.nn.functional.normalize(pooled) if normalize else pooled

        embeddings = np.empty((0, dimensions or width), np.float32)
        if tokens:
            lengths = np.array([len(ids) for ids in tokens], np.int64)
            with RowsDone(len(tokens), "sentences") if show_progress else nullcontext() as shown:
                on_rows = shown.add if shown else untold
                embeddings = compute_in_batches(lengths, embed, self.runtime, batch_size, on_rows)
        found = embeddings[0] if isinstance(sentences, str) else embeddings
        return torch.from_numpy(found).to(self.runtime.device) if convert_to_tensor else found


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
        if (reason := why_not_minbert(folder)) is not None:
            return SentenceTransformersEncoder(str(name), revision, pooling, device, precision, reason)
    return SentenceEncoder.load(name, revision, pooling, device, precision)


def for_inference(model: BertModel, runtime: Runtime) -> BertModel:
    """The encoder with weights that are rounded to bf16 once: autocast would do so in every call, with the same result.

    On a processor, it then has linear maps that cannot be trained. In fp32 it stays as it is.
    """
    if runtime.precision == "bf16" and runtime.device.type == "cpu" and processor_has_bf16():
        return Bf16Model(model)
    for layer in model.modules() if runtime.precision == "bf16" else ():
        if isinstance(layer, nn.Linear):
            layer.to(torch.bfloat16)
    return model

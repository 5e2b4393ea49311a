"""SentenceEncoder: sentences in, embeddings out, from any checkpoint or run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.artefacts import locate_model
from multitask.config import Device, Pooling, Precision
from multitask.datasets.batching import Rows
from multitask.inference import for_all_rows
from multitask.model import resolve_pooling, stored_max_length
from multitask.pooling import PoolingMethod, pool
from multitask.runtime import Runtime, start


class SentenceEncoder:
    """An encoder with its tokenizer and pooling.

    Args:
        model: the encoder, in eval mode on the runtime's device.
        tokenizer: its tokenizer.
        pooling: first token or mean.
        runtime: device and precision.
        max_length: the model was trained on sentences cut to so many tokens; None for the encoder's limit.
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
        self.max_length = max_length

    @classmethod
    def load(
        cls,
        name: str | Path,
        revision: str | None = None,
        pooling: Pooling = "auto",
        device: Device = "auto",
        precision: Precision = "auto",
    ) -> Self:
        """Load from a run's folder, a model folder, `all-minilm-l6-v2` or a hub id.

        Raises:
            InputError: no such model.
        """
        folder = locate_model(name, revision)
        runtime = start(device, precision)
        model = BertModel.from_pretrained(str(folder)).to(runtime.device)
        return cls(
            model, load_tokenizer(str(folder)), resolve_pooling(pooling, folder), runtime, stored_max_length(folder)
        )

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        max_length: int | None = None,
        show_progress: bool = False,
    ) -> NDArray[np.float32]:
        """Embed sentences.

        Args:
            sentences: any number of texts.
            batch_size: at most so many sentences at once; by default batches are filled by tokens.
            normalize: scale every embedding to length 1.
            max_length: cut to so many tokens; when left out as in training, or the encoder's limit.
            show_progress: show a progress bar when standard error is a terminal.

        Returns:
            [sentences, hidden] fp32, in the order given.

        Raises:
            InputError: one string instead of a list of them.
        """
        if isinstance(sentences, str):
            raise InputError("encode takes a list of sentences; wrap a single one in a list")
        if len(sentences) == 0:  # an array has no truth value
            return np.empty((0, self.model.config.hidden_size), np.float32)
        tokens = self.tokenizer.encode(sentences, max_length or self.max_length)

        def embed(rows: Rows) -> Tensor:
            batch = PackedBatch.from_sequences([tokens[row] for row in rows]).to(self.runtime.device)
            pooled = pool(self.model.forward_packed(batch), batch, self.pooling)
            return torch.nn.functional.normalize(pooled) if normalize else pooled

        lengths = np.array([len(ids) for ids in tokens], np.int64)
        return for_all_rows(lengths, embed, self.runtime, batch_size, show_progress)

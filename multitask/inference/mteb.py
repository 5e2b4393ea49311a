"""An encoder as a model of MTEB (arXiv 2210.07316), so that MTEB's tasks can evaluate it.

Needs `pip install -e ".[mteb]"`. For example:

import mteb
from multitask.models.sentence_encoder import load_encoder
from multitask.inference.mteb import MtebEncoder

mteb.evaluate(MtebEncoder(load_encoder("runs/..."), "my-encoder"), mteb.get_tasks(["STSBenchmark"]))
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multitask.inference.search import Embeddings, similarity
from multitask.models.sentence_encoder import Embedder

ORGANISATION = "minbert-multitask"  # MTEB's names are organisation/model


class MtebEncoder:
    """An encoder with the methods of `mteb.EncoderProtocol` (MTEB 2). Sentences are embedded without prompts.

    Args:
        encoder: any that `load_encoder` returns.
        name: of the model in MTEB's results.
    """

    def __init__(self, encoder: Embedder, name: str) -> None:
        self.encoder = encoder
        self.name = name if "/" in name else f"{ORGANISATION}/{name}"

    @property
    def mteb_model_meta(self) -> Any:
        """The model's name and revision, by which MTEB stores results. The revision is the encoder's identity."""
        from mteb.models import ModelMeta

        return ModelMeta.create_empty({"name": self.name, "revision": self.encoder.identity[:40]})

    def encode(
        self,
        inputs: Iterable[Mapping[str, Sequence[str]]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,  # MTEB passes a batch size and more; here, batches are filled by tokens
    ) -> NDArray[np.float32]:
        """Embed the sentences of all batches, [sentences, hidden] fp32."""
        sentences = [sentence for batch in inputs for sentence in batch["text"]]
        return self.encoder.encode(sentences, show_progress=bool(kwargs.get("show_progress_bar")))

    def similarity(self, embeddings1: Embeddings, embeddings2: Embeddings) -> Tensor:
        """Cosines of every row with every row, [first, hidden] and [second, hidden] -> [first, second]."""
        return torch.from_numpy(similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Embeddings, embeddings2: Embeddings) -> Tensor:
        """Cosine of each row with the row of the same number, [rows, hidden] and [rows, hidden] -> [rows]."""
        return torch.cosine_similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2), dim=-1)

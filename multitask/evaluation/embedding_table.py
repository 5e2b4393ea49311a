"""Embeddings by sentence: each different sentence is embedded once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.models.sentence_encoder import Embedder

Vectors = NDArray[np.float32]  # [sentences, dim]


@dataclass(frozen=True)
class EmbeddingTable:
    """Embeddings by sentence."""

    rows: Mapping[str, int]  # the row of each sentence
    vectors: Vectors

    @classmethod
    def of(cls, encoder: Embedder, sentences: Iterable[str]) -> "EmbeddingTable":
        """Embed sentences, which may repeat; shows progress. Raises InputError if embeddings are not finite."""
        different = list(dict.fromkeys(sentences))
        vectors = encoder.encode(different, show_progress=True)
        if not np.isfinite(vectors).all():
            raise InputError(f"{encoder.name}: the encoder's embeddings are not finite; its weights are damaged")
        return cls({sentence: row for row, sentence in enumerate(different)}, vectors)

    def __getitem__(self, sentences: Sequence[str]) -> Vectors:
        """Embeddings of sentences that are in the table, [sentences, dim]."""
        return self.vectors[[self.rows[sentence] for sentence in sentences]]

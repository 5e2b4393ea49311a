"""Exact search by cosine: similarity matrices, the nearest neighbours in a corpus, the most similar pairs.

Embeddings are numpy arrays or torch tensors [rows, hidden]. Vectors may have any length, and one vector [hidden] is
one row. Only `similarity` computes a whole matrix. The other functions compute it in chunks, so a memory-mapped array
is never read whole. Every function computes on the device of its first argument.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from minbert.errors import InputError

Embeddings = NDArray[np.floating[Any]] | Tensor

CHUNK = 1024  # rows and columns of a part of the matrix, which is then a few MiB


class Neighbours(NamedTuple):
    """The rows of a corpus that are nearest to each query, nearest first."""

    scores: NDArray[np.float32]  # [queries, k] cosines
    indices: NDArray[np.int64]  # [queries, k] rows of the corpus


class SentencePair(NamedTuple):
    """Two rows and their cosine; `first` is the smaller row number."""

    score: float
    first: int
    second: int


def similarity(first: Embeddings, second: Embeddings) -> NDArray[np.float32]:
    """Cosines of every row with every row, [first, hidden] and [second, hidden] -> [first, second].

    The cosine with a zero vector is 0. Raises InputError for embeddings of different sizes.
    """
    first, second = _rows(first), _rows(second)
    _check_sizes(first, second)
    rows = _unit(first)
    return (rows @ _unit(second).T.to(rows.device)).cpu().numpy()


def search(queries: Embeddings, corpus: Embeddings, top_k: int = 10, chunk: int = CHUNK) -> Neighbours:
    """The `top_k` rows of the corpus with the highest cosine to each query, or all rows if the corpus has fewer.

    `chunk` queries are compared with as many rows of the corpus at a time. Raises InputError for embeddings of
    different sizes, or a `top_k` below 1.
    """
    queries, corpus = _rows(queries), _rows(corpus)
    _check_sizes(queries, corpus)
    k = min(_at_least_one("top_k", top_k), len(corpus))
    parts = [(np.empty((0, k), np.float32), np.empty((0, k), np.int64))]
    for start in range(0, len(queries), chunk):
        asked = _unit(queries[start : start + chunk])
        scores, indices = asked.new_empty(len(asked), 0), asked.new_empty((len(asked), 0), dtype=torch.int64)
        for offset, part in _chunks(corpus, chunk):
            found = (asked @ part.T.to(asked.device)).topk(min(k, len(part)))  # [queries, k]
            scores, indices = torch.cat([scores, found.values], 1), torch.cat([indices, found.indices + offset], 1)
            scores, best = scores.topk(min(k, scores.shape[1]))
            indices = indices.gather(1, best)
        parts.append((scores.cpu().numpy(), indices.cpu().numpy()))
    return Neighbours(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def paraphrase_mining(embeddings: Embeddings, max_pairs: int = 10_000, chunk: int = CHUNK) -> list[SentencePair]:
    """The pairs of different rows with the highest cosines, best first; each pair once.

    `chunk` rows are compared with as many at a time. Raises InputError for a `max_pairs` below 1.
    """
    embeddings = _rows(embeddings)
    most = _at_least_one("max_pairs", max_pairs)
    scores, pairs = torch.empty(0), torch.empty(0, 2, dtype=torch.int64)
    lowest = -torch.inf  # once there are enough pairs, a new one must have a higher cosine
    for start, rows in _chunks(embeddings, chunk):
        for offset, others in _chunks(embeddings, chunk, start):
            part = (rows @ others.T).cpu()  # [rows, others]
            if start == offset:
                part.masked_fill_(torch.ones_like(part, dtype=torch.bool).tril(), -torch.inf)
            places = (part > lowest).nonzero()  # [found, 2]
            scores = torch.cat([scores, part[places.unbind(1)]])
            pairs = torch.cat([pairs, places + torch.tensor([start, offset])])
            if len(scores) > most:
                scores, best = scores.topk(most)
                pairs, lowest = pairs[best], float(scores[-1])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -scores))
    return [SentencePair(*pair) for pair in zip(scores[order].tolist(), *pairs[order].T.tolist(), strict=True)]


def _rows(embeddings: Embeddings) -> Embeddings:
    return embeddings[None] if embeddings.ndim == 1 else embeddings


def _check_sizes(first: Embeddings, second: Embeddings) -> None:
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"embeddings of size {first.shape[1]} and {second.shape[1]} cannot be compared; use one encoder for both"
        )


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name} is {value}; expected at least 1")
    return value


def _chunks(embeddings: Embeddings, size: int, first: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Chunks of `size` rows, starting at row `first`: the number of a chunk's first row, and its rows of length 1."""
    for start in range(first, len(embeddings), size):
        yield start, _unit(embeddings[start : start + size])


def _unit(embeddings: Embeddings) -> Tensor:
    """Rows scaled to length 1, fp32, on the same device."""
    rows = embeddings if isinstance(embeddings, Tensor) else torch.tensor(embeddings)
    return normalize(rows.float())

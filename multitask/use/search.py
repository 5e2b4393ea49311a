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
from torch.nn.functional import normalize, pad

from minbert.errors import InputError
from multitask.data.examples import RowNumbers

EmbeddingMatrix = NDArray[np.floating[Any]] | Tensor

CHUNK = 1024  # rows and columns of a part of the matrix, which is then a few MiB
SEARCHED = 4096  # queries and rows of the corpus that are compared at a time: 64 MiB of cosines


class Neighbours(NamedTuple):
    """The rows of a corpus that are nearest to each query, nearest first."""

    scores: NDArray[np.float32]  # [queries, k] cosines
    indices: NDArray[np.int64]  # [queries, k] rows of the corpus


class SentencePair(NamedTuple):
    """Two rows and their cosine; `first` is the smaller row number."""

    score: float
    first: int
    second: int


def similarity(first: EmbeddingMatrix, second: EmbeddingMatrix) -> NDArray[np.float32]:
    """Cosines of every row with every row, [first, hidden] and [second, hidden] -> [first, second].

    The cosine with a zero vector is 0. Raises InputError for embeddings of different sizes.
    """
    first, second = _rows(first), _rows(second)
    _check_sizes(first, second)
    rows = _unit(first)
    return (rows @ _unit(second).T.to(rows.device)).cpu().numpy()


def search(
    queries: EmbeddingMatrix,
    corpus: EmbeddingMatrix,
    top_k: int = 10,
    chunk: int = SEARCHED,
    among: RowNumbers | None = None,
) -> Neighbours:
    """The `top_k` rows of the corpus with the highest cosine to each query, or all rows if the corpus has fewer.

    Rows with equal cosines come in their order. `chunk` queries are compared with as many rows of the corpus at a time.
    `among` are the rows to search, in order; None: all. Raises InputError for embeddings of different sizes, or a
    `top_k` below 1.
    """
    queries, corpus = _rows(queries), _rows(corpus)
    _check_sizes(queries, corpus)
    parts = (_nearest(asked, corpus, top_k, chunk, among) for _, asked in _chunks(queries, chunk))
    return Neighbours(*map(np.concatenate, zip(*parts, strict=True)))


def _nearest(queries: Tensor, corpus: Any, k: int, size: int, among: RowNumbers | None) -> Neighbours:
    """The k rows of the corpus with the highest cosines to each query [queries, hidden], found `size` rows at a time.

    Equal rows need equal cosines. A product rounds in a way that depends on its shape, and on the place of what is left
    over from multiples of a few columns. So all blocks have one size, and zeros fill up the columns.
    """
    count = len(corpus) if among is None else len(among)
    k = min(_at_least_one("top_k", k), count)
    best = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for start in range(0, count, size):
        begin = max(0, min(start, count - size))
        rows = _unit(corpus[begin : start + size] if among is None else corpus[among[begin : start + size]])
        cosines = queries @ pad(rows, (0, 0, 0, -len(rows) % 64)).T.to(queries.device)
        scores, columns = _highest(cosines[:, start - begin : len(rows)], k)
        joined = torch.cat([best[0].to(scores), scores], 1), torch.cat([best[1], columns + start], 1)
        scores, columns = _highest(joined[0], k)  # of equal scores, the earlier chunk's
        best = scores, joined[1].gather(1, columns)
    found = best[1].cpu().numpy()
    return Neighbours(best[0].float().cpu().numpy(), found if among is None else among[found])


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores of each row and their columns, highest first; equal ones in the order of columns."""
    k = min(k, scores.shape[1])
    values, columns = scores.topk(min(k + 1, scores.shape[1]))
    if 0 < k < values.shape[1]:
        tied = values[:, k - 1] == values[:, k]  # of equal scores, topk takes any
        columns = columns[:, :k]
        columns[tied] = scores[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def paraphrase_mining(embeddings: EmbeddingMatrix, max_pairs: int = 10_000, chunk: int = CHUNK) -> list[SentencePair]:
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


def _rows(embeddings: EmbeddingMatrix) -> EmbeddingMatrix:
    return embeddings[None] if embeddings.ndim == 1 else embeddings


def _check_sizes(first: EmbeddingMatrix, second: EmbeddingMatrix) -> None:
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"embeddings of size {first.shape[1]} and {second.shape[1]} cannot be compared; use one encoder for both"
        )


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{name} is {value}; expected at least 1")
    return value


def _chunks(embeddings: EmbeddingMatrix, size: int, first: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Chunks of `size` rows, starting at row `first`: the number of a chunk's first row, and its rows of length 1."""
    for start in range(first, max(len(embeddings), 1), size):
        yield start, _unit(embeddings[start : start + size])


def _unit(embeddings: EmbeddingMatrix) -> Tensor:
    """Rows scaled to length 1, fp32, on the same device."""
    rows = embeddings if isinstance(embeddings, Tensor) else torch.tensor(embeddings)
    return normalize(rows.float())

"""Retrieval scores: how high an encoder ranks the sentences that mean the same as a query, by cosine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multitask.evaluation.embedding_cache import EmbeddingTable
from multitask.evaluation.retrieval_sets import RetrievalData
from multitask.evaluation.sts_scores import unit_vectors

CUT = 10
"""Ranks that nDCG counts."""
QUERIES_AT_ONCE = 256
DIGITS = 12
"""Cosines are rounded to these. Later digits depend on the order of summation, even for equal vectors."""


@dataclass(frozen=True)
class RetrievalScores:
    """Means over queries, each from 0 to 1."""

    # normalised discounted cumulative gain of the first ten documents, of binary relevance (Järvelin & Kekäläinen
    # 2002)
    ndcg: float
    mrr: float  # reciprocal rank of the first relevant document (Voorhees 1999)


def query_scores(data: RetrievalData, table: EmbeddingTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nDCG at 10 and reciprocal rank, [queries] each. Of equal cosines, irrelevant documents rank first."""
    vectors = unit_vectors(table[data.documents])
    ranks: list[NDArray[np.int64]] = []
    for start in range(0, len(data.queries), QUERIES_AT_ONCE):
        block = data.queries[start : start + QUERIES_AT_ONCE]
        similarities = (vectors[block] @ vectors.T).round(DIGITS)
        similarities[np.arange(len(block)), block] = -np.inf  # a query does not find itself
        for row, relevant in zip(similarities, data.relevant[start:], strict=False):
            ranks.append(_ranks(row, relevant))
    return np.array([_ndcg(places) for places in ranks]), np.array([1 / places[0] for places in ranks])


def _ranks(similarities: NDArray[np.float64], relevant: Sequence[int]) -> NDArray[np.int64]:
    """Ranks of the relevant documents, from 1, sorted. Irrelevant documents of equal similarity come first."""
    found = np.sort(similarities[list(relevant)])[::-1]
    others = np.sort(np.delete(similarities, list(relevant)))
    before = len(others) - np.searchsorted(others, found, side="left")
    return np.asarray(before + np.arange(1, len(found) + 1))


def _ndcg(ranks: NDArray[np.int64]) -> float:
    gains = 1 / np.log2(1 + ranks[ranks <= CUT])
    best = 1 / np.log2(1 + np.arange(1, min(len(ranks), CUT) + 1))
    return float(gains.sum() / best.sum())


def retrieval_scores(ndcg: NDArray[np.float64], reciprocal_ranks: NDArray[np.float64]) -> RetrievalScores:
    """Means of the queries' scores, [queries] each."""
    return RetrievalScores(float(ndcg.mean()), float(reciprocal_ranks.mean()))

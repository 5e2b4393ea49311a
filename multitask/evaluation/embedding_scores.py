"""How well cosines of embeddings agree with people's similarity scores, and rank sentences of the same meaning.

The protocol of similarity tasks (STS) is that of Reimers & Gurevych (2019) and SimCSE (Gao et al. 2021, arXiv
2104.08821, appendix B): no regression on top of the embeddings, and the Spearman correlation over the pairs of all
sub-sets together ("all"). We also compute SentEval's own "mean" and "weighted mean" over the sub-sets, and Pearson
correlations. Correlations are NaN if all cosines or all gold scores are equal, but for rounding.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multitask.evaluation.embedding_table import EmbeddingTable, Vectors
from multitask.evaluation.suite_data import RetrievalData
from multitask.tasks.metrics import correlation_metrics

CUT = 10
"""Ranks that nDCG counts."""
QUERIES_AT_ONCE = 256
DIGITS = 12
"""Cosines that rank are rounded to these. Later digits depend on the order of summation, even for equal vectors."""


def unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    """Vectors [n, dim] scaled to length 1, in fp64 so that nearly equal cosines keep their order; 0 stays 0."""
    precise = vectors.astype(np.float64)
    length = np.linalg.norm(precise, axis=-1, keepdims=True)
    return precise / np.where(length == 0, 1, length)


def cosines(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Cosine of each pair's embeddings, [pairs]; 0 if either is a zero vector."""
    return np.einsum("nd,nd->n", unit_vectors(first), unit_vectors(second))


def sts_scores(
    similarities: NDArray[np.float64], gold: NDArray[np.float64], subsets: NDArray[np.str_]
) -> dict[str, dict[str, Any]]:
    """Spearman and Pearson correlations of similarities with gold scores, [pairs] each.

    Returns:
        `all`, over all pairs, the score that papers report; `mean` and `weighted_mean` (by the number of pairs) over
        sub-sets; and `subsets`, the correlations of each.
    """
    measures = ("spearman", "pearson")

    def correlations(rows: NDArray[Any] | slice) -> dict[str, float]:
        found = correlation_metrics(similarities[rows], gold[rows], unit=1)
        return {of: found[of] for of in measures}

    def average(weights: Sequence[int] | None) -> dict[str, float]:
        return {of: float(np.average([part[of] for part in each.values()], weights=weights)) for of in measures}

    parts = {str(name): np.flatnonzero(subsets == name) for name in dict.fromkeys(subsets)}
    each = {name: correlations(rows) for name, rows in parts.items()}
    return {
        "all": correlations(slice(None)),
        "mean": average(None),
        "weighted_mean": average([len(rows) for rows in parts.values()]),
        "subsets": each,
    }


def query_scores(data: RetrievalData, table: EmbeddingTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """NDCG at 10 and reciprocal rank of each query, [queries] each, from 0 to 1.

    Normalised discounted cumulative gain of the first ten documents is that of binary relevance (Järvelin & Kekäläinen
    2002), and the rank is that of the first relevant document (Voorhees 1999). Of equal cosines, irrelevant documents
    rank first.
    """
    vectors = unit_vectors(table[data.documents])
    ranks: list[NDArray[np.int64]] = []
    for start in range(0, len(data.queries), QUERIES_AT_ONCE):
        block = data.queries[start : start + QUERIES_AT_ONCE]
        similarities = (vectors[block] @ vectors.T).round(DIGITS)
        similarities[np.arange(len(block)), block] = -np.inf  # a query does not find itself
        for row, relevant in zip(similarities, data.relevant[start:], strict=False):
            found = np.sort(row[list(relevant)])[::-1]
            others = np.sort(np.delete(row, list(relevant)))
            before = len(others) - np.searchsorted(others, found, side="left")
            ranks.append(before + np.arange(1, len(found) + 1))
    return np.array([_ndcg(places) for places in ranks]), np.array([1 / places[0] for places in ranks])


def _ndcg(ranks: NDArray[np.int64]) -> float:
    gains = 1 / np.log2(1 + ranks[ranks <= CUT])
    best = 1 / np.log2(1 + np.arange(1, min(len(ranks), CUT) + 1))
    return float(gains.sum() / best.sum())

"""STS scores (semantic textual similarity): how well cosines of embeddings agree with people's similarity scores.

The protocol is that of Reimers & Gurevych (2019) and SimCSE (Gao et al. 2021, arXiv 2104.08821, appendix B): no
regression on top of the embeddings, and the Spearman correlation over the pairs of all sub-sets together ("all"). We
also compute SentEval's own "mean" and "weighted mean" over the sub-sets, and Pearson correlations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multitask.evaluation.embedding_cache import Vectors
from multitask.tasks.metrics import correlation_metrics


@dataclass(frozen=True)
class Correlation:
    """Rank and linear correlation of cosines and gold scores; NaN if all cosines or all gold scores are equal."""

    spearman: float
    pearson: float


@dataclass(frozen=True)
class StsScores:
    """Correlations of one task."""

    all: Correlation  # over the pairs of all sub-sets together, the score that papers report
    mean: Correlation  # over sub-sets
    weighted_mean: Correlation  # over sub-sets, weighted by their numbers of pairs
    subsets: dict[str, Correlation]


def unit_vectors(vectors: Vectors) -> NDArray[np.float64]:
    """Vectors [n, dim] scaled to length 1, in fp64 so that nearly equal cosines keep their order; 0 stays 0."""
    precise = vectors.astype(np.float64)
    length = np.linalg.norm(precise, axis=-1, keepdims=True)
    return precise / np.where(length == 0, 1, length)


def cosines(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Cosine of each pair's embeddings, [pairs]; 0 if either is a zero vector."""
    return np.einsum("nd,nd->n", unit_vectors(first), unit_vectors(second))


def sts_scores(similarities: NDArray[np.float64], gold: NDArray[np.float64], subsets: NDArray[np.str_]) -> StsScores:
    """Correlations of similarities with gold scores.

    Args:
        similarities: [pairs].
        gold: [pairs].
        subsets: the sub-set of each pair, [pairs].
    """
    parts = {str(name): np.flatnonzero(subsets == name) for name in dict.fromkeys(subsets)}
    each = {name: _correlation(similarities[rows], gold[rows]) for name, rows in parts.items()}
    sizes = [len(rows) for rows in parts.values()]
    return StsScores(
        all=_correlation(similarities, gold),
        mean=_average(list(each.values()), None),
        weighted_mean=_average(list(each.values()), sizes),
        subsets=each,
    )


def _correlation(similarities: NDArray[np.float64], gold: NDArray[np.float64]) -> Correlation:
    return Correlation(**correlation_metrics(similarities, gold))


def _average(parts: Sequence[Correlation], weights: Sequence[int] | None) -> Correlation:
    spearman, pearson = ([getattr(part, name) for part in parts] for name in ("spearman", "pearson"))
    return Correlation(float(np.average(spearman, weights=weights)), float(np.average(pearson, weights=weights)))

"""The sentences that are nearest to a query, and a map of sentences: their embeddings' two principal components."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.inference.search import search

MOST_POINTS = 400
NEAREST = 10


@dataclass(frozen=True)
class Corpus:
    """Sentences to search in.

    Args:
        sentences: different texts.
        labels: one for each sentence; empty texts if they have none.
    """

    sentences: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """A plane through embeddings of length 1.

    Args:
        points: coordinates of the first sentences, [points, 2].
        query: coordinates of the query, [2].
        variance: the share of the sentences' variance along each axis.
    """

    points: NDArray[np.float64]
    query: NDArray[np.float64]
    variance: tuple[float, float]


def nearest(query: NDArray[np.float32], embeddings: NDArray[np.float32]) -> list[tuple[int, float]]:
    """The rows nearest to a query, [hidden], with their cosines, nearest first. Embeddings: [sentences, hidden]."""
    found = search(query, embeddings, NEAREST)
    return list(zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True))


def principal_map(query: NDArray[np.float32], embeddings: NDArray[np.float32]) -> Map:
    """The first sentences and the query in the plane of the two principal components of these sentences.

    Args:
        query: [hidden].
        embeddings: [sentences, hidden].

    Raises:
        InputError: fewer than 3 sentences.
    """
    from sklearn.decomposition import PCA

    if len(embeddings) < 3:
        raise InputError(f"{len(embeddings)} different sentences; expected at least 3 for a map")
    rows = _unit(embeddings[:MOST_POINTS])
    with np.errstate(invalid="ignore"):  # the shares are NaN if all sentences are the same point
        plane = PCA(2, svd_solver="full").fit(rows)
    first, second = np.nan_to_num(plane.explained_variance_ratio_).tolist()
    return Map(plane.transform(rows), plane.transform(_unit(query[None]))[0], (first, second))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)

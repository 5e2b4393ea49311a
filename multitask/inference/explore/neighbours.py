"""The sentences that are nearest to a query, and a map of sentences: two principal components, or UMAP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.inference.search import search

MOST_POINTS = 400
NEAREST = 10
UMAP_NEIGHBOURS = 15  # its default

Method = Literal["pca", "umap"]
Points = NDArray[np.float64]


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
    """The plane in which sentences are shown.

    Args:
        points: coordinates of the first sentences, [points, 2].
        place: maps a query, [hidden], to its coordinates, [2].
        variance: the share of the sentences' variance along each axis; None if the axes have no meaning.
    """

    points: Points
    place: Callable[[NDArray[np.float32]], Points]
    variance: tuple[float, float] | None


def nearest(query: NDArray[np.float32], embeddings: NDArray[np.float32]) -> list[tuple[int, float]]:
    """The rows nearest to a query, [hidden], with their cosines, nearest first. Embeddings: [sentences, hidden]."""
    found = search(query, embeddings, NEAREST)
    return list(zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True))


def draw_map(embeddings: NDArray[np.float32], method: Method) -> Map:
    """The first sentences in a plane, by their embeddings scaled to length 1. A second call gives the same bits.

    Args:
        embeddings: [sentences, hidden].
        method: `pca` for the plane of the two principal components; `umap` for a plane that keeps neighbours together,
            but neither distances nor directions (McInnes et al. 2018, arXiv 1802.03426).

    Raises:
        InputError: fewer than 3 sentences, or umap-learn is not installed.
    """
    if len(embeddings) < 3:
        raise InputError(f"{len(embeddings)} different sentences; expected at least 3 for a map")
    return (_principal_map if method == "pca" else _umap)(_unit(embeddings[:MOST_POINTS]))


def _principal_map(rows: Points) -> Map:
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # the shares are NaN if all sentences are the same point
        plane = PCA(2, svd_solver="full").fit(rows)
    first, second = np.nan_to_num(plane.explained_variance_ratio_).tolist()
    return Map(plane.transform(rows), lambda query: plane.transform(_unit(query[None]))[0], (first, second))


def _umap(rows: Points) -> Map:
    try:
        from umap import UMAP
    except ModuleNotFoundError:
        raise InputError('UMAP needs umap-learn; install with: pip install -e ".[explore]"') from None
    if not np.ptp(rows, axis=0).any():  # of one point, UMAP's start is NaN
        return Map(np.zeros((len(rows), 2)), lambda _: np.zeros(2), None)
    # A seed allows one thread only. The spectral start, the default, needs more than a handful of sentences.
    plane = UMAP(n_neighbors=min(UMAP_NEIGHBOURS, len(rows) - 1), init="pca", random_state=0, n_jobs=1)
    return Map(plane.fit_transform(rows), lambda query: plane.transform(_unit(query[None]))[0], None)


def _unit(rows: NDArray[np.float32]) -> Points:
    wide = rows.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)

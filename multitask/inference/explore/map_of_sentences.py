"""A map of sentences: two principal components, or UMAP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from minbert.errors import InputError, install_with

MOST_POINTS = 400
UMAP_NEIGHBOURS = 15  # its default

Method = Literal["pca", "umap"]
Points = NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """The plane in which sentences are shown."""

    points: Points  # of the first sentences, [points, 2]
    place: Callable[[NDArray[np.float32]], Points]  # a query, [hidden] -> [2]
    variance: float | None  # the share of the sentences' variance in the plane; None if distances have no meaning


def draw_map(embeddings: NDArray[np.float32], method: Method) -> Map:
    """The first sentences in a plane, by their embeddings scaled to length 1. A second call gives the same bits.

    `pca` gives the plane of the two principal components; `umap` one that keeps neighbours together, but neither
    distances nor directions (McInnes et al. 2018, arXiv 1802.03426). Raises InputError for fewer than 3 sentences, or
    if umap-learn is not installed.
    """
    if len(embeddings) < 3:
        raise InputError(f"{len(embeddings)} different sentences; expected at least 3 for a map")
    rows = _unit(embeddings[:MOST_POINTS])
    if not np.ptp(rows, axis=0).any():  # all sentences are one point, which has no directions
        return Map(np.zeros((len(rows), 2)), lambda _: np.zeros(2), 0.0)
    plane = PCA(2, svd_solver="full") if method == "pca" else _umap(len(rows))
    points = plane.fit_transform(rows)
    variance = float(plane.explained_variance_ratio_.sum()) if method == "pca" else None
    return Map(points, lambda query: plane.transform(_unit(query[None]))[0], variance)


def _umap(count: int) -> Any:
    try:
        from umap import UMAP
    except ModuleNotFoundError:
        raise InputError(f"UMAP needs umap-learn; {install_with('explore')}") from None
    # A seed allows one thread only. The spectral start, the default, needs more than a handful of sentences.
    return UMAP(n_neighbors=min(UMAP_NEIGHBOURS, count - 1), init="pca", random_state=0, n_jobs=1)


def _unit(rows: NDArray[np.float32]) -> Points:
    wide = rows.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)

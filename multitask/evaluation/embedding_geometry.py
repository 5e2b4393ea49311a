"""Geometry of embeddings on the unit sphere: how close pairs of like meaning are, and how the whole set fills space.

Alignment and uniformity are those of Wang & Isola (2020), on the sentences of a similarity task as SimCSE takes them
(Gao et al. 2021, footnote 3): pairs with a high gold score, here of 4 and more, are positives, and all sentences
count, here each different one once. Anisotropy is given as the mean cosine of two sentences (Ethayarajh 2019) and as
the largest eigenvalue's share; the effective rank is that of Roy & Vetterli (2007). The spectrum is of the vectors as
they stand, not centred, so that a direction which all of them share counts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multitask.evaluation.embedding_cache import EmbeddingTable
from multitask.evaluation.senteval_files import SimilarityData
from multitask.evaluation.sts_scores import unit_vectors
from multitask.objectives.alignment_uniformity import alignment
from multitask.tasks.kinds import POSITIVE

BANDS = ("0-1", "1-2", "2-3", "3-4", "4-5")  # of gold scores; the upper end belongs to the next band, 5 to the last
BIN_EDGES = np.linspace(-1, 1, 41)
CHUNK = 1024

Units = NDArray[np.float64]  # [sentences, dim], each of length 1


@dataclass(frozen=True)
class Band:
    """Cosines of the pairs in one band of gold scores.

    Args:
        pairs: how many.
        mean: of their cosines; None without pairs, as is the deviation.
        deviation: of their cosines.
        histogram: pairs in each bin of width 0.05 from -1 to 1.
    """

    pairs: int
    mean: float | None
    deviation: float | None
    histogram: list[int]


@dataclass(frozen=True)
class Geometry:
    """Measures of one task's embeddings.

    Args:
        alignment: mean squared distance of positive pairs, lower is closer; None without any.
        uniformity: logarithm of the mean Gaussian potential of two sentences; lower is more even.
        mean_cosine: of two different sentences; 0 where directions are spread evenly.
        top_eigenvalue_share: of the second-moment matrix; 1 / dim where all directions are alike.
        effective_rank: exponential of the entropy of the singular values, 1 to dim.
        bands: by gold score.
    """

    alignment: float | None
    uniformity: float
    mean_cosine: float
    top_eigenvalue_share: float
    effective_rank: float
    bands: dict[str, Band]


def geometry(data: SimilarityData, table: EmbeddingTable) -> Geometry:
    """Geometry of a task's sentences, two different ones at least, and of its pairs."""
    first, second = (unit_vectors(table[column]) for column in data.columns)
    sentences = unit_vectors(table[list(dict.fromkeys([*data.columns[0], *data.columns[1]]))])
    positive = data.gold >= POSITIVE
    singular_values = np.linalg.svd(sentences, compute_uv=False)
    return Geometry(
        alignment=_alignment(first[positive], second[positive]) if positive.any() else None,
        uniformity=uniformity_in_chunks(sentences),
        mean_cosine=mean_cosine(sentences),
        top_eigenvalue_share=float(singular_values[0] ** 2 / np.square(singular_values).sum()),
        effective_rank=effective_rank(singular_values),
        bands=similarity_bands(np.einsum("nd,nd->n", first, second), data.gold),
    )


def _alignment(first: Units, second: Units) -> float:
    return alignment(torch.from_numpy(first), torch.from_numpy(second)).item()


def uniformity_in_chunks(sentences: Units, t: float = 2.0) -> float:
    """Log mean_{i<j} e^{-t‖x_i − x_j‖²} (Wang & Isola 2020, section 4.1.2), a stretch of rows at a time."""
    count, total = len(sentences), 0.0
    vectors = sentences.astype(np.float32)
    for start in range(0, count, CHUNK):
        later = vectors[start:] @ vectors[start : start + CHUNK].T  # [rest, chunk] cosines
        total += np.tril(np.exp(2 * t * (later - 1)), k=-1).sum(dtype=np.float64)  # ‖x − y‖² = 2 − 2 x·y
    return float(np.log(total / (count * (count - 1) / 2)))


def mean_cosine(sentences: Units) -> float:
    """Mean cosine of two different rows: of all ordered pairs, which make up ‖Σx‖², less those of a row with itself."""
    count = len(sentences)
    return float((np.square(sentences.sum(0)).sum() - np.square(sentences).sum()) / (count * (count - 1)))


def effective_rank(singular_values: NDArray[np.floating[Any]]) -> float:
    """Exponential of the entropy of p_k = σ_k / Σσ (Roy & Vetterli 2007)."""
    shares = singular_values[singular_values > 0] / singular_values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def similarity_bands(similarities: NDArray[np.float64], gold: NDArray[np.float64]) -> dict[str, Band]:
    """Similarities [pairs] by their gold scores' band."""
    which = np.minimum(gold.astype(np.int64), len(BANDS) - 1)
    found = {}
    for number, name in enumerate(BANDS):
        part = similarities[which == number].clip(-1, 1)  # rounding may lead just beyond
        mean, deviation = (float(part.mean()), float(part.std())) if len(part) else (None, None)
        found[name] = Band(len(part), mean, deviation, np.histogram(part, BIN_EDGES)[0].tolist())
    return found

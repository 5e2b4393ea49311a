"""Geometry of embeddings on the unit sphere: how close sentences of equal meaning are, and how evenly all are spread.

Alignment and uniformity are defined by Wang & Isola (2020) and computed on the sentences of a similarity task as in
SimCSE (Gao et al. 2021, footnote 3): pairs with a high gold score, here 4 or more, are positives, and uniformity takes
all sentences, here each different one once. Anisotropy is measured as the mean cosine of two sentences (Ethayarajh
2019) and as the share of the largest eigenvalue. The effective rank is that of Roy & Vetterli (2007). The spectrum is
computed without centring, so that a direction which all vectors share counts.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from multitask.evaluation.embedding_scores import unit_vectors
from multitask.evaluation.embedding_table import EmbeddingTable
from multitask.objectives.alignment_uniformity import alignment
from multitask.tasks.kinds import POSITIVE

CHUNK = 1024
DIGITS = 9
"""Recorded measures are rounded to these. Later digits depend on the number of threads."""
MEASURES = ("alignment", "uniformity")
"""Measures that a training records in addition to its dev scores."""

UnitVectors = NDArray[np.float64]  # [sentences, dim], each of length 1


def geometry(
    columns: Sequence[Sequence[str]], gold: NDArray[np.floating[Any]], table: EmbeddingTable
) -> dict[str, float | None]:
    """Geometry of the sentences of pairs with gold similarities. At least two sentences must differ.

    Returns:
        `alignment`: mean squared distance of positive pairs, lower is closer; None without positive pairs.
        `uniformity`: logarithm of the mean Gaussian potential of two sentences; lower is more even.
        `mean_cosine`: of two different sentences; 0 if directions are spread evenly.
        `top_eigenvalue_share`: of the second-moment matrix; 1 / dim if all directions are equal.
        `effective_rank`: exponential of the entropy of the singular values, 1 to dim.
    """
    first, second = (unit_vectors(table[column]) for column in columns)
    sentences = unit_vectors(table[list(dict.fromkeys([*columns[0], *columns[1]]))])
    singular_values = np.linalg.svd(sentences, compute_uv=False)
    found = {
        "alignment": alignment_of_positives(first, second, gold),
        "uniformity": uniformity_in_chunks(sentences),
        "mean_cosine": mean_cosine(sentences),
        "top_eigenvalue_share": float(singular_values[0] ** 2 / np.square(singular_values).sum()),
        "effective_rank": effective_rank(singular_values),
    }
    return {name: None if value is None else round(value, DIGITS) for name, value in found.items()}


def alignment_of_positives(first: UnitVectors, second: UnitVectors, gold: NDArray[np.floating[Any]]) -> float | None:
    """Mean squared distance of the pairs with a gold score [pairs] of at least 4; None without such pairs."""
    positive = gold >= POSITIVE
    if not positive.any():
        return None
    return alignment(torch.from_numpy(first[positive]), torch.from_numpy(second[positive])).item()


def uniformity_in_chunks(sentences: UnitVectors, t: float = 2.0) -> float:
    """Log mean_{i<j} e^{-t‖x_i − x_j‖²} (Wang & Isola 2020, section 4.1.2), in chunks of rows."""
    count, total = len(sentences), 0.0
    vectors = sentences.astype(np.float32)
    for start in range(0, count, CHUNK):
        later = vectors[start:] @ vectors[start : start + CHUNK].T  # [rest, chunk] cosines
        total += np.tril(np.exp(2 * t * (later - 1)), k=-1).sum(dtype=np.float64)  # ‖x − y‖² = 2 − 2 x·y
    return float(np.log(total / (count * (count - 1) / 2)))


def mean_cosine(sentences: UnitVectors) -> float:
    """Mean cosine of two different rows. ‖Σx‖² sums the cosines of all ordered pairs, also of rows with themselves."""
    count = len(sentences)
    return float((np.square(sentences.sum(0)).sum() - np.square(sentences).sum()) / (count * (count - 1)))


def effective_rank(singular_values: NDArray[np.floating[Any]]) -> float:
    """Exponential of the entropy of p_k = σ_k / Σσ (Roy & Vetterli 2007)."""
    shares = singular_values[singular_values > 0] / singular_values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else math.nan

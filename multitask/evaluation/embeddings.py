"""Embeddings by sentence, each different one embedded once, and what is measured of them: cosines and geometry."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from minbert.config import Long
from minbert.errors import InputError
from multitask.models.sentence_encoder import Embedder
from multitask.objectives.geometry import alignment
from multitask.tasks.scores import correlation_metrics

Vectors = NDArray[np.float32]  # [sentences, dim]


@dataclass(frozen=True)
class EmbeddingTable:
    """Embeddings by sentence."""

    rows: Mapping[str, int]  # the row of each sentence
    vectors: Vectors

    @classmethod
    def of(cls, encoder: Embedder, sentences: Iterable[str], long: Long = "head") -> "EmbeddingTable":
        """Embed sentences, which may repeat; shows progress. `long` says how those with too many tokens are read.

        Raises InputError if embeddings are not finite.
        """
        different = list(dict.fromkeys(sentences))
        vectors = encoder.encode(different, show_progress=True, long=long)
        if not np.isfinite(vectors).all():
            raise InputError(f"{encoder.name}: the encoder's embeddings are not finite; its weights are damaged")
        return cls({sentence: row for row, sentence in enumerate(different)}, vectors)

    def __getitem__(self, sentences: Sequence[str]) -> Vectors:
        """Embeddings of sentences that are in the table, [sentences, dim]."""
        return self.vectors[[self.rows[sentence] for sentence in sentences]]


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
        return {measure: found[measure] for measure in measures}

    def average(weights: Sequence[int] | None) -> dict[str, float]:
        return {
            measure: float(np.average([part[measure] for part in each.values()], weights=weights))
            for measure in measures
        }

    parts = {str(name): np.flatnonzero(subsets == name) for name in dict.fromkeys(subsets)}
    each = {name: correlations(rows) for name, rows in parts.items()}
    return {
        "all": correlations(slice(None)),
        "mean": average(None),
        "weighted_mean": average([len(rows) for rows in parts.values()]),
        "subsets": each,
    }


SENTENCES_PER_CHUNK = 1024
SIMILARITY_DIGITS = 9
"""Recorded measures are rounded to these. Later digits depend on the number of threads."""
SIMILARITY_MEASURES = ("alignment", "uniformity")
"""Measures that a training records in addition to its dev scores."""

UnitVectors = NDArray[np.float64]  # [sentences, dim], each of length 1


def geometry(
    columns: Sequence[Sequence[str]], positive: NDArray[np.bool_], table: EmbeddingTable
) -> dict[str, float | None]:
    """Geometry of the sentences of pairs, of which some mean the same, [pairs]. At least two sentences must differ.

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
        "alignment": alignment_of_positives(first, second, positive),
        "uniformity": uniformity_in_chunks(sentences),
        "mean_cosine": mean_cosine(sentences),
        "top_eigenvalue_share": float(singular_values[0] ** 2 / np.square(singular_values).sum()),
        "effective_rank": effective_rank(singular_values),
    }
    return {name: None if value is None else round(value, SIMILARITY_DIGITS) for name, value in found.items()}


def alignment_of_positives(first: UnitVectors, second: UnitVectors, positive: NDArray[np.bool_]) -> float | None:
    """Mean squared distance of the positive pairs [pairs]; None without such pairs."""
    if not positive.any():
        return None
    return alignment(torch.from_numpy(first[positive]), torch.from_numpy(second[positive])).item()


def uniformity_in_chunks(sentences: UnitVectors) -> float:
    """Log mean_{i<j} e^{-2‖x_i − x_j‖²} (Wang & Isola 2020, section 4.1.2), in chunks of rows."""
    count, total = len(sentences), 0.0
    vectors = sentences.astype(np.float32)
    for start in range(0, count, SENTENCES_PER_CHUNK):
        later = vectors[start:] @ vectors[start : start + SENTENCES_PER_CHUNK].T  # [rest, chunk] cosines
        total += np.tril(np.exp(4 * (later - 1)), k=-1).sum(dtype=np.float64)  # ‖x − y‖² = 2 − 2 x·y
    return float(np.log(total / (count * (count - 1) / 2)))


def mean_cosine(sentences: UnitVectors) -> float:
    """Mean cosine of two different rows. ‖Σx‖² sums the cosines of all ordered pairs, also of rows with themselves."""
    count = len(sentences)
    return float((np.square(sentences.sum(0)).sum() - np.square(sentences).sum()) / (count * (count - 1)))


def effective_rank(singular_values: NDArray[np.floating[Any]]) -> float:
    """Exponential of the entropy of p_k = σ_k / Σσ (Roy & Vetterli 2007)."""
    shares = singular_values[singular_values > 0] / singular_values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else math.nan

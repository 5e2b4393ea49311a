"""Geometry equals brute force over all pairs, and closed forms."""

from itertools import combinations

import numpy as np
import pytest
import torch

from multitask.evaluation import embeddings as module
from multitask.evaluation.embeddings import (
    EmbeddingTable,
    effective_rank,
    geometry,
    uniformity_in_chunks,
    unit_vectors,
)
from multitask.objectives.geometry import uniformity as training_uniformity
from tests.multitask.evaluation.folder import BagOfWords


def units(rows: int, dim: int = 6, seed: int = 0):
    return unit_vectors(np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32))


@pytest.mark.parametrize("rows", [2, 7, 8, 20, 21])
def test_uniformity_in_stretches_is_that_over_all_pairs(rows, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)
    vectors = units(rows)
    kernel = [np.exp(-2 * np.square(a - b).sum()) for a, b in combinations(vectors, 2)]
    assert uniformity_in_chunks(vectors) == pytest.approx(np.log(np.mean(kernel)), abs=1e-5)
    assert uniformity_in_chunks(vectors) == pytest.approx(
        training_uniformity(torch.from_numpy(vectors)).item(), abs=1e-5
    )


def test_effective_rank_of_known_spectra():
    assert effective_rank(np.ones(5)) == pytest.approx(5)
    assert effective_rank(np.array([3.0, 0, 0])) == pytest.approx(1)
    assert effective_rank(np.array([2.0, 1, 1])) == pytest.approx(2**1.5)  # entropy of 1/2, 1/4, 1/4 is 3/2 bits


def test_a_tasks_geometry_is_that_of_its_different_sentences():
    first = ["the cat runs", "a dog eats", "the cat runs", "big bird"]
    second = ["a cat runs", "a dog sings", "old man", "the cat runs"]
    gold = np.array([5, 4, 3.9, 0])
    table = EmbeddingTable.of(BagOfWords(), [*first, *second])
    found = geometry((first, second), gold, table)
    vectors = unit_vectors(table[list(dict.fromkeys([*first, *second]))])  # 6 different sentences of 8
    assert len(vectors) == 6
    singular = np.linalg.svd(vectors, compute_uv=False)
    shares = singular / singular.sum()
    assert found["effective_rank"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), abs=1e-6)
    assert found["top_eigenvalue_share"] == pytest.approx(singular[0] ** 2 / 6, abs=1e-9)
    assert found["mean_cosine"] == pytest.approx(np.mean([a @ b for a, b in combinations(vectors, 2)]), abs=1e-9)
    apart = unit_vectors(table[first[:2]]) - unit_vectors(table[second[:2]])  # the two positive pairs
    assert found["alignment"] == pytest.approx(np.square(apart).sum(1).mean(), abs=1e-9)
    assert geometry((first, second), np.full(4, 3.0), table)["alignment"] is None

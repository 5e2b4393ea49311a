"""Search and mining equal brute force: the whole matrix from scipy, sorted."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from minbert.errors import InputError
from multitask.use import search as module
from multitask.use.search import paraphrase_mining, search, similarity

GENERATOR = np.random.default_rng(0)
CORPUS = GENERATOR.normal(size=(83, 12)).astype(np.float32) * GENERATOR.uniform(0.1, 9, (83, 1)).astype(np.float32)
QUERIES = GENERATOR.normal(size=(7, 12)).astype(np.float32)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return 1 - cdist(np.float64(first), np.float64(second), "cosine")


def test_similarity_is_the_cosine_of_all_pairs():
    matrix = similarity(QUERIES, CORPUS)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, cosines(QUERIES, CORPUS), atol=1e-6)
    np.testing.assert_allclose(similarity(QUERIES[2], CORPUS), matrix[2:3], atol=1e-6)


def test_a_zero_vector_is_similar_to_nothing():
    assert similarity(np.zeros((1, 12), np.float32), CORPUS).tolist() == [[0.0] * 83]


@pytest.mark.parametrize(("top_k", "chunk"), [(1, 5), (6, 1), (6, 82), (83, 83), (200, 1024)])
def test_search_finds_what_sorting_the_whole_matrix_finds(top_k, chunk):
    expected = cosines(QUERIES, CORPUS)
    found = search(QUERIES, CORPUS, top_k, chunk)
    assert found.scores.shape == found.indices.shape == (7, min(top_k, 83))
    np.testing.assert_array_equal(found.indices, np.argsort(-expected, axis=1)[:, :top_k])
    np.testing.assert_allclose(found.scores, -np.sort(-expected, axis=1)[:, :top_k], atol=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-3.0, 0.5, 0.0])), min_size=1, max_size=40),
    st.integers(1, 45),
    st.integers(1, 9),
)
def test_equal_cosines_come_in_the_order_of_rows(corpus, top_k, chunk):
    rows = np.array([np.eye(3)[axis] * factor for axis, factor in corpus], np.float32)  # products without rounding
    expected = QUERIES[:, :3] @ np.sign(rows).T
    found = search(QUERIES[:, :3], rows, top_k, chunk)
    np.testing.assert_array_equal(found.indices, np.argsort(-expected, axis=1, kind="stable")[:, :top_k])


def test_some_rows_are_searched():
    some = np.array([0, 3, 4, 50, 82])
    expected = some[np.argsort(-cosines(QUERIES, CORPUS[some]), axis=1)]
    np.testing.assert_array_equal(search(QUERIES, CORPUS, 9, chunk=2, among=some).indices, expected)


@pytest.mark.parametrize(("max_pairs", "chunk"), [(1, 5), (50, 1), (83 * 82 // 2, 82), (50, 83), (10_000, 1024)])
def test_mining_finds_the_best_of_all_pairs(max_pairs, chunk):
    expected = cosines(CORPUS, CORPUS)
    every = sorted(combinations(range(83), 2), key=lambda pair: -expected[pair])[:max_pairs]
    found = paraphrase_mining(CORPUS, max_pairs, chunk)
    assert [(pair.first, pair.second) for pair in found] == every
    np.testing.assert_allclose([pair.score for pair in found], [expected[pair] for pair in every], atol=1e-6)


def test_repeated_sentences_are_the_best_pairs():
    found = paraphrase_mining(np.concatenate([CORPUS, CORPUS[::-1] * 3]), 83, chunk=20)
    assert {(pair.first, pair.second) for pair in found} == {(row, 165 - row) for row in range(83)}
    assert all(a.score > b.score or a[1:] < b[1:] for a, b in pairwise(found))
    assert [pair.score for pair in found] == pytest.approx([1.0] * 83, abs=1e-6)


@pytest.mark.parametrize(
    "convert", [torch.tensor, np.float64, lambda a: torch.tensor(a).to(torch.float64)], ids=["tensor", "64", "tensor64"]
)
def test_tensors_and_other_precisions(convert):
    np.testing.assert_allclose(similarity(convert(QUERIES), convert(CORPUS)), similarity(QUERIES, CORPUS), atol=1e-6)
    expected, found = search(QUERIES, CORPUS), search(convert(QUERIES), convert(CORPUS))
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.scores.dtype == np.float32
    assert [pair[1:] for pair in paraphrase_mining(convert(CORPUS))] == [pair[1:] for pair in paraphrase_mining(CORPUS)]


@pytest.mark.filterwarnings("error")
def test_an_array_on_disk_is_read_in_parts(tmp_path, monkeypatch):
    np.save(tmp_path / "corpus.npy", CORPUS)
    mapped = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    np.testing.assert_array_equal(search(QUERIES, mapped, chunk=9).indices, search(QUERIES, CORPUS, chunk=9).indices)
    assert paraphrase_mining(mapped, chunk=9) == paraphrase_mining(CORPUS, chunk=9)
    read, unit = [], module._unit
    monkeypatch.setattr(module, "_unit", lambda part: read.append(len(part)) or unit(part))
    search(QUERIES, mapped, chunk=9)
    paraphrase_mining(mapped, chunk=9)
    assert max(read) == 9


def test_nothing_to_find():
    nothing = np.empty((0, 12), np.float32)
    assert search(QUERIES, nothing).indices.shape == (7, 0)
    assert search(nothing, CORPUS, 4).scores.shape == (0, 4)
    assert paraphrase_mining(nothing) == paraphrase_mining(CORPUS[:1]) == paraphrase_mining(CORPUS[0]) == []


def test_embeddings_of_two_encoders_and_none_of_k_are_refused():
    for call in (lambda: search(QUERIES, CORPUS[:, :5]), lambda: similarity(QUERIES, CORPUS[:, :5])):
        with pytest.raises(InputError, match="size 12 and 5"):
            call()
    for call in (lambda: search(QUERIES, CORPUS, 0), lambda: paraphrase_mining(CORPUS, 0)):
        with pytest.raises(InputError, match="expected at least 1"):
            call()

"""Scores of similarity equal scipy's, those of retrieval scikit-learn's; geometry equals brute force over all pairs."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, cosine
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import ndcg_score

from multitask.evaluation import embeddings as module
from multitask.evaluation.embeddings import (
    EmbeddingTable,
    cosines,
    effective_rank,
    geometry,
    sts_scores,
    uniformity_in_chunks,
    unit_vectors,
)
from multitask.evaluation.retrieval import RetrievalData, query_scores
from multitask.evaluation.statistics import resampled_scores
from multitask.evaluation.suites import SUITES
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives.geometry import uniformity as training_uniformity
from tests.multitask.evaluation.folder import BagOfWords


def test_cosines_are_scipys():
    first, second = np.random.default_rng(0).standard_normal((2, 50, 8)).astype(np.float32)
    expected = [1 - cosine(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(first, second, strict=True)]
    assert cosines(first, second) == pytest.approx(expected, abs=1e-12)


def test_a_zero_vector_is_like_nothing():
    assert cosines(np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32)).tolist() == [0.0]


@given(st.integers(0, 10**6), st.lists(st.integers(3, 20), min_size=1, max_size=4))
def test_all_mean_and_weighted_mean(seed, sizes):
    generator = np.random.default_rng(seed)
    subsets = np.repeat([f"set {i}" for i in range(len(sizes))], sizes)
    gold = generator.integers(0, 11, len(subsets)) / 2  # with ties, as in people's scores
    gold[np.cumsum(sizes) - 1] = 6  # so that no sub-set has equal scores only
    order = generator.permutation(len(subsets))
    subsets, gold = subsets[order], gold[order]
    similarities = gold + generator.normal(0, 2, len(subsets))
    scores = sts_scores(similarities, gold, subsets)
    each = [(similarities[subsets == name], gold[subsets == name]) for name in scores["subsets"]]
    for name, measure in (("spearman", spearmanr), ("pearson", pearsonr)):
        parts = [measure(*part).statistic for part in each]
        assert scores["all"][name] == pytest.approx(measure(similarities, gold).statistic, abs=1e-12)
        assert scores["mean"][name] == pytest.approx(sum(parts) / len(parts), abs=1e-12)
        weighted = np.average(parts, weights=[len(labels) for _, labels in each])
        assert scores["weighted_mean"][name] == pytest.approx(weighted, abs=1e-12)


def table_of(data: RetrievalData, seed: int = 0) -> EmbeddingTable:
    vectors = np.random.default_rng(seed).standard_normal((len(data.sentences), 4)).astype(np.float32)
    return EmbeddingTable({text: row for row, text in enumerate(data.sentences)}, vectors)


pairs = st.lists(
    st.tuples(st.integers(0, 14).map(str), st.integers(0, 14).map(str), st.booleans()), min_size=1, max_size=60
).filter(lambda rows: any(same and one != other for one, other, same in rows))


@given(pairs, st.integers(0, 99))
def test_scores_are_those_of_a_full_ranking(rows, seed):
    data = RetrievalData.of_pairs(rows, "pairs")
    table = table_of(data, seed)
    scores = query_scores(data, table)
    assert list(scores) == ["ndcg", "mrr"]
    vectors = table.vectors.astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for place, (query, relevant) in enumerate(zip(data.queries, data.relevant, strict=True)):
        texts = {other for one, other, same in rows if same and one == data.sentences[query]}
        texts |= {one for one, other, same in rows if same and other == data.sentences[query]}
        assert {data.sentences[document] for document in relevant} == texts - {data.sentences[query]}
        others = [document for document in range(len(unit)) if document != query]
        ranked = sorted(others, key=lambda document: -float(unit[document] @ unit[query]))
        ranks = [rank for rank, document in enumerate(ranked, 1) if document in relevant]
        assert scores["mrr"][place] == pytest.approx(1 / ranks[0])
        gains = sum(1 / np.log2(1 + rank) for rank in ranks if rank <= 10)
        assert scores["ndcg"][place] == pytest.approx(gains / sum(1 / np.log2(1 + np.arange(1, len(ranks[:10]) + 1))))


@given(st.integers(0, 99), st.integers(1, 4), st.sampled_from([3, 30, 150]), st.booleans())
def test_scores_of_a_set_of_ones_own_are_those_of_their_definitions(seed, queries, documents, ties):
    """A slow loop over the ranking; nDCG of scikit-learn, too, if no cosines are equal."""
    draw = np.random.default_rng(seed)
    texts = [f"d{place}" for place in range(documents)] + [f"q{place}" for place in range(queries)]
    graded = [
        dict(
            zip(
                draw.permutation(documents)[: (n := draw.integers(1, documents + 1))],
                draw.integers(1, 4, n) / 2,
                strict=True,
            )
        )
        for _ in range(queries)
    ]
    relevant, grades = (
        tuple(map(tuple, part)) for part in zip(*((found.keys(), found.values()) for found in graded), strict=True)
    )
    data = RetrievalData(texts, documents + np.arange(queries), relevant, grades, documents)
    vectors = draw.integers(-1, 2, (len(texts), 3)) if ties else draw.standard_normal((len(texts), 3))
    vectors[(vectors == 0).all(1)] = 1
    table = EmbeddingTable({text: row for row, text in enumerate(texts)}, vectors.astype(np.float32))
    found = query_scores(data, table)
    cosines = 1 - cdist(vectors.astype(np.float32).astype(np.float64), vectors.astype(np.float32), "cosine")
    for query, gains in enumerate(graded):
        row = cosines[documents + query, :documents].round(9)
        ranking = sorted(
            range(documents), key=lambda place: (-row[place], gains.get(place, 0))
        )  # the worst order of ties
        assert found["ndcg"][query] == found["ndcg@10"][query]
        for cut in (1, 10, 100):
            dcg = ideal = hits = first = 0.0
            for rank, place in enumerate(ranking[:cut], 1):
                dcg += gains.get(place, 0) / math.log2(rank + 1)
                hits += place in gains
                first = first or (1 / rank if place in gains else 0)
            for rank, gain in enumerate(sorted(gains.values(), reverse=True)[:cut], 1):
                ideal += gain / math.log2(rank + 1)
            assert found[f"ndcg@{cut}"][query] == pytest.approx(dcg / ideal)
            assert found[f"mrr@{cut}"][query] == pytest.approx(first)
            assert found[f"recall@{cut}"][query] == pytest.approx(hits / len(gains))
            if not ties:
                truth = [[gains.get(place, 0) for place in range(documents)]]
                assert found[f"ndcg@{cut}"][query] == pytest.approx(ndcg_score(truth, row[None], k=cut))


def test_an_irrelevant_sentence_of_equal_cosine_counts_as_ranked_before():
    data = RetrievalData.of_pairs([("q", "good", True), ("q", "bad", False)], "pairs")
    table = EmbeddingTable({"q": 0, "good": 1, "bad": 2}, np.ones((3, 2), np.float32))
    ndcg, reciprocal = query_scores(data, table).values()
    assert reciprocal[0] == 1 / 2
    assert ndcg[0] == pytest.approx(1 / np.log2(3))


def test_vectors_of_one_direction_have_equal_cosines():
    """Computed in fp64 their cosines differ in the last digits, which must not decide who ranks first."""
    vectors = np.random.default_rng(0).standard_normal((400, 384))
    vectors[1:61] = np.linspace(0.1, 9, 60)[:, None] * vectors[60]
    vectors[0] += vectors[60]
    documents = [str(row) for row in range(400)]
    table = EmbeddingTable({text: row for row, text in enumerate(documents)}, vectors)
    for relevant in range(1, 61):
        data = RetrievalData(documents, np.array([0]), ((relevant,),))
        assert query_scores(data, table)["mrr"][0] == 1 / 60


def test_the_suite_scores_queries_and_resamples_them():
    data = RetrievalData.of_pairs([(str(i), str(i + 1), i % 3 == 0) for i in range(60)], "pairs")
    scores_of, answers = SUITES["retrieval"].measure(data, table_of(data), 0)
    rows = np.arange(len(data.queries)) % 2 == 0
    assert answers is not None
    labels, predictions = answers
    ranks = query_scores(data, table_of(data))["mrr"][rows]
    assert scores_of(rows) == {"ndcg": predictions[rows].mean(), "mrr": ranks.mean()}
    drawn = resampled_scores(labels, predictions[None], "ndcg", np.random.default_rng(0), samples=2000)
    assert drawn.std() == pytest.approx(predictions.std() / np.sqrt(len(predictions)), rel=0.1)


# Geometry equals brute force over all pairs, and closed forms.


def units(rows: int, dim: int = 6, seed: int = 0):
    return unit_vectors(np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32))


@pytest.mark.parametrize("rows", [2, 7, 8, 20, 21])
def test_uniformity_in_stretches_is_that_over_all_pairs(rows, monkeypatch):
    monkeypatch.setattr(module, "SENTENCES_PER_CHUNK", 7)
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


def test_long_texts_are_embedded_as_asked(tiny_encoder):
    encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    texts = ["good film " * 200, "bad film " * 200]
    read = {long: EmbeddingTable.of(encoder, texts, long).vectors for long in ("head", "windows")}
    np.testing.assert_allclose(read["windows"], encoder.encode(texts, long="windows"), rtol=1e-5, atol=1e-6)
    assert np.abs(read["windows"] - read["head"]).max() > 1e-4


def test_a_tasks_geometry_is_that_of_its_different_sentences():
    first = ["the cat runs", "a dog eats", "the cat runs", "big bird"]
    second = ["a cat runs", "a dog sings", "old man", "the cat runs"]
    gold = np.array([5, 4, 3.9, 0])
    table = EmbeddingTable.of(BagOfWords(), [*first, *second])
    found = geometry((first, second), gold >= 4, table)
    vectors = unit_vectors(table[list(dict.fromkeys([*first, *second]))])  # 6 different sentences of 8
    assert len(vectors) == 6
    singular = np.linalg.svd(vectors, compute_uv=False)
    shares = singular / singular.sum()
    assert found["effective_rank"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), abs=1e-6)
    assert found["top_eigenvalue_share"] == pytest.approx(singular[0] ** 2 / 6, abs=1e-9)
    assert found["mean_cosine"] == pytest.approx(np.mean([a @ b for a, b in combinations(vectors, 2)]), abs=1e-9)
    apart = unit_vectors(table[first[:2]]) - unit_vectors(table[second[:2]])  # the two positive pairs
    assert found["alignment"] == pytest.approx(np.square(apart).sum(1).mean(), abs=1e-9)
    assert geometry((first, second), gold > 5, table)["alignment"] is None

"""Retrieval scores against sklearn's nDCG and a brute-force ranking."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from minbert.errors import InputError
from multitask.evaluation.embedding_cache import EmbeddingTable
from multitask.evaluation.embedding_scores import query_scores
from multitask.evaluation.embedding_suites import SUITES
from multitask.evaluation.resampled_scores import resampled_scores
from multitask.evaluation.suite_data import RetrievalData
from multitask.evaluation.suite_sets import SETS
from tests.multitask.evaluation.folder import write, write_sts

QUORA, SICK = SETS["retrieval"]


def table_of(data: RetrievalData, seed: int = 0) -> EmbeddingTable:
    vectors = np.random.default_rng(seed).standard_normal((len(data.documents), 4)).astype(np.float32)
    return EmbeddingTable({text: row for row, text in enumerate(data.documents)}, vectors, len(vectors))


pairs = st.lists(
    st.tuples(st.integers(0, 14).map(str), st.integers(0, 14).map(str), st.booleans()), min_size=1, max_size=60
).filter(lambda rows: any(same and one != other for one, other, same in rows))


@given(pairs, st.integers(0, 99))
def test_scores_are_those_of_a_full_ranking(rows: list[tuple[str, str, bool]], seed: int) -> None:
    data = RetrievalData.of_pairs(rows, "pairs")
    table = table_of(data, seed)
    ndcg, reciprocal = query_scores(data, table)
    vectors = table.vectors.astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for place, (query, relevant) in enumerate(zip(data.queries, data.relevant, strict=True)):
        texts = {other for one, other, same in rows if same and one == data.documents[query]}
        texts |= {one for one, other, same in rows if same and other == data.documents[query]}
        assert {data.documents[document] for document in relevant} == texts - {data.documents[query]}
        others = [document for document in range(len(unit)) if document != query]
        ranked = sorted(others, key=lambda document: -float(unit[document] @ unit[query]))
        first = next(rank for rank, document in enumerate(ranked, 1) if document in relevant)
        assert reciprocal[place] == pytest.approx(1 / first)
        if len(others) > 1:
            truth = [[float(document in relevant) for document in others]]
            expected = ndcg_score(truth, [[float(unit[document] @ unit[query]) for document in others]], k=10)
            assert ndcg[place] == pytest.approx(expected)


def test_an_irrelevant_sentence_of_equal_cosine_counts_as_ranked_before() -> None:
    data = RetrievalData.of_pairs([("q", "good", True), ("q", "bad", False)], "pairs")
    table = EmbeddingTable({"q": 0, "good": 1, "bad": 2}, np.ones((3, 2), np.float32), 3)
    ndcg, reciprocal = query_scores(data, table)
    assert reciprocal[0] == 1 / 2
    assert ndcg[0] == pytest.approx(1 / np.log2(3))


def test_vectors_of_one_direction_have_equal_cosines() -> None:
    """Computed in fp64 their cosines differ in the last digits, which must not decide who ranks first."""
    vectors = np.random.default_rng(0).standard_normal((400, 384))
    vectors[1:61] = np.linspace(0.1, 9, 60)[:, None] * vectors[60]
    vectors[0] += vectors[60]
    documents = [str(row) for row in range(400)]
    table = EmbeddingTable({text: row for row, text in enumerate(documents)}, vectors, 400)
    for relevant in range(1, 61):
        data = RetrievalData(documents, np.array([0]), ((relevant,),))
        assert query_scores(data, table)[1][0] == 1 / 60


def test_a_sample_keeps_queries_and_what_is_relevant_to_them() -> None:
    data = RetrievalData.of_pairs([(str(i), str(i + 1), i % 2 == 0) for i in range(400)], "pairs")
    sample = data.sampled(20)
    assert len(sample.queries) == 20
    assert 20 < len(sample.documents) <= 20 + 20 + 200
    whole = {
        data.documents[q]: {data.documents[d] for d in r} for q, r in zip(data.queries, data.relevant, strict=True)
    }
    for query, relevant in zip(sample.queries, sample.relevant, strict=True):
        assert {sample.documents[document] for document in relevant} == whole[sample.documents[query]]
    assert data.sampled(20).documents == sample.documents
    with pytest.raises(InputError):
        RetrievalData.of_pairs([("one", "two", False), ("one", "one", True)], "pairs")


def test_sets_read_duplicate_questions_and_related_sentences(tmp_path: Path) -> None:
    write_sts(tmp_path)
    rows = [
        ("how to sing", "how does one sing", 1.0),
        ("what is red", "who runs", 0.0),
        ("how to sing", "singing", 1.0),
    ]
    lines = [f"{i}\tid{i}\t{one}\t{other}\t{label}" for i, (one, other, label) in enumerate(rows)]
    write(tmp_path / "quora-dev.csv", ["\tid\tsentence1\tsentence2\tis_duplicate", *lines])
    data = QUORA.read(QUORA.paths(tmp_path))
    assert len(data.documents) == 5
    found = {
        data.documents[q]: [data.documents[d] for d in r] for q, r in zip(data.queries, data.relevant, strict=True)
    }
    assert found["how to sing"] == ["how does one sing", "singing"]
    assert found["singing"] == ["how to sing"]
    assert "who runs" not in found
    related = SICK.read(SICK.paths(tmp_path))
    lines = (tmp_path / "SICK/SICK_test_annotated.txt").read_text().splitlines()[1:]
    high = [line.split("\t") for line in lines if float(line.split("\t")[3]) >= 4]
    assert len(related.queries) == len({text for fields in high for text in fields[1:3]})


def test_the_suite_scores_queries_and_resamples_them() -> None:
    data = RetrievalData.of_pairs([(str(i), str(i + 1), i % 3 == 0) for i in range(60)], "pairs")
    scores_of, answers = SUITES["retrieval"].measure(data, table_of(data), 0)
    rows = np.arange(len(data.queries)) % 2 == 0
    assert answers is not None
    labels, predictions = answers
    ranks = query_scores(data, table_of(data))[1][rows]
    assert scores_of(rows) == {"ndcg": predictions[rows].mean(), "mrr": ranks.mean()}
    drawn = resampled_scores(labels, predictions[None], "ndcg", np.random.default_rng(0), samples=2000)
    assert drawn.std() == pytest.approx(predictions.std() / np.sqrt(len(predictions)), rel=0.1)

"""Readers of SentEval's folder: quirks of its files, and errors that name file and line; samples."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.evaluation.embeddings import EmbeddingTable
from multitask.evaluation.retrieval import RetrievalData, query_scores, read_retrieval
from multitask.evaluation.suite_data import LabelledRows
from multitask.evaluation.suite_sets import SETS
from tests.multitask.evaluation.folder import write, write_retrieval, write_sts, write_transfer

ENTRIES = {entry.name: entry for suite in SETS.values() for entry in suite}
RATED = [entry.name for suite in ("sts", "transfer") for entry in SETS[suite]]
STS16 = "STS/STS16-en-test/STS"
SHARED = Path(os.environ.get("MINBERT_SHARED_DATA", "missing")) / "senteval"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("senteval")
    write_sts(folder)
    write_transfer(folder)
    return folder


def read(name: str, folder: Path):
    return ENTRIES[name].read(ENTRIES[name].paths(folder))


def test_pairs_without_a_score_are_skipped(whole):
    data = read("STS16", whole)
    gold = [line for line in (whole / f"{STS16}.gs.headlines.txt").read_text().split("\n") if line]
    pairs = (whole / f"{STS16}.input.headlines.txt").read_text().splitlines()
    rows = data.parts == "headlines"
    assert rows.sum() == len(gold) == 16
    assert data.labels[rows].tolist() == [float(value) for value in gold]
    assert data.columns[0][np.flatnonzero(rows)[0]] == pairs[1].split("\t")[0]  # the first pair has no score


def test_tables_are_read_by_their_columns(whole):
    benchmark, sick = read("STSBenchmark", whole), read("SICKRelatedness", whole)
    assert benchmark.columns == sick.columns[::-1]  # the fixture writes the same pairs with exchanged sentences
    assert benchmark.labels == pytest.approx(sick.labels, abs=0.01)


def test_a_line_may_hold_signs_that_look_like_line_ends(tmp_path):
    """Python's splitlines would cut at U+2028 and U+0085, and the scores would belong to other pairs."""
    for subset in ("FNWN", "headlines", "OnWN"):
        folder = tmp_path / "STS/STS13-en-test"
        write(folder / f"STS.input.{subset}.txt", ["one\u2028two\x85three\tfour", "five\tsix"])
        write(folder / f"STS.gs.{subset}.txt", ["1", "2"])
    data = read("STS13", tmp_path)
    assert data.columns[0][:2] == ["one two three", "five"]


def test_quirks_of_the_transfer_sets(whole):
    trec, mrpc, mr = read("TREC", whole), read("MRPC", whole), read("MR", whole)
    assert trec.labels.tolist()[:2] == [0, 0]
    assert set(trec.labels) == set(range(6))
    assert len(mrpc.columns) == 2
    assert mrpc.labels.tolist()[:4] == [0, 1, 0, 1]  # the byte-order mark is not part of the header
    assert mr.columns[0][40] == "."  # a line without a word
    assert mr.labels.tolist() == [0] * 40 + [1] * 40
    assert trec.scored.sum() == (trec.parts == "test").sum() == 240


@pytest.mark.parametrize("name", RATED)
def test_sentences_are_separated_words(name, whole):
    for column in read(name, whole).columns:
        assert all(text and text == " ".join(text.split()) for text in column)


@pytest.mark.parametrize(
    ("name", "file", "line", "text", "told"),
    [
        ("STS16", f"{STS16}.gs.plagiarism.txt", 2, "5.5", 'similarity is "5.5"; expected a number from 0 to 5'),
        ("STS16", f"{STS16}.gs.plagiarism.txt", 2, "4,5", "(decimal point, not comma)"),
        ("STS16", f"{STS16}.input.plagiarism.txt", 2, "one, two", "1 fields; expected 2, separated by tabs"),
        ("STS16", f"{STS16}.input.plagiarism.txt", 2, "\ttwo", "field 1 is empty"),
        ("STSBenchmark", "STS/STSBenchmark/sts-test.csv", 3, "a,b,c,d,3,e,f", "1 fields; expected 7 or more"),
        ("SICKRelatedness", "SICK/SICK_test_annotated.txt", 1, "1\ta\tb\t3\tNEUTRAL", "no column relatedness_score"),
        ("SICKRelatedness", "SICK/SICK_test_annotated.txt", 4, "1\ta\tb\t0.5\tNEUTRAL", "a number from 1 to 5"),
        ("SST2", "SST/binary/sentiment-dev", 5, "fine\t2", 'label is "2"; expected one of 0, 1'),
        ("TREC", "TREC/TREC_10.label", 2, "Who was Galileo ?", "is not a class and a question"),
        ("TREC", "TREC/TREC_10.label", 2, "WHO:x Who was Galileo ?", 'label is "WHO"'),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", 2, "1,2,3,a,b", "1 fields; expected 5"),
    ],
)
def test_a_malformed_line_is_named(name, file, line, text, told, tmp_path):
    write_sts(tmp_path)
    write_transfer(tmp_path)
    path = tmp_path / file
    encoding = "latin-1" if name == "TREC" else "utf-8"
    lines = path.read_bytes().decode(encoding).split("\n")
    lines[line - 1] = text
    path.write_bytes("\n".join(lines).encode(encoding))
    with pytest.raises(InputError) as error:
        read(name, tmp_path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("lacking", ["input", "gs"])
def test_a_line_without_counterpart_is_named(lacking, tmp_path):
    write_sts(tmp_path)
    shorter, longer = (
        tmp_path / f"{STS16}.{kind}.postediting.txt" for kind in (lacking, "gs" if lacking == "input" else "input")
    )
    shorter.write_text("".join(shorter.read_text().splitlines(keepends=True)[:-3]))
    with pytest.raises(InputError, match=re.escape(f"{longer}:22: a line without its counterpart")):
        read("STS16", tmp_path)


def test_a_set_without_any_score_is_an_error(tmp_path):
    write_sts(tmp_path)
    for path in (tmp_path / "STS/STS12-en-test").glob("STS.gs.*"):
        path.write_text("\n" * 24)
    with pytest.raises(InputError, match="no pair has a gold score"):
        read("STS12", tmp_path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="MINBERT_SHARED_DATA does not name a folder with senteval")
def test_the_real_sets_have_their_known_sizes():
    sizes = {
        name: (len(data.columns[0]), len(data.scored_columns[0])) for name in RATED if (data := read(name, SHARED))
    }
    similar = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STSBenchmark": 1379}
    classes = {"MR": 10662, "CR": 3775, "SUBJ": 10000, "MPQA": 10606}
    whole = {name: (size, size) for name, size in {**similar, "SICKRelatedness": 4927, **classes}.items()}
    split = {"SST2": (67349 + 872 + 1821, 1821), "TREC": (5452 + 500, 500), "MRPC": (4076 + 1725, 1725)}
    assert sizes == whole | split


# Samples.


def test_a_sample_of_pairs_is_always_the_same(whole):
    data = read("STS12", whole)
    rows = list(zip(*data.columns, data.labels, data.parts, strict=True))
    sample = data.sampled(50)
    sampled = list(zip(*sample.columns, sample.labels, sample.parts, strict=True))
    assert len(sampled) == 50
    assert sampled == [row for row in rows if row in sampled]  # in file order
    assert len(set(sample.parts)) == 5
    assert [*zip(*data.sampled(50).columns, strict=True)] == [*zip(*sample.columns, strict=True)]
    assert data.sampled(10**6).columns == data.columns


@pytest.mark.parametrize("limit", [100, 60, 12])
def test_a_sample_of_classes_keeps_their_shares_and_ten_rows_of_each(limit):
    splits = np.array(["train"] * 330 + ["test"] * 33)
    labels = np.array([0] * 200 + [1] * 100 + [2] * 30 + [0] * 20 + [1] * 10 + [2] * 3)
    data = LabelledRows(([f"text {i}" for i in range(363)],), labels, splits)
    sample = data.sampled(limit)
    counts = {split: np.bincount(sample.labels[sample.parts == split]).tolist() for split in ("train", "test")}
    share = limit / 330
    assert counts["train"] == [max(round(size * share), 10) for size in (200, 100, 30)]
    assert counts["test"][2] == 3
    assert sum(counts["test"]) == 33 if limit > 33 else counts["test"] == [10, 10, 3]
    texts = sample.columns[0]
    assert texts == sorted(texts, key=lambda text: int(text.split()[1]))
    assert all(labels[int(t.split()[1])] == label for t, label in zip(texts, sample.labels, strict=True))


def test_a_sample_keeps_queries_and_what_is_relevant_to_them():
    data = RetrievalData.of_pairs([(str(i), str(i + 1), i % 2 == 0) for i in range(400)], "pairs")
    sample = data.sampled(20)
    assert len(sample.queries) == 20
    assert 20 < len(sample.sentences) <= 20 + 20 + 200
    whole = {
        data.sentences[q]: {data.sentences[d] for d in r} for q, r in zip(data.queries, data.relevant, strict=True)
    }
    for query, relevant in zip(sample.queries, sample.relevant, strict=True):
        assert {sample.sentences[document] for document in relevant} == whole[sample.sentences[query]]
    assert data.sampled(20).sentences == sample.sentences
    with pytest.raises(InputError):
        RetrievalData.of_pairs([("one", "two", False), ("one", "one", True)], "pairs")


def test_sets_read_duplicate_questions_and_related_sentences(tmp_path):
    write_sts(tmp_path)
    pairs = ["how to sing\thow does one sing\t1.0", "what is red\twho runs\t0.0", "how to sing\tsinging\t1.0"]
    lines = [f"{i}\tid{i}\t{pair}" for i, pair in enumerate(pairs)]
    write(tmp_path / "quora-dev.csv", ["\tid\tsentence1\tsentence2\tis_duplicate", *lines])
    data = read("QuoraRetrieval", tmp_path)
    assert len(data.sentences) == 5
    found = {
        data.sentences[q]: [data.sentences[d] for d in r] for q, r in zip(data.queries, data.relevant, strict=True)
    }
    assert found["how to sing"] == ["how does one sing", "singing"]
    assert found["singing"] == ["how to sing"]
    assert "who runs" not in found
    related = read("SICKRetrieval", tmp_path)
    lines = (tmp_path / "SICK/SICK_test_annotated.txt").read_text().splitlines()[1:]
    high = [line.split("\t") for line in lines if float(line.split("\t")[3]) >= 4]
    assert len(related.queries) == len({text for fields in high for text in fields[1:3]})


def test_a_set_of_ones_own_is_read_in_beirs_layout(tmp_path, caplog):
    write_retrieval(tmp_path)
    data = read_retrieval(tmp_path, "dev")
    assert data.sentences == ["Cats a cat sleeps", "the dog runs", "", "who sleeps ?", "a dog"]
    assert (data.queries.tolist(), data.corpus) == ([3, 4], 3)
    assert (data.relevant, data.grades) == (((0, 1), (1,)), ((2.0, 0.5), (1.0,)))
    write(tmp_path / "qrels/test.csv", ["query-id,corpus-id", "q3,d1"])  # all relevant alike, in another format
    test = read_retrieval(tmp_path, "test")
    assert not caplog.messages
    write(tmp_path / "qrels/other.csv", ["query-id,corpus-id,relevance", "q3,d1,0"])
    read_retrieval(tmp_path, "other")
    assert "no column score, so the documents of all rows count as relevant; there is relevance" in caplog.text
    assert (test.sentences[3:], test.relevant, test.grades) == (["nobody asks this"], ((0,),), ((1.0,),))


def test_a_query_ignores_the_document_of_its_id_unless_that_is_relevant(tmp_path):
    """Each query has the cosine 1 with the document of its id: for b it is an answer, for a it would rank first."""
    rows = [f'{{"_id": "{name}", "text": "{text}"}}' for name, text in (("a", "one"), ("b", "two"), ("c", "one more"))]
    write(tmp_path / "corpus.jsonl", rows)
    write(tmp_path / "queries.jsonl", rows[:2])
    write(tmp_path / "qrels/dev.tsv", ["query-id\tcorpus-id\tscore", "a\tc\t1", "a\ta\t0", "b\tb\t1"])
    data = read_retrieval(tmp_path, "dev")
    table = EmbeddingTable(
        {"one": 0, "two": 1, "one more": 2}, np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], np.float32)
    )
    assert {name: values.tolist() for name, values in query_scores(data, table).items() if "@" not in name} == {
        "ndcg": [1, 1],
        "mrr": [1, 1],
    }


HEADER = "query-id\tcorpus-id\tscore"


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        ("qrels/dev.tsv", None, r"0 files qrels/dev\.\*; expected a set as BEIR lays it out, with one file corpus"),
        ("corpus.csv", ["_id,text"], r"2 files corpus\.\*; expected a set"),
        ("qrels/dev.tsv", [HEADER, "q1\td9\t1"], r"dev\.tsv:2: corpus-id \"d9\" is not an _id of corpus\.jsonl$"),
        ("qrels/dev.tsv", [HEADER, "q9\td1\t1"], r"query-id \"q9\" is not an _id of queries\.jsonl$"),
        ("qrels/dev.tsv", [HEADER, *["q1\td1\t2"] * 2], r"dev\.tsv:3: query-id \"q1\" with corpus-id \"d1\" occurs tw"),
        ("qrels/dev.tsv", [HEADER, "q1\td1\thigh"], r"dev\.tsv:2: score is \"high\"; expected a num"),
        ("qrels/dev.tsv", [HEADER, "q1\td1\t0"], r"dev\.tsv: no document is relevant to a query"),
        ("qrels/dev.tsv", ["query\tcorpus-id\tscore", "q1\td1\t1"], r"dev\.tsv: no column query-id"),
        ("corpus.jsonl", ['{"_id": "d1", "text": 3}'], r"corpus\.jsonl:1: text is 3; expected text"),
        ("corpus.jsonl", ['{"_id": null, "text": "a"}'], r"corpus\.jsonl:1: _id is empty; expected an id for each"),
        ("queries.jsonl", ['{"text": "a", "_id": 1}', '{"text": "b", "_id": " "}'], r"queries\.jsonl:2: _id is empty"),
        ("queries.jsonl", ['{"_id": 0, "text": "a"}'] * 2, r"queries\.jsonl:2: _id \"0\" occurs twice"),
    ],
)
def test_what_is_wrong_with_a_set_of_ones_own_is_one_line(tmp_path, file, lines, message):
    write_retrieval(tmp_path)
    (tmp_path / file).unlink(missing_ok=True)
    if lines is not None:
        write(tmp_path / file, lines)
    with pytest.raises(InputError, match=message):
        read_retrieval(tmp_path, "dev")

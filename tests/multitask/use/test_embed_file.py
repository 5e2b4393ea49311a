"""Embeddings of a file equal those of the encoder whatever the blocks; search and mining equal brute force."""

import gzip
import json
import os
import shutil
from itertools import combinations, pairwise
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from minbert.errors import InputError
from minbert.files import write_json
from multitask.cli.main import main
from multitask.data import messages as problems
from multitask.models.model_folder import write_pooling
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.use import embed as module
from multitask.use import search as searching
from multitask.use.embed import Index, embed_file
from multitask.use.search import paraphrase_mining, search, similarity

SENTENCES = [f"It is {word}." for word in ("time", "short", "a film", "what was promised", "over")]


@pytest.fixture
def encoder(tiny_encoder):
    return SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")


@pytest.mark.parametrize(("block", "normalize", "size"), [(1, False, 32), (2, True, 9), (5, False, 9), (100, True, 32)])
def test_embeddings_equal_those_of_all_sentences(encoder, tmp_path, monkeypatch, block, normalize, size):
    monkeypatch.setattr(module, "SENTENCES_PER_BLOCK", block)
    (tmp_path / "t.txt").write_text("\n" + "\n".join(SENTENCES) + "\n\n")
    shape = embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, normalize, dimensions=size)
    found = np.load(tmp_path / "e.npy")
    assert found.shape == shape == (len(SENTENCES), size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, encoder.encode(SENTENCES, normalize=normalize, dimensions=size), atol=1e-6)


def test_blank_lines_are_skipped_and_texts_that_cannot_be_read_are_counted_once(encoder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "SENTENCES_PER_BLOCK", 2)
    (tmp_path / "t.txt").write_text(
        "\u1781\n\u200b\u200d\n" + "\n".join(SENTENCES[:3]) + "\n\ufeff \n\u1782\n", "utf-8"
    )
    assert embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, False)[0] == 5
    encoder.counts.warn("texts")
    assert [message.partition(",")[0] for message in caplog.messages] == [
        f"{tmp_path / 't.txt'}: skipped 2 blank lines",
        "texts: most tokens of 2 of 5 texts are unknown ([UNK])",
    ]
    assert list(Index.open(tmp_path / "e.npy", encoder).texts()) == ["\u1781", *SENTENCES[:3], "\u1782"]


@pytest.mark.parametrize(
    ("long", "said"),
    [
        ("head", "cut 2 of 4 texts to 64 tokens (--long windows reads all)"),
        ("middle", "left out the middle of 2 of 4 texts, which have more than 64 tokens (--long windows reads all)"),
        ("windows", "read 2 of 4 texts in windows of 64 tokens"),
    ],
)
def test_long_texts_are_read_as_asked_counted_and_searched_alike(encoder, tmp_path, caplog, capsys, long, said):
    texts = ["time " * 70 + "is over", *SENTENCES[:2], "a film " * 90]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    model = ["--model", encoder.name, "--device", "cpu", "--precision", "fp32"]
    assert main(["embed", str(tmp_path / "t.txt"), str(tmp_path / "e.npy"), "--long", long, *model]) == 0
    assert [line for line in caplog.messages if "tokens" in line] == [f"{tmp_path / 't.txt'}: {said}"]
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), encoder.encode(texts, long=long), atol=1e-6)
    capsys.readouterr()
    assert main(["search", str(tmp_path / "e.npy"), str(tmp_path / "t.txt"), "--top", "1", *model]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["row"], row["score"]) for row in found] == [(number, pytest.approx(1)) for number in range(4)]


def test_windows_are_not_advised_where_another_library_embeds(tiny_encoder, tmp_path, caplog):
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    parts = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules = [{"type": f"sentence_transformers.models.{t}", "path": p, "idx": 0, "name": t} for t, p in parts]
    write_json(folder / "modules.json", modules)
    write_pooling(folder, "mean", 32)
    settings = {"prompts": {"query": "a man "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", settings)
    (tmp_path / "t.txt").write_text("time " * 70)
    paths = [str(tmp_path / name) for name in ("t.txt", "e.npy")]
    assert main(["embed", *paths, "--model", str(folder), "--device", "cpu"]) == 0
    assert caplog.messages[-1] == f"{tmp_path / 't.txt'}: cut 1 of 1 texts to 64 tokens"


def test_a_file_that_changes_while_it_is_read_has_no_embeddings(encoder, tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    embed = encoder.encode

    def changing(*inputs, **options):
        (tmp_path / "t.txt").write_text("\n".join(reversed(SENTENCES)))
        return embed(*inputs, **options)

    monkeypatch.setattr(encoder, "encode", changing)
    with pytest.raises(InputError, match=r"t\.txt: changed while it was read; run the command again"):
        embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, False)
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


def files_of_titles(folder):
    """Files with the titles and bodies of SENTENCES, an empty one last, and the options that read them."""
    titles = [("Té", SENTENCES[0]), ("", SENTENCES[1]), ("n/a", SENTENCES[2]), ("U", "")]
    text = "".join(f'"{title}";{body}\n' for title, body in titles)
    (folder / "t.csv").write_bytes(f"made in May\ntitle;body\n{text}".encode("cp1252"))
    (folder / "t.log.gz").write_bytes(gzip.compress(f"title|body\n{text.replace(';', '|')}".encode("utf-16")))
    book = pytest.importorskip("openpyxl").Workbook()
    sheet = book.create_sheet("Two")
    for row in ([None], ["title", "body"], *titles):
        sheet.append(row)
    book.save(folder / "t.xlsx")
    yield "t.csv", ["--separator", ";", "--encoding", "cp1252", "--skip-rows", "1", "--missing", "n/a"]
    yield "t.log.gz", ["--separator", "|", "--encoding", "utf-16", "--missing", "n/a"]
    yield "t.xlsx", ["--sheet", "Two", "--skip-rows", "1", "--missing", "n/a"]


def test_files_of_any_format_are_embedded_and_searched(encoder, tmp_path, caplog, capsys):
    model = ["--model", encoder.name, "--device", "cpu", "--precision", "fp32"]
    texts = [f"Té: {SENTENCES[0]}", f": {SENTENCES[1]}", f": {SENTENCES[2]}", "U:"]
    for name, options in files_of_titles(tmp_path):
        file, index = str(tmp_path / name), str(tmp_path / "e.npy")
        assert main(["embed", file, index, "--column", "{title}: {body}", *options, *model]) == 0
        np.testing.assert_allclose(np.load(index), encoder.encode(texts), atol=1e-6)
        assert list(Index.open(tmp_path / "e.npy", encoder).texts()) == texts
        capsys.readouterr()
        queries = ["search", index, file, "--column", "query: {body}", *options, *model, "--top", "1"]
        assert main(queries) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["query"] for row in found] == [*(f"query: {text}" for text in SENTENCES[:3]), ""]
        assert all(row["text"] == texts[row["row"]] for row in found)
    assert caplog.text.count("1 empty texts") == 3


def test_equal_texts_come_in_the_order_of_their_rows_whatever_their_last_digits(encoder, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a film\ntime\na film\n")
    (tmp_path / "q.txt").write_text("a film\n")
    index, of = str(tmp_path / "e.npy"), ["--model", encoder.name, "--device", "cpu", "--precision", "fp32"]
    assert main(["embed", str(tmp_path / "t.txt"), index, *of]) == 0
    vectors = np.load(index)
    across = vectors[1] - vectors[0] * (vectors[1] @ vectors[0]) / (vectors[0] @ vectors[0])
    vectors[0] += 6e-4 * across * np.linalg.norm(vectors[0]) / np.linalg.norm(across)  # a cosine of 1 - 1.8e-7
    np.save(index, vectors)
    without_hash(tmp_path)
    capsys.readouterr()
    assert main(["search", index, str(tmp_path / "q.txt"), "--top", "2", *of]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(hit["rank"], hit["row"], hit["score"]) for hit in found] == [(1, 0, 1), (2, 2, 1)]


def test_the_file_that_search_or_mine_replaces_is_named(encoder, tmp_path, caplog):
    model = ["--model", encoder.name, "--device", "cpu"]
    (tmp_path / "t.txt").write_text("a film\ntime\na cat\n")
    (tmp_path / "q.csv").write_text("text\na film\n")
    (tmp_path / "p.csv").write_text("sentence1,sentence2\na film,time\na cat,a dog\n")
    index, queries, pairs = (str(tmp_path / name) for name in ("e.npy", "q.csv", "p.csv"))
    assert main(["embed", str(tmp_path / "t.txt"), index, *model]) == 0
    assert main(["search", index, queries, "--column", "text", "--output", queries, *model]) == 0
    assert (
        main(["mine", pairs, pairs, "--ranks", "0", "3", "--negatives", "1", "--relative-margin", "none", *model]) == 0
    )
    said = [line for line in caplog.messages if "replaced" in line]
    assert said == [f"{path}: replaced; it had other contents" for path in (queries, pairs)]


def test_standard_output_has_nothing_but_the_mined_table(encoder, tmp_path, capsys):
    (tmp_path / "p.csv").write_text("sentence1,sentence2\na film,time\na cat,a dog\n")
    options = ["--ranks", "0", "3", "--negatives", "1", "--relative-margin", "none", "--model", encoder.name]
    assert main(["mine", str(tmp_path / "p.csv"), "-", *options, "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert [line.count("\t") for line in printed.out.splitlines()] == [2, 2, 2]
    assert printed.err == "-: 2 rows; 2 of 2 anchors have negatives\n"


def test_lines_of_a_text_file_stand_in_a_prompt(encoder, tmp_path):
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES))
    embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", "query: {text}", False)
    prompted = encoder.encode(SENTENCES, prompt="query: {text}")
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), prompted, atol=1e-6)
    np.testing.assert_allclose(prompted, encoder.encode([f"query: {text}" for text in SENTENCES]), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(SENTENCES[0], prompt="query: {text}"), prompted[0], atol=1e-6)
    with pytest.raises(InputError, match=r'prompt is "query: "; expected \{text\} where the sentence stands'):
        encoder.encode(SENTENCES, prompt="query: ")


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("t.txt", "\n \n", None, "no sentence"),
        ("t.csv", "body\nx\n", None, "--column"),
        ("t.csv", "text,\nx,y\n", "", r'^text is ""; expected the name of a column'),
        ("t.txt", "x\n", "", r'^text is ""; expected the name of a column'),
        ("t.csv", "body,title\nx,y\n", "{titel}: {body}", r"t.csv: no column titel; .*; did you mean title\?$"),
        ("t.jsonl", '{"body": "x"}\n{"body": 3}\n', "body", "t.jsonl:2: body is 3"),
    ],
)
def test_what_cannot_be_embedded_is_named_and_leaves_nothing(encoder, tmp_path, name, content, column, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        embed_file(encoder, tmp_path / name, tmp_path / "e.npy", column, False)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("scale", "dtype", "reason"),
    [(3e38, "float32", "the weights are damaged"), (1e6, "float16", "take --dtype float32, which holds them")],
)
def test_embeddings_that_are_not_finite_are_refused(encoder, tmp_path, scale, dtype, reason):
    """The weights are finite."""
    encoder.bert.layers[-1].output_norm.weight.data *= scale
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    with pytest.raises(InputError, match=f"some embeddings are not finite as {dtype}; {reason}"):
        embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, False, dtype)
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]


@pytest.mark.parametrize(("dtype", "size", "error"), [("float32", 9, 1e-6), ("float16", 32, 1e-3)])
def test_an_index_has_the_embeddings_and_their_texts(encoder, tmp_path, dtype, size, error):
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES))
    embed_file(encoder, tmp_path / "t.txt", tmp_path / "of" / "e.npy", None, True, dtype, size)
    moved = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-moved")
    index = Index.open(moved / "of" / "e.npy", encoder)
    expected = encoder.encode(SENTENCES, normalize=True, dimensions=size)
    assert index.vectors.shape == (len(SENTENCES), size)
    assert index.vectors.dtype == dtype
    np.testing.assert_allclose(index.vectors, expected, atol=error)
    assert index.texts_of({4, 1}) == {1: SENTENCES[1], 4: SENTENCES[4]}
    found = search(expected[2:4], index.vectors, 3)
    np.testing.assert_array_equal(found.indices[:, 0], [2, 3])
    np.testing.assert_allclose(
        found.scores, np.take_along_axis(expected[2:4] @ expected.T, found.indices, 1), atol=error
    )


def without_hash(folder):
    """Make the record of an index that of an earlier version."""
    record = json.loads((folder / "e.npy.json").read_text())
    assert len(record.pop("sha256")) == 64
    (folder / "e.npy.json").write_text(json.dumps(record))


def other_model(folder):
    (folder / "e.npy.json").write_text((folder / "e.npy.json").read_text().replace('"model": "', '"model": "0'))


def test_an_index_of_an_earlier_version_opens(encoder, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, False)
    without_hash(tmp_path)
    assert Index.open(tmp_path / "e.npy", encoder).vectors.shape == (5, 32)


def in_8_bits(folder):
    (folder / "e.npy.json").write_text((folder / "e.npy.json").read_text().replace("float32", "int8"))


CHANGES = {
    "written with other weights": other_model,
    "has changed since": lambda folder: (folder / "t.txt").write_text("another"),
    "t.txt: no such file": lambda folder: (folder / "t.txt").unlink(),
    "e.npy.json, which names its model, is missing": lambda folder: (folder / "e.npy.json").unlink(),
    "e.npy: no such file": lambda folder: (folder / "e.npy").unlink(),
    "or damaged": lambda folder: (folder / "e.npy").write_bytes((folder / "e.npy").read_bytes()[:-1]),
    "not an array": lambda folder: (folder / "e.npy").write_bytes(
        (folder / "e.npy").read_bytes().replace(b"(5", b"((")
    ),
    "not the array that": lambda folder: (without_hash(folder), np.save(folder / "e.npy", np.zeros((5, 32)))),
    "not the array that e.npy.json describes": lambda folder: np.save(folder / "e.npy", np.zeros((5, 32), "f4")),
    "model is missing": lambda folder: (folder / "e.npy.json").write_text("{}"),
    "dtype is": in_8_bits,
}


@pytest.mark.parametrize("message", CHANGES)
def test_an_index_that_does_not_fit_is_refused(encoder, tmp_path, message):
    (tmp_path / "t.txt").write_text("\n".join(SENTENCES))
    embed_file(encoder, tmp_path / "t.txt", tmp_path / "e.npy", None, False)
    CHANGES[message](tmp_path)
    with pytest.raises(InputError, match=message):
        Index.open(tmp_path / "e.npy", encoder)


def test_an_index_of_standard_input_has_no_texts(encoder, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for reader in (problems, module):
        monkeypatch.setattr(reader, "STANDARD_INPUT", str(tmp_path / "pipe"))
    writer = Thread(target=(tmp_path / "pipe").write_text, args=["\n".join(SENTENCES)], daemon=True)
    writer.start()
    embed_file(encoder, Path("-"), tmp_path / "e.npy", None, False)
    writer.join()
    index = Index.open(tmp_path / "e.npy", encoder)
    np.testing.assert_allclose(index.vectors, encoder.encode(SENTENCES), atol=1e-6)
    with pytest.raises(InputError, match="came from standard input and were not kept; embed a file"):
        index.texts()


# Search and mining equal brute force: the whole matrix from scipy, sorted.


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


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("queries", [1, 2, 7])
@pytest.mark.parametrize("hidden", [64, 384, 768])
def test_equal_vectors_come_in_the_order_of_rows_wherever_blocks_end(hidden, queries, first):
    """Products of other shapes, and columns that a block's product has left over, are rounded in another way."""
    generator = np.random.default_rng(hidden)
    vector = generator.normal(size=hidden).astype(np.float32)
    asked = vector + generator.normal(size=(queries, hidden)).astype(np.float32)
    rows = np.tile(vector, (100, 1))
    among = np.arange(first, 100) if first else None
    for chunk in (1000, 99, 97, 64, 33, 30):
        found = search(asked, rows, 99, chunk, among)
        np.testing.assert_array_equal(found.indices, np.tile(np.arange(first, 100)[:99], (queries, 1)))


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
    read, unit = [], searching._unit
    monkeypatch.setattr(searching, "_unit", lambda part: read.append(len(part)) or unit(part))
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

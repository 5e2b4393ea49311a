"""Mined negatives equal those of slow loops over all texts, and those of sentence-transformers."""

import json
import re
from contextlib import nullcontext
from hashlib import sha256
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.examples import TextCounts
from multitask.data.tables import Format
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.use import mine as module
from multitask.use.embed import Index, embed_file
from multitask.use.hard_negatives import HardNegatives
from multitask.use.mine import choose_negatives, formats_of, index_of, mined_rows, negatives_of, read_pairs
from tests.multitask.declared import tasks_file

WORDS = [f"{first} {second}" for first, second in product(["red", "green", "blue", "old", "new"], repeat=2)]


class Stub:
    """Random embeddings that depend on the text alone, whatever its case and marks; no prompt of its own."""

    name, identity, counts = "stub", "0", TextCounts()

    def encode(self, texts, normalize=False, dimensions=None, prompt=None, long="head"):
        drawn = [np.random.default_rng([*sha256(key(text).encode()).digest()]).normal(size=16) for text in texts]
        found = np.array(drawn, np.float32)[:, :dimensions]
        return found / np.linalg.norm(found, axis=1, keepdims=True) if normalize else found


def key(text):
    return re.sub(r"\W", "", text).lower()


def cosine(first, second):
    a, b = Stub().encode([first, second], normalize=True).astype(np.float64)
    return float(a @ b)


def slow_negatives(anchors, positives, corpus, options, same_meaning):
    """The nearest first negatives of each anchor, by its key."""
    found, pairs = {}, [(key(a), key(b)) for a, b in zip(anchors, positives, strict=True)]
    for anchor in anchors:
        own = [b for a, b in zip(anchors, positives, strict=True) if key(a) == key(anchor)]
        known = {key(anchor), *map(key, own)}
        known |= {key(a) for a, b in zip(anchors, positives, strict=True) if key(b) == key(anchor)}
        for _ in pairs if same_meaning else ():  # no chain is longer
            known |= {text for pair in pairs if known & {*pair} for text in pair}
        candidates = {}
        for text in corpus:
            if key(text) not in known:
                candidates.setdefault(key(text), text)
        nearest = sorted(candidates.values(), key=lambda text: -cosine(anchor, text))
        lowest = min(cosine(anchor, positive) for positive in own)
        limit = lowest - (options.margin or 0)
        if options.relative_margin is not None:
            limit = min(limit, lowest - abs(lowest) * (1 - options.relative_margin))
        elif options.margin is None:
            limit = 1.0
        within = [text for text in nearest[slice(*options.ranks)] if cosine(anchor, text) <= limit]
        found[key(anchor)] = within[: options.negatives]
    return found


TEXTS = st.sampled_from([*WORDS, "Red, green!", "OLD NEW", "old\nnew."])
OPTIONS = st.builds(
    HardNegatives,
    ranks=st.sampled_from([(0, 5), (2, 9), (0, 100), (20, 40)]),
    margin=st.sampled_from([None, 0.0, 0.2]),
    relative_margin=st.sampled_from([None, 0.5, 0.95]),
    negatives=st.integers(1, 4),
)
ANY = HardNegatives(relative_margin=None, negatives=4)


@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8),
    st.lists(TEXTS, min_size=1, max_size=30),
    OPTIONS,
    st.booleans(),
)
@example([("red red", "red green"), ("red blue", "red green")], ["red red", "red green", "red blue", "old"], ANY, True)
def test_negatives_equal_a_slow_loop(tmp_path_factory, pairs, corpus, options, same_meaning):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "t.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in corpus))
    embed_file(Stub(), folder / "t.jsonl", folder / "e.npy", "text", False)
    anchors, positives = map(list, zip(*pairs, strict=True))
    index = Index.open(folder / "e.npy", Stub())
    negatives = negatives_of(Stub(), pairs, index, options, same_meaning)
    expected = slow_negatives(anchors, positives, corpus, options, same_meaning)
    assert [[key(corpus[row]) for row in rows] for rows in negatives.values()] == [
        list(map(key, texts)) for texts in expected.values()
    ]
    first = [key(text) for text in corpus]
    assert all(row == first.index(first[row]) for rows in negatives.values() for row in rows)
    triplets = list(mined_rows(pairs, negatives, index, "triplets"))
    lines = [tuple(" ".join(text.split()) for text in pair) for pair in pairs]
    assert [(a, p) for a, p, _ in triplets] == [pair for pair in lines for _ in expected[key(pair[0])]]
    labelled = list(mined_rows(pairs, negatives, index, "pairs"))
    assert [(a, p) for a, p, label in labelled if label] == lines
    assert sum(not label for *_, label in labelled) == sum(map(len, negatives.values()))


def test_random_negatives_are_drawn_among_all_that_may_be_and_by_the_seed():
    scores, usable = np.linspace(1, 0, 12, dtype=np.float32), np.arange(12) != 3
    options = HardNegatives(ranks=(1, 8), negatives=2, sampling="random")

    def drawn(seed):
        draw = np.random.default_rng(seed)
        return np.array([choose_negatives(scores, usable, 0.7, options, draw) for _ in range(4000)])

    chosen = drawn(0)
    shares = np.bincount(chosen.ravel(), minlength=12) / 4000
    # rank 1 is skipped, 3 is known, up to column 3 the cosine is too high, 8 is the last
    np.testing.assert_allclose(shares[4:9], 2 / 5, atol=0.04)
    assert not shares[[0, 1, 2, 3, 9, 10, 11]].any()
    assert (drawn(0) == chosen).all()
    assert (drawn(1) != chosen).any()


def test_blocks_of_anchors_change_nothing(tmp_path, monkeypatch):
    pairs = list(zip(WORDS[:9], WORDS[9:18], strict=True))
    options = HardNegatives(ranks=(0, 6), negatives=2, sampling="random", relative_margin=None)
    with index_of(Stub(), pairs, None, None, tmp_path / "new" / "o.csv", Format()) as corpus:
        assert sorted(corpus.texts()) == sorted(WORDS[:18])
        whole = negatives_of(Stub(), pairs, corpus, options)
        monkeypatch.setattr(module, "ANCHORS_PER_BLOCK", 2)
        parts = negatives_of(Stub(), pairs, corpus, options)
    assert [len(rows) for rows in whole.values()] == [2] * 9
    assert parts == whole
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("datasets") is None,
    reason="needs the extras sentence-transformers and datasets",
)
@pytest.mark.parametrize(("margin", "share", "negatives"), [(None, None, 4), (0.1, None, 3), (None, 0.9, 2)])
def test_sentence_transformers_mines_the_same(tmp_path, margin, share, negatives):
    from datasets import Dataset
    from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

    class Model(Stub):
        device, similarity, similarity_pairwise = "cpu", staticmethod(cos_sim), staticmethod(pairwise_cos_sim)

        def encode_query(self, texts, **_):
            return self.encode(texts, normalize=True)

        encode_document = encode_query

    anchors, positives = WORDS[:8], WORDS[8:16]
    theirs = mine_hard_negatives(
        Dataset.from_dict({"anchor": anchors, "positive": positives}),
        Model(),
        corpus=WORDS[8:],
        range_max=10,
        absolute_margin=margin,
        relative_margin=None if share is None else 1 - share,
        num_negatives=negatives,
        verbose=False,
    )
    (tmp_path / "t.txt").write_text("\n".join(WORDS[8:]))
    options = HardNegatives(ranks=(0, 10), margin=margin, relative_margin=share, negatives=negatives)
    pairs = list(zip(anchors, positives, strict=True))
    with index_of(Stub(), pairs, tmp_path / "t.txt", None, tmp_path / "o.csv", Format()) as corpus:
        rows = list(mined_rows(pairs, negatives_of(Stub(), pairs, corpus, options), corpus, "triplets"))
    assert rows == [(row["anchor"], row["positive"], row["negative"]) for row in theirs]


@pytest.mark.parametrize("column", [None, "passage: {t}", "t"])
def test_words_of_templates_hide_neither_anchors_nor_positives(column, tmp_path):
    pairs, written = list(zip(WORDS[:6], WORDS[3:9], strict=True)), ("query: {q}", "passage: {p}")
    known = {text: {text, *(pair for own in pairs if text in own for pair in own)} for text, _ in pairs}
    (tmp_path / "c.csv").write_text("t\n" + "\n".join([*WORDS[:12], '""']))  # the empty text is no negative
    corpus = None if column is None else tmp_path / "c.csv"
    options = HardNegatives(relative_margin=None, ranks=(0, 100), negatives=100)
    with index_of(Stub(), pairs, corpus, column, tmp_path / "o.csv", Format(), written) as index:
        negatives = negatives_of(Stub(), pairs, index, options, False, written)
        rows = list(mined_rows(pairs, negatives, index, "triplets", written))
    texts = WORDS[:9] if column is None else WORDS[:12]
    before = "" if column == "t" else "passage: "
    assert {row[0] for row in rows} == {f"query: {text}" for text, _ in pairs}
    assert {row[1] for row in rows} == {f"passage: {text}" for _, text in pairs}
    for text, _ in pairs:
        found = {row[2] for row in rows if row[0] == f"query: {text}"}
        assert found == {f"{before}{other}" for other in texts if other not in known[text]}


def test_long_texts_are_counted_by_what_the_user_gave_without_options_that_mining_lacks(tiny_encoder, tmp_path, caplog):
    encoder, long = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32"), "time " * 70
    (corpus := tmp_path / "c.txt").write_text(long)
    for given_corpus, counted in ((None, "sentences of the pairs: cut 1 of 2"), (corpus, f"{corpus}: cut 1 of 1")):
        caplog.clear()
        with index_of(encoder, [(long, "a film")], given_corpus, None, tmp_path / "o.csv", Format()):
            assert caplog.messages == [f"{counted} texts to 64 tokens"]


def test_pairs_of_tables_and_of_sources(tmp_path, small_data, caplog):
    (tmp_path / "t.jsonl").write_text(
        '{"q": "a", "sentence1": "b", "sentence2": "c"}\n{"q": "", "sentence1": "d", "sentence2": "e"}'
    )
    assert read_pairs(str(tmp_path / "t.jsonl"), (), small_data)[0] == [("b", "c"), ("d", "e")]
    assert not caplog.messages
    assert read_pairs(str(tmp_path / "t.jsonl"), ("q", "sentence2"), small_data)[0] == [("a", "c")]
    assert caplog.messages == [f"{tmp_path / 't.jsonl'}: left out 1 row without two sentences (line 2)"]
    (tmp_path / "t.txt").write_text("a b\tc\n\td\n")
    assert read_pairs(str(tmp_path / "t.txt"), (), small_data)[0] == [("a b", "c")]
    (tmp_path / "t.csv").write_text("sent0,sent1\n,a\n")
    with pytest.raises(InputError, match="no pair"):
        read_pairs(str(tmp_path / "t.csv"), (), small_data)
    assert all(map(all, read_pairs("quora", (), small_data)[0]))
    texts = ["query: {a}", "{b}"]
    same = {"kind": "pair_classification", "text": texts, "label": "same", "labels": [0, 1]}
    tasks = tasks_file(tmp_path, {"a": ["x", "y"], "b": ["v", "w"], "same": [1, 0]}, paraphrase=same)
    assert read_pairs("quora", (), tasks) == ([("x", "v")], tuple(texts), True)
    (tmp_path / "t.csv").write_text("q;title;body\né;b;c\n;d;e\n", encoding="cp1252")
    columns, written = ("query: {q}", "{title}. {body}"), Format(separator=";", encoding="cp1252")
    assert read_pairs(str(tmp_path / "t.csv"), columns, small_data, written)[0] == [("é", "b. c")]
    for column, corpus in ((None, ["A;B", "é"]), ("p: {A}", ["p: é"])):  # lines have no separator
        text = "A;B\né;x\n" if column else "A;B\né\n"
        (lines := tmp_path / "lines.txt").write_text(text, encoding="cp1252")
        of_corpus = formats_of("t.csv", lines, column, written)[1]
        with index_of(Stub(), [("a", "b")], lines, column, tmp_path / "o.csv", of_corpus) as index:
            assert list(index.texts()) == corpus


@pytest.mark.parametrize(
    ("pairs", "corpus", "of_pairs", "of_corpus"),
    [
        ("p.xlsx", "c.csv", {"sheet": "S", "skip_rows": 2}, {"quotes": False, "encoding": "cp1252", "skip_rows": 2}),
        ("p.xlsx", "c.npy", {"sheet": "S", "skip_rows": 2}, None),
        ("p.csv", "c.xlsx", {"quotes": False, "encoding": "cp1252", "skip_rows": 2}, {"sheet": "S", "skip_rows": 2}),
        ("hf:p", "c.xlsx", {}, None),
        ("quora", "c.txt", {}, None),
        ("quora", None, {}, None),
    ],
)
def test_options_of_a_format_are_for_the_files_that_have_it(pairs, corpus, of_pairs, of_corpus):
    """Where neither file has one, the options are refused."""
    written = Format(sheet="S", quotes=False, encoding="cp1252", skip_rows=2)
    refused = pytest.raises(InputError, match=r"neither the pairs nor the corpus has (quotes|encoding|skip_rows), ")
    with refused if of_corpus is None else nullcontext():
        found = formats_of(pairs, None if corpus is None else Path(corpus), "t", written)
        assert found == (Format(**of_pairs), Format(**of_corpus))

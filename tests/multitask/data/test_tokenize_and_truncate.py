"""Cached tokens equal fresh ones, and the cache's key covers everything that determines them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minbert.config import BertConfig
from minbert.files import write_json
from minbert.tokenizer import Ids, Tokenizer, load_tokenizer
from multitask.data.examples import Examples, LabelledData
from multitask.data.tokenize_and_truncate import Tokens, cache_folder, tokenise
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from tests.conftest import word_piece

TEXTS = ["A band seemed to have a good time.", "", "time " * 200, "ünïcödé \u4e2d\u6587 🙂"]
SECOND = ["It was loud.", "an answer", "", "short " * 100]


@pytest.fixture
def tokenizer(tiny_encoder: Path) -> Tokenizer:
    return load_tokenizer(str(tiny_encoder))


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULTITASK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def assert_rows(tokens: Tokens, ids: list[Ids], types: list[Ids] | None = None) -> None:
    assert len(tokens) == len(ids)
    np.testing.assert_array_equal(tokens.lengths, [len(row) for row in ids])
    for row, expected in enumerate(ids):
        np.testing.assert_array_equal(tokens[row], expected)
        np.testing.assert_array_equal(tokens.types_of(row), types[row] if types else np.zeros(len(expected)))


def refuse(*_: object) -> None:
    raise AssertionError("tokenised again")


@pytest.mark.parametrize("max_length", [None, 3, 11])
def test_tokens_equal_direct_encoding_fresh_and_cached(tokenizer, max_length, monkeypatch):
    expected = tokenizer.encode(TEXTS, max_length)
    ids, types = tokenizer.encode_pairs(TEXTS, SECOND, max_length)
    assert {0, 1} == {int(kind) for row in types for kind in row} or max_length == 3
    for _ in range(2):
        assert_rows(tokenise(TEXTS, tokenizer, max_length), expected)
        assert_rows(tokenise(TEXTS, tokenizer, max_length, SECOND), ids, types)
        monkeypatch.setattr(Tokenizer, "encode_and_count_cut", refuse)


def test_the_key_covers_texts_length_tokenizer_and_jointness(tokenizer, tiny_encoder, tmp_path):
    other = Tokenizer(word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "time"]), tokenizer.max_length, {})
    shorter = tmp_path / "shorter"  # the same tokenizer with an encoder of a smaller maximal length
    shorter.mkdir()
    tokenizer.save(shorter)
    write_json(
        shorter / "config.json",
        replace(BertConfig.from_file(tiny_encoder / "config.json"), max_position_embeddings=9).to_dict(),
    )
    calls = [
        (TEXTS, tokenizer, None, None),
        (TEXTS, tokenizer, 5, None),
        (SECOND, tokenizer, None, None),
        (TEXTS, other, None, None),
        (TEXTS, load_tokenizer(str(shorter)), None, None),
        (TEXTS, tokenizer, None, SECOND),
        (SECOND, tokenizer, None, TEXTS),
        (["a", "time"], tokenizer, None, None),
        (['a", "time'], tokenizer, None, None),
    ]
    for texts, which, length, second in calls:
        expected = which.encode_pairs(texts, second)[0] if second else which.encode(texts, length)
        tokens = tokenise(texts, which, length, second)
        for row, ids in enumerate(expected):
            np.testing.assert_array_equal(tokens[row], ids)
    tokenise(TEXTS, tokenizer, tokenizer.max_length)  # the same as None
    assert len(list((cache_folder() / "tokens").glob("*.npz"))) == len(calls)


def test_a_failed_encoding_leaves_no_cache(tokenizer, monkeypatch, fresh_cache):
    monkeypatch.setattr(Tokenizer, "encode_and_count_cut", refuse)
    with pytest.raises(AssertionError):
        tokenise(TEXTS, tokenizer, None)
    assert not [path for path in (fresh_cache / "tokens").rglob("*") if path.suffix != ".lock"]


def test_many_at_once_fill_one_cache(tokenizer, tiny_encoder):
    def work(number: int) -> Tokens:
        return tokenise([*TEXTS, str(number // 6)], load_tokenizer(str(tiny_encoder)), None)

    with ThreadPoolExecutor(6) as threads:
        for number, tokens in enumerate(threads.map(work, range(60))):
            assert_rows(tokens, tokenizer.encode([*TEXTS, str(number // 6)]))


def test_labelled_rows_come_as_all_first_then_all_second_sentences(tokenizer, tmp_path):
    rows = [("0", "a", "good time", "the band", "1"), ("1", "b", "loud", "it was a long good time", "0")]
    lines = ["\tid\tsentence1\tsentence2\tis_duplicate", *("\t".join(row) for row in rows)]
    (tmp_path / "quora-dev.csv").write_text("\n".join(lines) + "\n")
    examples = load_rows(task_named(tmp_path, "paraphrase"), "dev")
    apart = LabelledData.tokenised(examples, tokenizer, None, joint=False)
    picked = np.array([1, 0, 1])
    ids, types = apart.sequences(picked)
    expected = tokenizer.encode([rows[i][2] for i in picked] + [rows[i][3] for i in picked])
    assert [list(row) for row in ids] == [list(row) for row in expected]
    assert not any(np.any(row) for row in types)
    first, second = tokenizer.encode([row[2] for row in rows]), tokenizer.encode([row[3] for row in rows])
    np.testing.assert_array_equal(apart.lengths, [len(a) + len(b) for a, b in zip(first, second, strict=True)])

    joint = LabelledData.tokenised(examples, tokenizer, None, joint=True)
    ids, types = joint.sequences(picked)
    expected_ids, expected_types = tokenizer.encode_pairs([rows[i][2] for i in picked], [rows[i][3] for i in picked])
    assert [list(row) for row in ids] == [list(row) for row in expected_ids]
    assert [list(row) for row in types] == [list(row) for row in expected_types]


@pytest.mark.parametrize("max_length", [None, 3, 11])
def test_cut_texts_are_counted_and_said_once(tokenizer, max_length, caplog):
    whole = tokenizer.lengths(TEXTS)
    limit = tokenizer.max_length if max_length is None else max_length
    cut = sum(int(length) > limit for length in whole)
    for _ in range(2):  # fresh and cached
        tokens = tokenise(TEXTS, tokenizer, max_length)
        assert tokens.cut == cut
        np.testing.assert_array_equal(tokens.lengths, np.minimum(whole, limit))
    examples = Examples((TEXTS, SECOND), None, (), None, "data.csv")
    LabelledData.tokenised(examples, tokenizer, max_length, joint=False)
    cut += sum(int(length) > limit for length in tokenizer.lengths(SECOND))
    assert caplog.messages == [f"data.csv: cut {cut} of 8 texts to {limit} tokens (--max-length)"]

"""Texts on disk behave like a list, and rows keep their texts, labels and ids together."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multitask.data import examples
from multitask.data.examples import Examples, Texts, TextsWriter, stored_rows, texts_of, write_rows

TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "ROWS_PER_BLOCK", 4)


def on_disk(folder: Path, texts: list[str]) -> Texts:
    for path in folder.iterdir():  # not overwritten: earlier texts are still mapped
        path.unlink()
    with TextsWriter(folder, 1) as writer:
        for text in texts:
            writer.add([text])
    write_rows(folder, None, {"rows": len(texts)})
    (column,), labels, facts = stored_rows(folder)
    assert labels is None
    assert facts == {"rows": len(texts)}
    return column


@given(texts=TEXTS, data=st.data())
@settings(max_examples=150)
def test_texts_on_disk_are_a_list(folder, texts, data):
    stored = on_disk(folder, texts)
    for _ in range(3):  # also of slices and of rows taken from rows
        assert list(stored) == texts
        assert [stored[i] for i in range(-len(texts), len(texts))] == texts * 2
        assert len(stored) == len(texts)
        for text in texts[:2]:
            assert text in stored
            assert stored.index(text) == texts.index(text)
        with pytest.raises(IndexError):
            stored[len(texts)]
        if data.draw(st.booleans()):
            part = data.draw(st.slices(len(texts)))
            stored, texts = stored[part], texts[part]
        elif texts:
            rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=12)), np.int64)
            texts = texts_of(texts, rows)
            stored = texts_of(stored, rows)
            assert isinstance(stored, Texts)


def test_columns_and_labels_are_stored(tmp_path):
    rows = [(str(i), f"first {i}", f"second {i}") for i in range(9)]
    labels = np.arange(18, dtype=np.float32).reshape(9, 2)
    with TextsWriter(tmp_path, 3) as writer:
        for row in rows:
            writer.add(row)
    write_rows(tmp_path, labels, {"classes": ["é", "b"]})
    columns, found, facts = stored_rows(tmp_path)
    assert list(zip(*columns, strict=True)) == rows
    assert found is not None
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, labels)
    assert facts == {"classes": ["é", "b"]}


def test_taken_rows_keep_texts_labels_and_ids_together():
    whole = Examples((["a", "b", "c"],), np.array([0, 1, 2], np.float32), (), ["x", "y", "z"], "file", "f", "i", 2)
    part = whole.take(np.array([2, 0]))
    assert part.sentences == (["c", "a"],)
    assert part.labels is not None
    assert part.labels.tolist() == [2, 0]
    assert part.ids == ["z", "x"]
    assert len(part) == 2
    identities = {whole.identity, part.identity, *(whole.take(np.array(rows)).identity for rows in ([0, 2], [0]))}
    assert len(identities) == 4  # the cache of tokens tells them apart
    assert whole.take(np.array([2, 0])).identity == part.identity

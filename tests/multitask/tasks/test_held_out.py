"""Held-out rows are no training rows, are spread over the labels, and are always the same."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.contamination import hash_sentences, normalised
from multitask.data.examples import Examples
from multitask.data.tables import RowsFrom
from multitask.tasks.read_examples import held_out, held_out_sentences, load_rows, load_training_rows
from tests.conftest import with_files
from tests.multitask.data.test_tables import write
from tests.multitask.tasks.test_read_examples import json_file, topic


def test_tasks_hold_out_the_same_texts_whatever_their_words(tmp_path):
    write(tmp_path, "q,c\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40)))
    plain, asked = (
        load_rows(with_files(topic(text=text, dev_share=0.3), train=RowsFrom(str(tmp_path / "data.csv"))), "dev")
        for text in ("q", "query: {q}")
    )
    assert plain.sentences == asked.sentences
    assert asked.take(np.array([1])).texts == [[f"query: {plain.sentences[0][1]}"]]


def examples_of(rows: list[tuple[str, float]], classes: tuple[str, ...] = ()) -> Examples:
    labels = np.array([label for _, label in rows], np.float32)
    return Examples(([text for text, _ in rows],), labels, classes, None, "train.csv")


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from([f"t{i}" for i in range(40)] + ["T1!", "t 2"]), st.integers(0, 3)), min_size=8),
    st.floats(0.05, 0.6),
)
def test_held_out_rows_share_no_text_with_the_others(rows, share):
    whole = examples_of(rows, tuple("abcd"))
    try:
        training, dev = held_out(whole, share)
    except InputError:
        different = len({normalised(text) for text, _ in rows})
        assert not 0 < round(different * share) <= different - 4  # a class with one text holds out none
        return
    assert sorted([*training, *dev]) == list(range(len(rows)))
    sides = [{normalised(rows[row][0]) for row in side} for side in (training, dev)]
    assert not sides[0] & sides[1]
    assert all(sides)
    assert len(sides[1]) == round((len(sides[0]) + len(sides[1])) * share)
    again = held_out(whole, share)
    assert [list(side) for side in again] == [list(training), list(dev)]


@example([2, 4, 2, 21], 0.5, Random(0))  # fewer than ten rows a class
@given(st.lists(st.integers(2, 60), min_size=2, max_size=5), st.floats(0.1, 0.5), st.randoms())
def test_held_out_rows_are_spread_over_the_classes(sizes, share, random):
    rows = [(f"text {label} {i}", label) for label, size in enumerate(sizes) for i in range(size)]
    random.shuffle(rows)
    if not round(len(rows) * share):
        return
    _, dev = held_out(examples_of(rows, tuple("abcde"[: len(sizes)])), share)
    counts = np.bincount([rows[row][1] for row in dev], minlength=len(sizes))
    expected = round(len(rows) * share) * np.array(sizes) / len(rows)
    # One quantile cuts every class, and rounds it by half a row at most. These roundings move the quantile.
    rounding = 0.5 + len(sizes) / 2 * np.array(sizes) / len(rows)
    assert (abs(counts - expected) <= rounding + 1e-9).all()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_rare_label_has_training_rows(count):
    rows = [(f"text {i}", 0) for i in range(50)] + [("alone", 1), ("alone!", 1), ("other", 2)]
    training, _ = held_out(examples_of(rows, ("a", "b", "c")), 0.3 * count)
    assert {rows[row][1] for row in training} == {0, 1, 2}  # the only text of a class
    labels = (np.random.default_rng(0).random((300, 8)) < 0.3).astype(np.float32)
    for first in range(0, 300 - count, 7):
        labels[:, 7] = 0
        labels[first : first + count, 7] = 1
        whole = replace(examples_of([(f"text {i}", 0) for i in range(300)]), labels=labels)
        training, dev = held_out(whole, 0.5)
        assert labels[training, 7].any()
        # A share of 0.3 among 150 random rows has a standard error of 0.037; most rows have labels like no other row.
        np.testing.assert_allclose(labels[dev, :7].mean(axis=0), labels[:, :7].mean(axis=0), atol=0.1)


def test_held_out_pairs_are_not_training_pairs_in_the_other_order():
    first, second = [f"a{i}" for i in range(30)], [f"b{i}" for i in range(30)]
    labels = np.arange(60, dtype=np.float32)
    whole = Examples((first + second, second + first), labels, (), None, "train.csv")
    training, dev = held_out(whole, 0.3)
    assert not {row % 30 for row in training} & {row % 30 for row in dev}
    assert len(dev) == 18


def test_a_missing_development_set_is_a_share_of_the_training_rows(tmp_path, caplog):
    path = json_file(tmp_path, [{"q": f"q{i}", "c": "ab"[i % 2]} for i in range(40)])
    task = with_files(topic(), train=RowsFrom(str(path)), dev_share=0.25)
    caplog.set_level("INFO")
    training, dev = load_rows(task, "train"), load_rows(task, "dev")
    assert (len(training), len(dev)) == (30, 10)
    assert not np.intersect1d(*(hash_sentences(side.sentences[0]) for side in (training, dev))).size
    assert {*training.sentences[0], *dev.sentences[0]} == {f"q{i}" for i in range(40)}
    assert caplog.messages == ["topic: 10 of 40 training rows are its development set"]
    learned, rows = load_training_rows(task)
    assert (learned.labels, len(rows)) == (("a", "b"), 30)
    with pytest.raises(InputError, match=r"tasks\.topic: no test file is declared"):
        load_rows(task, "test")


def test_tasks_that_read_the_same_texts_hold_out_nearly_the_same_ones():
    """Otherwise a model of both tasks would be trained on most of each task's development texts."""
    draws = np.random.default_rng(0)
    texts = [f"row {number}" for number in range(4000)]
    of_class = examples_of(list(zip(texts, draws.integers(4, size=4000), strict=True)), ("a", "b", "c", "d"))
    of_number = examples_of(list(zip(texts, draws.normal(size=4000), strict=True)), ())
    first, second = (set(held_out(examples, 0.1)[1].tolist()) for examples in (of_class, of_number))
    assert len(first) == pytest.approx(400, abs=4)
    assert len(second) == pytest.approx(400, abs=8)
    assert len(first & second) > 0.85 * 400  # unrelated draws would share a tenth


# Rows that are held out of several tasks' training rows: no sentence stands in both parts.


WORDS = st.sampled_from([f"word{number}" for number in range(40)])
SINGLE = st.lists(WORDS, min_size=30, max_size=60)
PAIRS = st.lists(st.tuples(WORDS, st.text("abcdefghij", min_size=3)), min_size=30, max_size=60)


def rows(*columns: list[str]) -> Examples:
    return Examples(tuple(columns), np.zeros(len(columns[0]), np.float32), (), None, "rows.csv")


@given(SINGLE, PAIRS, st.sampled_from([0.1, 0.3, 0.5]))
def test_no_sentence_is_in_both_parts(single, pairs, share):
    tasks = {"single": rows(single), "pairs": rows(*map(list, zip(*pairs, strict=True)))}
    try:
        parts = held_out_sentences(tasks, share)
    except InputError:  # everything is linked to everything
        return
    seen: tuple[set[str], set[str]] = set(), set()
    for name, both in parts.items():
        assert sorted(np.concatenate(both)) == list(range(len(tasks[name])))
        assert 0 < len(both[1]) <= round(share * len(tasks[name]))
        for texts, part in zip(seen, both, strict=True):
            texts |= {column[row] for column in tasks[name].sentences for row in part}
    assert not seen[0] & seen[1]
    again = held_out_sentences(tasks, share)
    assert all((again[name][1] == part).all() for name, (_, part) in parts.items())


def test_the_share_is_met_where_sentences_differ():
    tasks = {"a": rows([f"a{i}" for i in range(200)]), "b": rows([f"b{i}" for i in range(100)], ["same"] * 100)}
    with pytest.raises(InputError, match=r"rows.csv: 100 rows"):  # they are all linked by one sentence
        held_out_sentences(tasks, 0.1)
    tasks["b"] = rows([f"b{i}" for i in range(100)], [f"c{i // 2}" for i in range(100)])
    parts = held_out_sentences(tasks, 0.1)
    assert [len(parts[name][1]) for name in tasks] == [20, 10]
    assert all((parts["b"][1] // 2 == np.repeat(parts["b"][1][::2] // 2, 2)).tolist())  # rows come in linked pairs

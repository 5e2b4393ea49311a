"""Rows that are held out of several tasks' training rows: no sentence stands in both parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.tasks.read_examples import held_out_sentences

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

"""Batches contain every row once and depend on nothing but the arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.examples import (
    batches_by_tokens,
    batches_of_similar_length,
    drawn_rows,
    epoch_rows,
    rows_from,
)

SIZES = st.integers(1, 40)
SEEDS = st.tuples(st.integers(0, 2**40), st.integers(0, 5))
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=200)


def stream(size, take, epochs, seed):
    return np.concatenate([epoch_rows(size, take, epoch, *seed) for epoch in range(epochs)])


@given(SIZES, SIZES, SEEDS)
def test_epochs_run_through_fresh_permutations(size, take, seed):
    epochs = -(-3 * size // take)
    rows = stream(size, take, epochs, seed)
    np.testing.assert_array_equal(rows, stream(size, take, epochs, seed))
    assert len(rows) == epochs * take
    for start in range(0, len(rows) - size + 1, size):
        assert sorted(rows[start : start + size]) == list(range(size))


@given(SIZES, st.lists(st.integers(0, 50), min_size=1, max_size=6), SEEDS)
def test_epochs_of_different_lengths_run_through_the_same_rows(size, takes, seed):
    starts = np.cumsum([0, *takes])
    parts = [rows_from(size, int(first), take, *seed) for first, take in zip(starts, takes, strict=False)]
    assert [len(part) for part in parts] == takes
    np.testing.assert_array_equal(np.concatenate(parts), epoch_rows(size, sum(takes) or 1, 0, *seed)[: sum(takes)])


def test_epochs_and_seeds_differ():
    orders = [epoch_rows(100, 100, epoch, *seed) for epoch in (0, 1) for seed in ((0, "a"), (0, "b"), (1, "a"))]
    assert len({tuple(order) for order in orders}) == len(orders)


@given(LENGTHS, st.integers(1, 9), st.data())
def test_batches_of_similar_length_partition_the_rows(lengths, batch_size, data):
    lengths = np.array(lengths)
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=600)))  # may repeat
    batches = batches_of_similar_length(rows, lengths, batch_size, np.random.default_rng(0))
    assert sorted(np.concatenate(batches)) == sorted(rows)
    sizes = sorted(map(len, batches))
    assert sizes[1:] == [batch_size] * (len(batches) - 1)
    assert sizes[0] == (len(rows) % batch_size or batch_size)


def test_batches_of_similar_length_have_similar_lengths_in_random_order():
    generator = np.random.default_rng(0)
    lengths, rows = generator.integers(1, 100, 2000), generator.permutation(2000)
    batches = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(1))
    assert np.mean([np.ptp(lengths[batch]) for batch in batches]) < 10  # a random batch of 8 spans 78
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2
    again = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(1))
    assert [list(batch) for batch in batches] == [list(batch) for batch in again]
    other = batches_of_similar_length(rows, lengths, 8, np.random.default_rng(2))
    assert [list(batch) for batch in batches] != [list(batch) for batch in other]


@given(LENGTHS, st.integers(1, 200), st.none() | st.integers(1, 7))
def test_batches_by_tokens_partition_within_budget(lengths, budget, most_rows):
    lengths = np.array(lengths)
    batches = list(batches_by_tokens(lengths, budget, most_rows))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    flat = lengths[np.concatenate(batches)]
    assert (np.diff(flat) <= 0).all()  # longest first
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert lengths[batch].sum() <= budget or len(batch) == 1
        assert most_rows is None or len(batch) <= most_rows
        if following is not None and len(batch) != most_rows:  # as full as can be
            assert lengths[batch].sum() + lengths[following[0]] > budget


@pytest.mark.parametrize("most_rows", [0, -1])
def test_batches_have_a_row_or_more(most_rows):
    with pytest.raises(InputError, match=f"batch_size is {most_rows}; expected at least 1"):
        next(batches_by_tokens(np.array([3]), 10, most_rows))


@given(size=st.integers(0, 300), limit=st.integers(1, 400))
def test_a_limit_draws_rows_from_anywhere_but_always_the_same(size, limit):
    rows = drawn_rows(size, limit)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == min(size, limit)
    assert set(rows.tolist()) <= set(range(size))
    assert drawn_rows(size, limit).tolist() == rows.tolist()
    assert drawn_rows(size, None).tolist() == list(range(size))
    tenths = np.bincount(drawn_rows(8544, 480) // 854, minlength=10)  # a file may be sorted
    assert (abs(tenths[:10] - 48) < 25).all()

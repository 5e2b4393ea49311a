"""Shuffle rows and cut them into batches.

All functions depend on sizes, lengths and a seed only, so a resumed run sees the same batches.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.examples import Rows
from multitask.runtime.random_streams import generator

# Rows are sorted by length within stretches of this many batches: lengths are similar within a batch, and the order of
# the batches stays random.
BATCHES_PER_STRETCH = 32


def drawn_rows(size: int, limit: int | None) -> Rows:
    """At most `limit` rows of a set, in order.

    They are drawn at random because files may be sorted, but always the same ones for the same arguments.
    """
    if limit is None or limit >= size:
        return np.arange(size)
    return np.sort(generator(0, "rows of a limit", size).permutation(size)[:limit])


def epoch_rows(size: int, take: int, epoch: int, seed: int, source: str) -> Rows:
    """The rows of one epoch: the next `take` rows of an endless stream of new permutations of all `size` rows.

    A set larger than `take` is thus sampled differently in each epoch (from 0), and is seen whole after size / take
    epochs. Each source has its own order.
    """
    return rows_from(size, epoch * take, take, seed, source)


def rows_from(size: int, first: int, take: int, seed: int, source: str) -> Rows:
    """`take` rows (0 or more) of the same stream, after its first `first` rows: for epochs of different lengths."""
    passes = range(first // size, -(-(first + take) // size))
    permutations = [generator(seed, "row order", source, number).permutation(size) for number in passes]
    return np.concatenate([np.empty(0, np.int64), *permutations])[first - passes.start * size :][:take]


def batches_of_similar_length(
    rows: Rows, lengths: NDArray[np.int64], batch_size: int, order: np.random.Generator
) -> list[Rows]:
    """Cut shuffled rows into batches of similar length, in random order. One batch may be smaller: the remainder."""
    stretch = batch_size * BATCHES_PER_STRETCH
    batches = []
    for start in range(0, len(rows), stretch):
        part = rows[start : start + stretch]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    return [batches[i] for i in order.permutation(len(batches))]


def batches_by_tokens(lengths: NDArray[np.int64], budget: int, most_rows: int | None = None) -> Iterator[Rows]:
    """All rows, longest first, in batches of at most `budget` tokens (or of one longer row). For evaluation.

    The longest rows come first, so that a batch that does not fit into memory fails at once. Raises InputError for
    batches of less than one row.
    """
    if most_rows is not None and most_rows < 1:
        raise InputError(f"batch_size is {most_rows}; expected at least 1")
    order = np.argsort(-lengths, kind="stable")
    totals = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = totals[start - 1] if start else 0
        end = max(int(np.searchsorted(totals, before + budget, side="right")), start + 1)
        end = min(end, start + (most_rows or len(order)))
        yield order[start:end]
        start = end

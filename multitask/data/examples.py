"""Labelled or unlabelled rows of a task, and the same rows with their tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minbert.config import Long
from minbert.errors import InputError
from minbert.tokenizer import Ids, Tokenizer
from multitask.base import logger
from multitask.base.random_streams import generator
from multitask.data.texts import Template, in_words

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """The rows of one split of a task, in file order."""

    sentences: tuple[list[str], ...]  # one column per sentence of a row, each with one text per row
    # fp32 [rows], or [rows, labels] of several labels a row; None when read without labels. A class is the number of
    # its name.
    labels: NDArray[np.float32] | None
    classes: tuple[str, ...]  # names of the classes, in the order of their numbers; empty for other labels
    ids: list[str] | None  # one per row; None if the file has no ids
    source: str  # the file or data set
    # number of rows left out because their label or a sentence is empty, or because they repeat others
    dropped: int = 0
    # of each row in its file: its first line in text files, otherwise counted from 1; None if it has none
    numbers: RowNumbers | None = None
    weights: NDArray[np.float32] | None = None  # of each row in the loss, fp32 [rows]; None: all equal
    # what makes the texts that a model reads of each column of sentences; empty: nothing, they are the texts
    words: tuple[Template, ...] = ()
    # these texts, if the rows of a column have different words; empty: `words` make them
    whole: tuple[list[str], ...] = ()
    long: Long = "head"  # how texts with more tokens than the encoder takes are read

    def __len__(self) -> int:
        return len(self.sentences[0])

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The sentences as a model reads them."""
        return self.whole or in_words(self.words, self.sentences)

    @property
    def gold(self) -> NDArray[np.float32]:
        """The labels. The rows must have been read with labels."""
        assert self.labels is not None, "these rows were read without labels"
        return self.labels

    def take(self, rows: RowNumbers) -> "Examples":
        """Some of the rows, in this order."""
        return replace(
            self,
            sentences=tuple(texts_of(texts, rows) for texts in self.sentences),
            labels=None if self.labels is None else self.labels[rows],
            ids=None if self.ids is None else texts_of(self.ids, rows),
            numbers=None if self.numbers is None else self.numbers[rows],
            weights=None if self.weights is None else self.weights[rows],
            whole=tuple(texts_of(texts, rows) for texts in self.whole),
        )


def texts_of(texts: Sequence[str], rows: RowNumbers) -> list[str]:
    """The texts of these rows, in this order."""
    return [texts[row] for row in rows]


@dataclass(frozen=True)
class Tokens:
    """Token sequences, one per row, laid end to end."""

    ids: Ids  # [total] int32
    types: Ids | None  # [total] int32 token types; None if all are zero
    offsets: NDArray[np.int64]  # [rows + 1]
    cut: int = 0  # number of rows that were longer than the maximal length: cut, or read in windows
    unread: int = 0  # number of rows of which the tokenizer knows less than half

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each row, [rows]."""
        return np.diff(self.offsets)

    def spread(self, rows: RowNumbers, size: int) -> "Tokens":
        """The same sequences as those of these rows of `size` rows, in order; all others have no tokens."""
        lengths = np.zeros(size, np.int64)
        lengths[rows] = self.lengths
        return replace(self, offsets=np.concatenate([[0], np.cumsum(lengths)]))

    def __getitem__(self, row: int) -> Ids:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def types_of(self, row: int) -> Ids:
        """Token types of one row."""
        ids = self[row]
        return np.zeros_like(ids) if self.types is None else self.types[self.offsets[row] : self.offsets[row + 1]]


def tokenise(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    second: Sequence[str] | None = None,
    long: Long = "head",
) -> Tokens:
    """Tokenise texts, with second ones jointly (`[CLS] text [SEP] second [SEP]`); `long` says how long ones are cut."""
    inputs = texts if second is None else list(zip(texts, second, strict=True))
    ids, types, cut, unread = tokenizer.encode_and_count(inputs, max_length, long)
    offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    return Tokens(_joined(ids), None if second is None else _joined(types), offsets, cut, unread)


def tokenise_columns(
    columns: Sequence[Sequence[str]], tokenizer: Tokenizer, max_length: int | None, joint: bool, long: Long = "head"
) -> list[Tokens]:
    """Tokenise columns of texts, two as one input of pairs if `joint`; these have no windows."""
    if joint and len(columns) == 2:
        return [tokenise(columns[0], tokenizer, max_length, columns[1], long)]
    return [tokenise(column, tokenizer, max_length, long=long) for column in columns]


def total_lengths(columns: Sequence[Tokens]) -> NDArray[np.int64]:
    """Number of tokens of each row over all columns, [rows]."""
    return np.sum([tokens.lengths for tokens in columns], axis=0)


def sequences_of(columns: Sequence[Tokens], rows: RowNumbers) -> tuple[list[Ids], list[Ids]]:
    """Token ids and token types of the rows, column by column."""
    ids = [tokens[row] for tokens in columns for row in rows]
    types = [tokens.types_of(row) for tokens in columns for row in rows]
    return ids, types


TOO_LONG: dict[Long, str] = {
    "head": "cut {:,} of {:,} texts to {} tokens",
    "middle": "left out the middle of {:,} of {:,} texts, which have more than {} tokens",
    "windows": "read {:,} of {:,} texts in windows of {} tokens",
}


class TextCounts:
    """Counts texts that are too long, or that a tokenizer cannot read, to warn of them once."""

    def __init__(self, texts: int = 0, unread: int = 0) -> None:
        self.texts, self.unread = texts, unread
        self.long: dict[tuple[Long, int], tuple[int, int]] = {}  # too long ones, and all, by how and at which length

    def add(self, texts: int, unread: int) -> None:
        """Count further texts, and how many of them are unread."""
        self.texts, self.unread = self.texts + texts, self.unread + unread

    def add_long(self, texts: int, too_long: int, length: int, long: Long) -> None:
        """Count how many of further texts have more tokens than `length`."""
        too_long_before, texts_before = self.long.get((long, length), (0, 0))
        self.long[long, length] = too_long_before + too_long, texts_before + texts

    def __str__(self) -> str:
        return (
            f"most tokens of {self.unread:,} of {self.texts:,} texts are unknown ([UNK]), so the model can hardly tell "
            "these texts apart; take a model whose vocabulary has their script"
        )

    def warn(self, source: object, remedy: str = "") -> None:
        """Log a warning of each kind if there are any, and begin anew; the remedy is for texts that are too long."""
        counted, self.long = self.long, {}  # first: another thread may count while warnings are written
        for (long, length), (too_long, texts) in counted.items():
            if too_long:
                logger.warning("%s: %s%s", source, TOO_LONG[long].format(too_long, texts, length), remedy)
        if self.unread:
            logger.warning("%s: %s", source, str(self))
        self.texts = self.unread = 0


def warn_of_tokens(
    source: str, columns: Sequence[Tokens], tokenizer: Tokenizer, max_length: int | None, long: Long = "head"
) -> None:
    """Log one warning that counts texts that are too long, and one of those that the tokenizer cannot read."""
    counts = TextCounts(sum(map(len, columns)), sum(tokens.unread for tokens in columns))
    length = tokenizer.max_length if max_length is None else max_length
    counts.add_long(counts.texts, sum(tokens.cut for tokens in columns), length, long)
    counts.warn(source, " (max_length of the training)")


def _joined(rows: Sequence[Ids]) -> Ids:
    return np.concatenate([np.empty(0, np.int32), *rows])


@dataclass(frozen=True)
class LabelledData:
    """The examples of one split of one task, tokenised."""

    examples: Examples
    columns: tuple[Tokens, ...]  # one per sentence column, or a single joint one
    # [rows, sequences, hidden] of an encoder that is not trained; defined for rows with tokens
    embeddings: NDArray[np.float32] | None = None

    @classmethod
    def tokenised(
        cls,
        examples: Examples,
        tokenizer: Tokenizer,
        max_length: int | None,
        joint: bool,
        rows: RowNumbers | None = None,
    ) -> "LabelledData":
        """Tokenise examples, pairs as one input if `joint`; warnings count texts that are cut or unread.

        If `rows` are given, in order, all others get no tokens.
        """
        texts = examples.texts if rows is None else [texts_of(column, rows) for column in examples.texts]
        columns = tokenise_columns(texts, tokenizer, max_length, joint, examples.long)
        warn_of_tokens(examples.source, columns, tokenizer, max_length, examples.long)
        if rows is not None:
            columns = [column.spread(rows, len(examples)) for column in columns]
        return cls(examples, tuple(columns))

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each row, over all its sentences, [rows]."""
        return total_lengths(self.columns)

    def sequences(self, rows: RowNumbers) -> tuple[list[Ids], list[Ids]]:
        """Token ids and token types of the rows' first sentences, then of their second ones unless encoded jointly."""
        return sequences_of(self.columns, rows)


# Rows are sorted by length within stretches of this many batches: lengths are similar within a batch, and the order of
# the batches stays random.
BATCHES_PER_STRETCH = 32


def drawn_rows(size: int, limit: int | None) -> RowNumbers:
    """At most `limit` rows of a set, in order.

    They are drawn at random because files may be sorted, but always the same ones for the same arguments.
    """
    if limit is None or limit >= size:
        return np.arange(size)
    return np.sort(generator(0, "rows of a limit", size).permutation(size)[:limit])


def epoch_rows(size: int, take: int, epoch: int, seed: int, source: str) -> RowNumbers:
    """The rows of one epoch: the next `take` rows of an endless stream of new permutations of all `size` rows.

    A set larger than `take` is thus sampled differently in each epoch (from 0), and is seen whole after size / take
    epochs. Each source has its own order.
    """
    return rows_from(size, epoch * take, take, seed, source)


def rows_from(size: int, first: int, take: int, seed: int, source: str) -> RowNumbers:
    """`take` rows (0 or more) of the same stream, after its first `first` rows: for epochs of different lengths."""
    passes = range(first // size, -(-(first + take) // size))
    permutations = [generator(seed, "row order", source, number).permutation(size) for number in passes]
    return np.concatenate([np.empty(0, np.int64), *permutations])[first - passes.start * size :][:take]


def batches_of_similar_length(
    rows: RowNumbers, lengths: NDArray[np.int64], batch_size: int, order: np.random.Generator
) -> list[RowNumbers]:
    """Cut shuffled rows into batches of similar length, in random order. One batch may be smaller: the remainder."""
    stretch = batch_size * BATCHES_PER_STRETCH
    batches = []
    for start in range(0, len(rows), stretch):
        part = rows[start : start + stretch]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    return [batches[i] for i in order.permutation(len(batches))]


def batches_by_tokens(lengths: NDArray[np.int64], budget: int, most_rows: int | None = None) -> Iterator[RowNumbers]:
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

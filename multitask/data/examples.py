"""Labelled or unlabelled rows of a task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """The rows of one split of a task, in file order.

    Args:
        sentences: one column per sentence of a row, each with one text per row.
        labels: fp32 [rows], or [rows, labels] of several labels a row; None when read without labels. A class is the
            number of its name.
        classes: names of the classes, in the order of their numbers; empty for other labels.
        ids: one per row, unique; None if the file has no ids.
        source: the file or data set.
        dropped: number of rows left out because their label or a sentence is empty.
        numbers: of each row in its file: its first line in text files, otherwise counted from 1; None if it has none.
    """

    sentences: tuple[list[str], ...]
    labels: NDArray[np.float32] | None
    classes: tuple[str, ...]
    ids: list[str] | None
    source: str
    dropped: int = 0
    numbers: Rows | None = None

    def __len__(self) -> int:
        return len(self.sentences[0])

    def take(self, rows: Rows) -> "Examples":
        """Some of the rows, in this order."""
        return replace(
            self,
            sentences=tuple(texts_of(texts, rows) for texts in self.sentences),
            labels=None if self.labels is None else self.labels[rows],
            ids=None if self.ids is None else texts_of(self.ids, rows),
            numbers=None if self.numbers is None else self.numbers[rows],
        )


def texts_of(texts: Sequence[str], rows: Rows) -> list[str]:
    """The texts of these rows, in this order."""
    return [texts[row] for row in rows]

"""Token ids of texts, cut to a maximal length."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minbert.tokenizer import Ids, Tokenizer


@dataclass(frozen=True)
class Tokens:
    """Token sequences, one per row, laid end to end."""

    ids: Ids  # [total] int32
    types: Ids | None  # [total] int32 token types; None if all are zero
    offsets: NDArray[np.int64]  # [rows + 1]
    cut: int = 0  # number of rows that were longer than the maximal length

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each row, [rows]."""
        return np.diff(self.offsets)

    def __getitem__(self, row: int) -> Ids:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def types_of(self, row: int) -> Ids:
        """Token types of one row."""
        ids = self[row]
        return np.zeros_like(ids) if self.types is None else self.types[self.offsets[row] : self.offsets[row + 1]]


def tokenise(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int | None, second: Sequence[str] | None = None
) -> Tokens:
    """Tokenise and truncate texts, with second ones jointly: `[CLS] text [SEP] second [SEP]`."""
    inputs = texts if second is None else list(zip(texts, second, strict=True))
    ids, types, cut = tokenizer.encode_and_count_cut(inputs, max_length)
    offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    return Tokens(_joined(ids), None if second is None else _joined(types), offsets, cut)


def _joined(rows: Sequence[Ids]) -> Ids:
    return np.concatenate([np.empty(0, np.int32), *rows])

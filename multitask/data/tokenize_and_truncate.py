"""Token ids of texts, cut to a maximal length; made once and read from a memory-mapped cache afterwards."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.files import atomic_folder
from minbert.tokenizer import Ids, Tokenizer
from multitask.runs.locks import exclusive

FORMAT = 1  # raise this when the layout of cached arrays changes


@dataclass(frozen=True)
class Tokens:
    """Token sequences, one per row, laid end to end."""

    ids: Ids  # [total] int32
    types: Ids | None  # [total] int32 token types; None if all are zero
    offsets: NDArray[np.int64]  # [rows + 1]

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


def cache_folder() -> Path:
    """The folder of token caches: `$MULTITASK_CACHE`, else in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MULTITASK_CACHE") or Path(base) / "minbert-multitask")


def tokenise(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    source: str,
    second: Sequence[str] | None = None,
) -> Tokens:
    """Tokenise and truncate texts, or load their tokens from the cache.

    Args:
        texts: one text per row.
        tokenizer: the start weights' tokenizer.
        max_length: cut to this many tokens; None for the encoder's limit.
        source: identifies the texts, e.g. by their file's fingerprint and column. The cache's key is made of this,
            the tokenizer and the length.
        second: second texts, for joint encodings `[CLS] text [SEP] second [SEP]`.
    """
    length = tokenizer.max_length if max_length is None else max_length
    identity = (FORMAT, source, tokenizer.fingerprint(), length, second is not None)
    folder = cache_folder() / "tokens" / sha256(repr(identity).encode()).hexdigest()[:32]
    if not folder.is_dir():
        with exclusive(folder.with_suffix(".lock")):
            if not folder.is_dir():  # another process may have made it while this one waited
                _write(folder, texts, second, tokenizer, length)
    return Tokens(
        ids=np.asarray(np.load(folder / "ids.npy", mmap_mode="r")),
        types=np.asarray(np.load(folder / "types.npy", mmap_mode="r")) if second is not None else None,
        offsets=np.load(folder / "offsets.npy"),
    )


def _write(
    folder: Path, texts: Sequence[str], second: Sequence[str] | None, tokenizer: Tokenizer, max_length: int
) -> None:
    if second is None:
        ids, types = tokenizer.encode(texts, max_length), None
    else:
        ids, types = tokenizer.encode_pairs(texts, second, max_length)
    with atomic_folder(folder) as temporary:
        np.save(temporary / "ids.npy", np.concatenate([*ids, np.empty(0, np.int32)]))
        np.save(temporary / "offsets.npy", np.cumsum([0, *map(len, ids)], dtype=np.int64))
        if types is not None:
            np.save(temporary / "types.npy", np.concatenate([*types, np.empty(0, np.int32)]))

"""Token ids of texts, cut to a maximal length; made once and read from a cache afterwards."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import atomic_file, read_arrays
from minbert.tokenizer import Ids, Tokenizer
from multitask.runs.locks import exclusive

FORMAT = 4  # raise this when the content of the cache's files changes


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


def cache_folder() -> Path:
    """The folder of token caches: `$MULTITASK_CACHE`, else in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MULTITASK_CACHE") or Path(base) / "minbert-multitask")


def tokenise(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    second: Sequence[str] | None = None,
) -> Tokens:
    """Tokenise and truncate texts (with second ones: `[CLS] text [SEP] second [SEP]`), or load their cached tokens."""
    length = tokenizer.max_length if max_length is None else max_length
    hashes = [_hash(column) for column in (texts, second) if column is not None]
    identity = (FORMAT, hashes, tokenizer.fingerprint(), length)
    path = cache_folder() / "tokens" / f"{sha256(repr(identity).encode()).hexdigest()[:32]}.npz"
    if not path.is_file():
        with exclusive(path.with_suffix(".lock")):
            if not path.is_file():  # another process may have made it while this one waited
                inputs = texts if second is None else list(zip(texts, second, strict=True))
                ids, types, cut = tokenizer.encode_and_count_cut(inputs, length)
                offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
                arrays: dict[str, Any] = {"ids": _joined(ids), "offsets": offsets, "cut": np.array(cut)}
                with atomic_file(path) as temporary, temporary.open("wb") as file:
                    np.savez(file, **(arrays if second is None else {**arrays, "types": _joined(types)}))
    arrays = read_arrays(path)
    return Tokens(arrays["ids"], arrays.get("types"), arrays["offsets"], int(arrays["cut"]))


def _joined(rows: Sequence[Ids]) -> Ids:
    return np.concatenate([np.empty(0, np.int32), *rows])


def _hash(texts: Sequence[str]) -> str:
    digest = sha256()
    for text in texts:
        digest.update(json.dumps(text).encode())  # in quotes, so that the texts' bounds count
    return digest.hexdigest()

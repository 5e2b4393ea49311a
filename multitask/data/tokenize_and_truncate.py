"""Token ids of texts, cut to a maximal length; made once and read from a memory-mapped cache afterwards."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import atomic_folder
from minbert.tokenizer import Ids, Tokenizer
from multitask.data.examples import hash_of_texts
from multitask.runs.locks import exclusive

FORMAT = 3  # raise this when the layout of cached arrays changes
TEXTS_PER_CALL = 8192  # of the tokenizer


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
    """Tokenise and truncate texts, or load their tokens from the cache.

    Args:
        texts: one text per row.
        tokenizer: the start weights' tokenizer.
        max_length: cut to this many tokens; None for the encoder's limit.
        second: second texts, for joint encodings `[CLS] text [SEP] second [SEP]`.
    """
    length = tokenizer.max_length if max_length is None else max_length
    hashes = [hash_of_texts(column) for column in (texts, second) if column is not None]
    identity = (FORMAT, hashes, tokenizer.fingerprint(), length)
    folder = cache_folder() / "tokens" / sha256(repr(identity).encode()).hexdigest()[:32]
    if not folder.is_dir():
        with exclusive(folder.with_suffix(".lock")):
            if not folder.is_dir():  # another process may have made it while this one waited
                _write(folder, texts, second, tokenizer, length)
    return Tokens(
        ids=_mapped(folder / "ids"),
        types=_mapped(folder / "types") if second is not None else None,
        offsets=np.load(folder / "offsets.npy"),
        cut=int(np.load(folder / "cut.npy")),
    )


def _mapped(path: Path) -> Ids:
    return np.asarray(np.memmap(path, np.int32, "r")) if path.stat().st_size else np.empty(0, np.int32)


def _write(
    folder: Path, texts: Sequence[str], second: Sequence[str] | None, tokenizer: Tokenizer, max_length: int
) -> None:
    lengths, cut = [np.zeros(1, np.int64)], 0
    with atomic_folder(folder) as temporary:
        with ExitStack() as stack:
            files = [stack.enter_context((temporary / name).open("wb")) for name in ("ids", "types")]
            for inputs in _blocks(texts if second is None else zip(texts, second, strict=True)):
                ids, types, longer = tokenizer.encode_and_count_cut(inputs, max_length)
                lengths.append(np.array([len(row) for row in ids], np.int64))
                cut += longer
                for file, rows in zip(files, (ids, types if second is not None else []), strict=True):
                    file.write(np.concatenate([*rows, np.empty(0, np.int32)]).tobytes())
        np.save(temporary / "offsets.npy", np.cumsum(np.concatenate(lengths)))
        np.save(temporary / "cut.npy", np.array(cut))


def token_lengths(texts: Sequence[str], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Number of tokens of each text without cutting, [texts]."""
    return np.concatenate([tokenizer.lengths(block) for block in _blocks(texts)] or [np.empty(0, np.int64)])


def _blocks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while block := list(islice(rows, TEXTS_PER_CALL)):
        yield block

"""Labelled or unlabelled rows of a task, kept on disk: texts are memory-mapped, so a file may be larger than memory."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from minbert.files import write_json

Rows = NDArray[np.int64]

ROWS_PER_BLOCK = 65536


class Texts(Sequence[str]):
    """A column of texts in a memory-mapped Arrow file.

    Args:
        column: the `pyarrow.ChunkedArray` of the whole file.
        rows: which of its rows, in order; None: all.
    """

    def __init__(self, column: Any, rows: Rows | None = None) -> None:
        self.column = column
        self.rows = rows

    def __len__(self) -> int:
        return len(self.column) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "Texts": ...

    def __getitem__(self, index: int | slice) -> "str | Texts":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return self.column[int(index if self.rows is None else self.rows[index])].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ROWS_PER_BLOCK):
            stop = start + ROWS_PER_BLOCK
            block = self.column[start:stop] if self.rows is None else self.column.take(self.rows[start:stop])
            yield from block.to_pylist()

    def take(self, rows: Rows) -> "Texts":
        """The texts of these rows, in this order."""
        return Texts(self.column, rows if self.rows is None else self.rows[rows])


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
        fingerprint: hash of the file's content, 64 hex digits.
        identity: hash of everything that decides the texts, 64 hex digits.
        dropped: number of rows left out because their label or a sentence is empty.
    """

    sentences: tuple[Sequence[str], ...]
    labels: NDArray[np.float32] | None
    classes: tuple[str, ...]
    ids: Sequence[str] | None
    source: str
    fingerprint: str
    identity: str
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.sentences[0])

    def take(self, rows: Rows) -> "Examples":
        """Some of the rows, in this order."""
        chosen = sha256(self.identity.encode() + rows.tobytes()).hexdigest()
        return replace(
            self,
            sentences=tuple(texts_of(texts, rows) for texts in self.sentences),
            labels=None if self.labels is None else self.labels[rows],
            ids=None if self.ids is None else texts_of(self.ids, rows),
            identity=chosen,
        )


def texts_of(texts: Sequence[str], rows: Rows) -> Sequence[str]:
    """The texts of these rows, in this order."""
    return texts.take(rows) if isinstance(texts, Texts) else [texts[row] for row in rows]


class TextsWriter:
    """Writes columns of texts into an Arrow file in a folder, block by block. A context manager.

    Args:
        folder: for the file.
        columns: number of columns.
    """

    def __init__(self, folder: Path, columns: int) -> None:
        import pyarrow

        self.blocks: list[list[str]] = [[] for _ in range(columns)]
        self.schema = pyarrow.schema([(str(column), pyarrow.large_string()) for column in range(columns)])
        self.file = pyarrow.ipc.new_file(folder / "texts.arrow", self.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()
        self.file.close()

    def add(self, texts: Sequence[str]) -> None:
        """Add a row."""
        for block, text in zip(self.blocks, texts, strict=True):
            block.append(text)
        if len(self.blocks[0]) == ROWS_PER_BLOCK:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        columns = [pyarrow.array(block, pyarrow.large_string()) for block in self.blocks]
        self.file.write_batch(pyarrow.record_batch(columns, schema=self.schema))
        for block in self.blocks:
            block.clear()


def write_rows(folder: Path, labels: NDArray[np.float32] | None, facts: dict[str, Any]) -> None:
    """Write everything but the texts of a folder that `stored_rows` reads."""
    if labels is not None:
        np.save(folder / "labels.npy", labels)
    write_json(folder / "facts.json", facts)


def stored_rows(folder: Path) -> tuple[list[Texts], NDArray[np.float32] | None, dict[str, Any]]:
    """Columns of texts, labels and facts that `TextsWriter` and `write_rows` wrote; the texts stay on disk."""
    import pyarrow

    with pyarrow.memory_map(str(folder / "texts.arrow")) as file:
        table = pyarrow.ipc.open_file(file).read_all()
    labels = np.load(folder / "labels.npy") if (folder / "labels.npy").is_file() else None
    return [Texts(column) for column in table.columns], labels, json.loads((folder / "facts.json").read_text("utf-8"))

"""Embeddings of a file on disk: computed and written in blocks, and opened to search them, without reading them whole.

Next to FILE.npy, FILE.npy.json says which model and text they are of (`Record`).
"""

import os
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_file, read_text, sha256_of_file, write_json
from minbert.settings import read_as, settings
from multitask.data.problems import LOGGER, checked, quote, reason
from multitask.data.read_tables import open_table
from multitask.data.tables import Source
from multitask.data.text_lines import suffixes
from multitask.models.sentence_encoder import Embedder
from multitask.runtime.progress import RowsDone

SENTENCES_PER_BLOCK = 16384
ADVICE = r"(; |, or | \(or )set \w+( = \w+)? in the tasks file \(--tasks-file\)\)?"
STORED = {"float32": "<f4", "float16": "<f2"}

Dtype = Literal["float32", "float16"]


@settings
class Record:
    """What the JSON file next to an array of embeddings says of them."""

    model: str
    """The encoder's identity."""
    model_name: str
    """What the model was called."""
    text: str | None
    """The file of the sentences, from the array's folder; None of standard input."""
    text_sha256: str | None
    column: str | None
    """The sentences' column; None of a text file, whose blank lines are left out."""
    dtype: Dtype
    normalized: bool
    """Whether they were scaled to length 1."""


def embed_file(
    encoder: Embedder,
    source: Path,
    output: Path,
    column: str | None,
    normalize: bool,
    dtype: Dtype = "float32",
    dimensions: int | None = None,
) -> tuple[int, int]:
    """Write the embeddings of a file's sentences as a NumPy array [sentences, hidden]; returns its shape.

    The file has a sentence a line, and blank lines are skipped; or it is a table with this `column` of sentences.
    `dimensions` keeps only so many numbers of each embedding; `normalize` then scales it to length 1.
    Raises InputError for no sentence, a missing column, no text, or too many dimensions.
    """
    total = sum(1 for _ in sentences(source, column, again=True)) if source.is_file() else None
    texts = sentences(source, column)
    place = record_of(output)
    with atomic_file(output) as temporary, temporary.open("wb") as file, RowsDone(total, "sentences") as shown:
        count = width = 0
        while block := list(islice(texts, SENTENCES_PER_BLOCK)):
            embeddings = encoder.encode(block, normalize=normalize, dimensions=dimensions)
            if not count:
                width = embeddings.shape[1]
                _write_header(file, 0, width, dtype)
            file.write(embeddings.astype(STORED[dtype]).tobytes())
            count += len(block)
            shown.add(len(block))
        if not count:
            raise InputError(f"{source}: no sentence; expected one sentence per line")
        file.seek(0)
        _write_header(file, count, width, dtype)  # which is as long as before: NumPy leaves room for the rows' number
        place.unlink(missing_ok=True)  # a kill must not leave the record of other embeddings
    text = os.path.relpath(source.resolve(), output.resolve().parent) if source.is_file() else None
    digest = sha256_of_file(source) if text else None
    record = Record(encoder.identity, encoder.name, text, digest, column, dtype, normalize)
    write_json(place, asdict(record))
    return count, width


def record_of(path: Path) -> Path:
    """The file that says what the embeddings of an .npy file are of."""
    return path.with_name(f"{path.name}.json")


class Index(NamedTuple):
    """Embeddings of a text file on disk."""

    vectors: NDArray[Any]  # [sentences, hidden], memory-mapped
    text: Path | None
    column: str | None

    @classmethod
    def open(cls, path: Path, encoder: Embedder) -> "Index":
        """Open what `embed_file` wrote.

        Raises:
            InputError: a file is missing or damaged, the text has changed, or another model wrote the embeddings.
        """
        place = record_of(path)
        again = f"write it with: multitask embed TEXT {path}"
        if path.is_file() and not place.is_file():
            raise InputError(f"{path}: {place.name}, which names its model, is missing; {again}")
        vectors = checked(path, _mapped)
        record = read_as(Record, read_text(place), place)
        if vectors.ndim != 2 or vectors.dtype.str != STORED[record.dtype]:
            raise InputError(f"{path}: not the array that {place.name} describes; {again}")
        if record.model != encoder.identity:
            wrote = f"pass the --model (it was {record.model_name}) and --pooling that wrote it"
            raise InputError(f"{path}: written with other weights, tokens or pooling than {encoder.name}; {wrote}")
        text = None if record.text is None else path.resolve().parent / record.text
        if text is not None and sha256_of_file(text) != record.text_sha256:
            raise InputError(f"{text}: has changed since its embeddings {path} were written; {again}")
        return cls(vectors, text, record.column)

    def texts(self) -> Iterator[str]:
        """The sentences of all rows. Raises InputError if they were read from standard input."""
        if self.text is None:
            raise InputError("the embedded sentences came from standard input and were not kept; embed a file")
        return sentences(self.text, self.column, again=True)

    def texts_of(self, rows: Set[int]) -> dict[int, str]:
        """The sentences of some rows."""
        return {row: text for row, text in enumerate(self.texts()) if row in rows}


def _mapped(path: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, TypeError) as error:  # a damaged header, fewer bytes than it says
        raise InputError(f"{path}: not an array of NumPy, or damaged ({reason(error)})") from None


def _write_header(file: BinaryIO, count: int, width: int, dtype: Dtype) -> None:
    header = {"descr": STORED[dtype], "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)


def sentences(source: Path, column: str | None, again: bool = False) -> Iterator[str]:
    """The sentences of a file; logs how many blank lines of a text file were skipped unless it is read `again`."""
    if column is None and suffixes(source)[0] not in ("", ".txt"):
        raise InputError(f"{source}: a table; name the column of its sentences with --column")
    blank = 0
    for (text,) in text_columns(source, [column or "text"], form="" if column else ".txt"):
        if text or column:
            yield text
        else:
            blank += 1
    if blank and not again:
        LOGGER.warning("%s: skipped %d blank lines, so rows of the array are not line numbers", source, blank)


def text_columns(source: Path, columns: Sequence[str], form: str = "") -> Iterator[tuple[str, ...]]:
    """The texts of some columns of each row. Errors do not advise a tasks file, which has no part here."""
    try:
        table = open_table(Source(str(source)), form=form)
        table.require(columns)
        for number, row in table.rows:
            texts: tuple[Any, ...] = tuple(row.get(column) for column in columns)
            for column, text in zip(columns, texts, strict=True):
                if not isinstance(text, str):
                    raise InputError(f"{table.place(number)}: {column} is {quote(text)}; expected text")
            yield texts
    except InputError as error:
        raise InputError(re.sub(ADVICE, "", str(error))) from None

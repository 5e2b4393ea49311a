"""Embeddings of a file on disk: computed and written in blocks, and opened to search them, without reading them whole.

Next to FILE.npy, FILE.npy.json says which model and text they are of (`EmbeddingRecord`).
"""

import os
from collections.abc import Iterator, Set
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minbert.config import Long
from minbert.errors import InputError
from minbert.files import atomic_file, read_text, sha256_of_file, write_json
from minbert.settings import read_as, settings
from multitask.base import logger
from multitask.base.progress import RowsDone
from multitask.data.messages import STANDARD_INPUT, read_or_refuse, reason
from multitask.data.read_tables import open_table
from multitask.data.tables import Format, RowsFrom, suffixes
from multitask.data.texts import prompt_of, template, texts_of_rows
from multitask.models.sentence_encoder import Embedder

SENTENCES_PER_BLOCK = 16384
STORED = {"float32": "<f4", "float16": "<f2"}

Dtype = Literal["float32", "float16"]


@settings
class EmbeddingRecord:
    """What the JSON file next to an array of embeddings says of them."""

    model: str
    """The encoder's identity."""
    model_name: str
    """What the model was called."""
    text: str | None
    """The file of the sentences, from the array's folder; None of standard input."""
    text_sha256: str | None
    column: str | None
    """The sentences' column, or their template; None of the lines of a text file. Blank lines are left out."""
    dtype: Dtype
    normalized: bool
    """Whether they were scaled to length 1."""
    format: Format = Format()
    """How the file is written."""
    long: Long = "head"
    """How texts with more tokens than the encoder takes were read."""
    sha256: str | None = None
    """Of the array's file; None of earlier versions."""


def embed_file(
    encoder: Embedder,
    source: Path,
    output: Path,
    column: str | None,
    normalize: bool,
    dtype: Dtype = "float32",
    dimensions: int | None = None,
    file_format: Format = Format(),
    long: Long = "head",
) -> tuple[int, int]:
    """Write the embeddings of a file's sentences as a NumPy array [sentences, hidden]; returns its shape.

    The file has a sentence a line, and blank lines are skipped; or it is a table with this `column` of sentences, or
    with the columns of a template.
    `dimensions` keeps only so many numbers of each embedding; `normalize` then scales it to length 1. `long` says how
    texts with more tokens than the encoder takes are read; `encoder.counts` counts these, and unreadable ones.
    Raises InputError for no sentence, a missing column, no text, too many dimensions, or a file that changes meanwhile.
    """
    digest = sha256_of_file(source) if source.is_file() else None
    total = sum(1 for _ in sentences(source, column, file_format, again=True)) if source.is_file() else None
    texts = sentences(source, column, file_format)
    place, prompt = record_of(output), prompt_of(column)
    with atomic_file(output) as temporary, temporary.open("wb") as file, RowsDone(total, "sentences") as shown:
        count = width = 0
        while block := list(islice(texts, SENTENCES_PER_BLOCK)):
            embeddings = encoder.encode(block, normalize=normalize, dimensions=dimensions, prompt=prompt, long=long)
            if not count:
                width = embeddings.shape[1]
                _write_header(file, 0, width, dtype)
            with np.errstate(over="ignore"):
                stored = embeddings.astype(STORED[dtype])
            if not np.isfinite(stored).all():
                large = np.isfinite(embeddings).all()
                reason = "take --dtype float32, which holds them" if large else "the weights are damaged"
                raise InputError(f"{encoder.name}: some embeddings are not finite as {dtype}; {reason}")
            file.write(stored.tobytes())
            count += len(block)
            shown.add(len(block))
        if not count:
            raise InputError(f"{source}: no sentence; expected one sentence per line")
        if digest is not None and sha256_of_file(source) != digest:
            raise InputError(f"{source}: changed while it was read; run the command again")
        file.seek(0)
        _write_header(file, count, width, dtype)  # which is as long as before: NumPy leaves room for the rows' number
        file.flush()
        written = sha256_of_file(temporary)
        place.unlink(missing_ok=True)  # a kill must not leave the record of other embeddings
    text = None if digest is None else os.path.relpath(source.resolve(), output.resolve().parent)
    which = encoder.identity, encoder.name, text, digest, column
    record = EmbeddingRecord(*which, dtype, normalize, file_format, long, written)
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
    format: Format
    long: Long

    @classmethod
    def open(cls, path: Path, encoder: Embedder) -> "Index":
        """Open what `embed_file` wrote.

        Raises InputError if a file is missing or damaged, the text has changed, or another model wrote the embeddings.
        """
        place = record_of(path)
        again = f"write it with: multitask embed TEXT {path}"
        if path.is_file() and not place.is_file():
            raise InputError(f"{path}: {place.name}, which names its model, is missing; {again}")
        vectors = read_or_refuse(path, _mapped)
        record = read_as(EmbeddingRecord, read_text(place), place)
        fits = record.sha256 in (None, sha256_of_file(path))
        if not fits or vectors.ndim != 2 or vectors.dtype.str != STORED[record.dtype]:
            raise InputError(f"{path}: not the array that {place.name} describes; {again}")
        if record.model != encoder.identity:
            wrote = f"pass the --model (it was {record.model_name}) and --pooling that wrote it"
            raise InputError(f"{path}: written with other weights, tokens or pooling than {encoder.name}; {wrote}")
        text = None if record.text is None else path.resolve().parent / record.text
        if text is not None and sha256_of_file(text) != record.text_sha256:
            raise InputError(f"{text}: has changed since its embeddings {path} were written; {again}")
        return cls(vectors, text, record.column, record.format, record.long)

    def texts(self, contents: bool = False) -> Iterator[str]:
        """The sentences of all rows, or their `contents`, without the words that the template has around them.

        Raises InputError if they were read from standard input.
        """
        if self.text is None:
            raise InputError("the embedded sentences came from standard input and were not kept; embed a file")
        return sentences(self.text, self.column, self.format, again=True, contents=contents)

    def texts_of(self, rows: Set[int]) -> dict[int, str]:
        """The sentences of some rows."""
        return {row: text for row, text in enumerate(self.texts()) if row in rows}


def _mapped(path: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # a damaged header raises many kinds, also if the file has fewer bytes than it says
        raise InputError(f"{path}: not an array of NumPy, or damaged ({reason(error)})") from None


def _write_header(file: BinaryIO, count: int, width: int, dtype: Dtype) -> None:
    header = {"descr": STORED[dtype], "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)


def sentences(
    source: Path, column: str | None, file_format: Format = Format(), again: bool = False, contents: bool = False
) -> Iterator[str]:
    """The sentences of a file, or their `contents`; logs how many lines or rows have none unless it is read `again`."""
    form = suffixes(source)[0] or ".txt"
    lines = form == ".txt" and not file_format.separator
    made, empty = template("text" if column is None else column), 0
    made = made.content if contents else made
    place = STANDARD_INPUT if str(source) == "-" else str(source)
    table = open_table(RowsFrom(place), file_format, form=form)
    if column is None and not lines:
        raise InputError(f"{source}: a table; name the column of its sentences with --column")
    table.require(made.columns)
    for (text,) in texts_of_rows(table, table.rows, [made]):
        empty += not text
        if text or not lines:
            yield text
    if empty and not again:
        what = "skipped %d blank lines, so line numbers are not row numbers" if lines else "%d empty texts"
        logger.warning(f"%s: {what}", source, empty)

"""Embeddings of a file, computed and written in blocks, so that the file may be larger than memory."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from tqdm import tqdm

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.data.problems import LOGGER, quote
from multitask.data.read_tables import open_table
from multitask.data.tables import Row, Source, Table
from multitask.data.text_lines import suffixes
from multitask.models.sentence_encoder import Embedder

SENTENCES_PER_BLOCK = 16384
ADVICE = r"(; |, or | \(or )set \w+( = \w+)? in the tasks file \(--tasks-file\)\)?"


def embed_file(encoder: Embedder, source: Path, output: Path, column: str | None, normalize: bool) -> tuple[int, int]:
    """Write the embeddings of a file's sentences as a NumPy array [sentences, hidden] fp32; returns its shape.

    The file has a sentence a line, and blank lines are skipped; or it is a table with this `column` of sentences.
    `normalize` scales every embedding to length 1. Raises InputError for no sentence, a missing column, or no text.
    """
    sentences = _sentences(source, column)
    with atomic_file(output) as temporary, temporary.open("wb") as file, tqdm(unit="sentence", disable=None) as bar:
        count = width = 0
        while block := list(islice(sentences, SENTENCES_PER_BLOCK)):
            embeddings = encoder.encode(block, normalize=normalize)
            if not count:
                width = embeddings.shape[1]
                _write_header(file, 0, width)
            file.write(embeddings.tobytes())
            count += len(block)
            bar.update(len(block))
        if not count:
            raise InputError(f"{source}: no sentence; expected one sentence per line")
        file.seek(0)
        _write_header(file, count, width)  # which is as long as before: NumPy leaves room for the number of rows
    return count, width


def _write_header(file: BinaryIO, count: int, width: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)


def _sentences(source: Path, column: str | None) -> Iterator[str]:
    """The sentences of a file; logs how many blank lines of a text file were skipped."""
    if column is None and suffixes(source)[0] not in ("", ".txt"):
        raise InputError(f"{source}: a table; name the column of its sentences with --column")
    blank = 0
    for table, number, row in _rows(source, column):
        text = row.get(column or "text")
        if not isinstance(text, str):
            raise InputError(f"{table.place(number)}: {column} is {quote(text)}; expected text")
        if text or column is not None:
            yield text
        else:
            blank += 1
    if blank:
        LOGGER.warning("%s: skipped %d blank lines, so rows of the array are not line numbers", source, blank)


def _rows(source: Path, column: str | None) -> Iterator[tuple[Table, int, Row]]:
    """The table, and number and values of each row. Errors do not advise a tasks file, which has no part here."""
    try:
        table = open_table(Source(str(source)), form=".txt" if column is None else "")
        table.require([column or "text"])
        for number, row in table.rows:
            yield table, number, row
    except InputError as error:
        raise InputError(re.sub(ADVICE, "", str(error))) from None

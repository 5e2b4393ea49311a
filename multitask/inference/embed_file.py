"""Embeddings of a file, computed and written in blocks, so that the file may be larger than memory."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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

    Args:
        encoder: embeds.
        source: a text file with a sentence a line, of which blank lines are skipped; or a table.
        output: the .npy file.
        column: of a table, the column of the sentences.
        normalize: scale every embedding to length 1.

    Raises:
        InputError: no sentence, a missing column, or a value that is not text.
    """
    # A first pass, because the array's header has its size.
    count = sum(1 for _ in _sentences(source, column, warn=True))
    if not count:
        raise InputError(f"{source}: no sentence; expected one sentence per line")
    sentences = _sentences(source, column)
    with atomic_file(output) as temporary, temporary.open("wb") as file, tqdm(total=count, disable=None) as bar:
        width = 0
        while block := list(islice(sentences, SENTENCES_PER_BLOCK)):
            embeddings = encoder.encode(block, normalize=normalize)
            if not width:
                width = embeddings.shape[1]
                header = {"descr": np.lib.format.dtype_to_descr(embeddings.dtype), "fortran_order": False}
                np.lib.format.write_array_header_1_0(file, {**header, "shape": (count, width)})
            file.write(embeddings.tobytes())
            bar.update(len(block))
    return count, width


def _sentences(source: Path, column: str | None, warn: bool = False) -> Iterator[str]:
    """The sentences of a file; `warn` logs how many blank lines of a text file were skipped."""
    text_file = suffixes(source)[0] in ("", ".txt")
    if column is None and not text_file:
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
    if blank and warn:
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

"""Strict readers of the data files: every row is checked, and a bad one is named by file and line.

Text is kept as written except for white space around it. The course's starter code also lower-cases and puts spaces
before `. ? , '`; the tokenizer of an uncased BERT does both by itself, so its ids are the same either way (but for a
capital sigma that ends a Greek word).

A row of training data (labelled examples, triplets, pairs) whose label or sentence is empty cannot be used: it is left
out, with one counted warning per file (the course's Quora files hold a few). An unlabelled file keeps such a row, as an
empty sentence and with a warning, because every row needs a prediction. Anything else that is wrong is an error.
"""

import codecs
import csv
import hashlib
import io
import json
import logging
import lzma
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from minbert.errors import InputError
from minbert.files import sha256_of_file
from multitask.data.schema import Schema

LOGGER = logging.getLogger("multitask")
SEPARATORS = {"\t": "tabs", ",": "commas"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

T = TypeVar("T")
Report = Callable[[str], None]  # takes one problem, as a line of text


@dataclass(frozen=True)
class Examples:
    """The rows of one of the course's files, in file order.

    Args:
        ids: one per row, unique.
        sentences: one list per sentence column, each with one text per row.
        labels: float32 [rows], or None when read without labels.
        source: the file.
        fingerprint: SHA-256 of the file's bytes, 64 hex digits.
        dropped: rows left out because their label or a sentence is empty.
    """

    ids: list[str]
    sentences: tuple[list[str], ...]
    labels: npt.NDArray[np.float32] | None
    source: Path
    fingerprint: str
    dropped: int

    def __len__(self) -> int:
        return len(self.ids)


TRIPLETS_FILE = "nli_triplets.csv"
PAIRS_FILE = "positive_pairs.tsv"
SENTENCES_FILE = "sentences.txt"
CAPTIONS_FILE = "captions.txt"
NEWS_FILE = "news.txt"


@dataclass(frozen=True)
class Triplets:
    """Premises, what they entail and what contradicts them, row by row; `source` to `dropped` as in `Examples`."""

    anchors: list[str]
    positives: list[str]
    hard_negatives: list[str]
    source: Path
    fingerprint: str
    dropped: int

    def __len__(self) -> int:
        return len(self.anchors)


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences that mean the same, row by row; `source` to `dropped` as in `Examples`."""

    anchors: list[str]
    positives: list[str]
    source: Path
    fingerprint: str
    dropped: int

    def __len__(self) -> int:
        return len(self.anchors)


@dataclass(frozen=True)
class Sentences:
    """Unlabelled sentences; `blank` lines were skipped. The fingerprint is of the whole file, compressed if it is."""

    sentences: list[str]
    source: Path
    fingerprint: str
    blank: int

    def __len__(self) -> int:
        return len(self.sentences)


def _refuse(problem: str) -> NoReturn:
    raise InputError(problem)


def read_examples(path: Path, schema: Schema, labelled: bool, report: Report = _refuse) -> Examples:
    """Read one of the course's tab-separated files.

    Columns are found by name, so the unnamed index columns of the course's files do not matter. Fields are unquoted as
    by `csv.DictReader`, which the course's starter code uses.

    Args:
        path: the file.
        schema: its columns and legal labels.
        labelled: whether to read the label column. Without it, no row is ever left out.
        report: takes each bad row's problem, after which that row is left out; the default raises at the first.

    Raises:
        InputError: the file is missing, empty or not UTF-8, lacks a column, has no usable row, or (by the default
            `report`) has a row with broken quoting, too few or too many fields, an empty or repeated id, or a label
            that is not a number in the schema's range.
    """
    raw = _read_bytes(path)
    columns = ("id", *schema.sentence_columns, *((schema.label_column,) if labelled else ()))
    line_of_id: dict[str, int] = {}
    sentences: tuple[list[str], ...] = tuple([] for _ in schema.sentence_columns)
    labels: list[float] = []
    incomplete: list[int] = []
    for line, (identifier, *fields) in _records(path, raw, "\t", columns, report):
        if not all(fields):
            incomplete.append(line)
            if labelled:
                continue
        if problem := _id_problem(identifier, line_of_id):
            report(f"{path}:{line}: {problem}")
            continue
        if labelled:
            label = _label(fields[-1], schema)
            if label is None:
                report(f"{path}:{line}: {_label_problem(fields[-1], schema)}")
                continue
            labels.append(label)
        line_of_id[identifier] = line
        for column, text in zip(sentences, fields, strict=False):  # the label is not a sentence
            column.append(text)
    if labelled:
        _warn_incomplete(path, "left out", "without a label or a sentence", incomplete)
    else:
        _warn_incomplete(path, "kept", "with an empty sentence", incomplete)
    if not line_of_id:
        raise InputError(f"{path}: no usable row below the header")
    return Examples(
        ids=list(line_of_id),
        sentences=sentences,
        labels=np.array(labels, dtype=np.float32) if labelled else None,
        source=path,
        fingerprint=hashlib.sha256(raw).hexdigest(),
        dropped=len(incomplete) if labelled else 0,
    )


def read_triplets(path: Path, report: Report = _refuse) -> Triplets:
    """Read a comma-separated file with the columns `sent0`, `sent1` and `hard_neg`.

    Raises:
        InputError: as `read_examples`, ids and labels aside.
    """
    fingerprint, dropped, columns = _text_columns(path, ",", ("sent0", "sent1", "hard_neg"), report)
    return Triplets(columns[0], columns[1], columns[2], path, fingerprint, dropped)


def read_pairs(path: Path, report: Report = _refuse) -> Pairs:
    """Read a tab-separated file with the columns `sentence1` and `sentence2`, which mean the same.

    Raises:
        InputError: as `read_examples`, ids and labels aside.
    """
    fingerprint, dropped, columns = _text_columns(path, "\t", ("sentence1", "sentence2"), report)
    return Pairs(columns[0], columns[1], path, fingerprint, dropped)


def read_sentences(path: Path, limit: int | None = None) -> Sentences:
    """Read one sentence a line from a text file, or from one compressed with xz (its name ends in `.xz`).

    Args:
        path: the file.
        limit: stop after so many sentences; blank lines do not count.

    Raises:
        InputError: the file is missing, has no sentence up to the limit, is not UTF-8, or is not a whole xz file.
    """
    fingerprint = _checked(path, sha256_of_file)
    sentences: list[str] = []
    blank = 0
    try:
        with io.BufferedReader(lzma.open(path)) if path.suffix == ".xz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if limit is not None and len(sentences) >= limit:
                    break
                if text := decode(path, number, line).strip():
                    sentences.append(text)
                else:
                    blank += 1
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path}: not a whole xz file ({error}); fetch or compress it again") from None
    if blank:
        LOGGER.warning("%s: skipped %d blank lines", path, blank)
    if not sentences:
        raise InputError(f"{path}: no sentence; expected one a line")
    return Sentences(sentences, path, fingerprint, blank)


def _text_columns(
    path: Path, separator: str, columns: tuple[str, ...], report: Report
) -> tuple[str, int, list[list[str]]]:
    """Fingerprint, number of rows left out, and the named columns of a file whose columns are all sentences."""
    raw = _read_bytes(path)
    rows: list[list[str]] = []
    incomplete: list[int] = []
    for line, fields in _records(path, raw, separator, columns, report):
        if all(fields):
            rows.append(fields)
        else:
            incomplete.append(line)
    _warn_incomplete(path, "left out", "without a sentence", incomplete)
    if not rows:
        raise InputError(f"{path}: no usable row below the header")
    return hashlib.sha256(raw).hexdigest(), len(incomplete), [list(column) for column in zip(*rows, strict=True)]


def _records(
    path: Path, raw: bytes, separator: str, columns: tuple[str, ...], report: Report
) -> Iterator[tuple[int, list[str]]]:
    """Each row's first line in the file and its stripped fields in the order of `columns`."""
    rows = _rows(path, decode(path, 1, raw), separator, report)
    line, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for column in columns:
        if header.count(column) != 1:
            raise InputError(
                f"{path}:{line}: column {column} occurs {header.count(column)} times in the header; expected the "
                f"columns {', '.join(columns)} separated by {SEPARATORS[separator]}, found {quote(', '.join(header))}"
            )
    positions = [header.index(column) for column in columns]
    for line, row in rows:
        if len(row) == len(header):
            yield line, [row[position].strip() for position in positions]
        else:
            report(
                f"{path}:{line}: the row has {len(row)} fields; expected {len(header)}, as in the header "
                f"(separated by {SEPARATORS[separator]})"
            )


def _rows(path: Path, text: str, separator: str, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not a blank line, with the line where it starts: a quoted field may run over several."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            report(
                f"{path}:{line}: broken quoting ({error}); expected a field that starts with a quote to end with one, "
                "and quotes inside it to be doubled"
            )
            continue
        if row is None:
            return
        if row:
            yield line, row


def _id_problem(identifier: str, line_of_id: dict[str, int]) -> str | None:
    if not identifier:
        return "the id is empty; expected one that is unique in the file"
    if identifier in line_of_id:
        return f"id {quote(identifier)} is already on line {line_of_id[identifier]}; expected each id once"
    return None


def _label(text: str, schema: Schema) -> float | None:
    """The label, or None if it is not legal. (`float` alone would also take `nan`, `1_0` and digits of any script.)"""
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    legal = schema.minimum <= value <= schema.maximum and (value.is_integer() or not schema.integral)
    return value if legal else None


def _label_problem(text: str, schema: Schema) -> str:
    kind = "whole number" if schema.integral else "number"
    hint = " (decimal point, not comma)" if "," in text else ""
    return (
        f"{schema.label_column} is {quote(text)}; expected a {kind} from {schema.minimum:g} to {schema.maximum:g}{hint}"
    )


def _warn_incomplete(path: Path, action: str, lack: str, lines: list[int]) -> None:
    if lines:
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        rows, on = ("row", "line") if len(lines) == 1 else ("rows", "lines")
        LOGGER.warning("%s: %s %d %s %s (%s %s)", path, action, len(lines), rows, lack, on, shown)


def quote(text: str) -> str:
    """Text as an error message shows it: in quotes, its start where it is long."""
    return json.dumps(text if len(text) <= 80 else f"{text[:77]}...", ensure_ascii=False)


def _checked(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file (`multitask data fetch` downloads the real sets)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _read_bytes(path: Path) -> bytes:
    raw = _checked(path, Path.read_bytes)
    if not raw:
        raise InputError(f"{path}: the file is empty; expected a header line and rows")
    return raw


def decode(path: Path, line: int, raw: bytes) -> str:
    """Decode bytes that start at the given line of the file.

    Raises:
        InputError: they are not UTF-8.
    """
    body = raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line += body.count(b"\n", 0, error.start)
        column = error.start - body.rfind(b"\n", 0, error.start)
        raise InputError(
            f"{path}:{line}: byte 0x{body[error.start]:02x} at position {column} of the line is not UTF-8; "
            "save the file as UTF-8"
        ) from None

"""Read a task's files: what they look like (`Schema`) and their rows (`Examples`).

A training row with an empty label or sentence cannot be used. It is left out, and one warning per file counts such rows
(the course's Quora files hold a few). A file read without labels keeps a row with an empty sentence, with a warning,
because every row needs a prediction. Anything else that is wrong is an error.
"""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from minbert.errors import InputError
from multitask.data.parse_rows import NUMBER, OnProblem, parse_rows, quote, read_bytes, refuse, warn_incomplete

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Schema:
    """The course's tab-separated file format of one task.

    Args:
        file_stem: files are `{file_stem}-train.csv`, `{file_stem}-dev.csv` and `{file_stem}-test-student.csv`.
        sentence_columns: one column for single sentences, two for pairs.
        label_column: test files do not have it.
        minimum: lowest legal label.
        maximum: highest legal label.
        integral: whether labels must be whole numbers (`1.0` counts as 1).
    """

    file_stem: str
    sentence_columns: tuple[str, ...]
    label_column: str
    minimum: float
    maximum: float
    integral: bool

    def path(self, folder: Path, split: Split) -> Path:
        """The split's file in a data folder."""
        return folder / f"{self.file_stem}-{'test-student' if split == 'test' else split}.csv"


@dataclass(frozen=True)
class Examples:
    """The rows of one of a task's files, in file order.

    Args:
        ids: one per row, unique.
        sentences: one list per sentence column, each with one text per row.
        labels: float32 [rows], or None when read without labels.
        source: the file.
        fingerprint: SHA-256 of the file's bytes, 64 hex digits.
        dropped: number of rows left out because their label or a sentence is empty.
    """

    ids: list[str]
    sentences: tuple[list[str], ...]
    labels: npt.NDArray[np.float32] | None
    source: Path
    fingerprint: str
    dropped: int

    def __len__(self) -> int:
        return len(self.ids)


def read_examples(path: Path, schema: Schema, labelled: bool, on_problem: OnProblem = refuse) -> Examples:
    """Read one of a task's tab-separated files.

    Columns are found by name, so the unnamed index columns of the course's files do not matter.

    Args:
        path: the file.
        schema: its columns and legal labels.
        labelled: whether to read the label column. Without it, no row is ever left out.
        on_problem: called with the problem of each bad row, which is then left out; the default raises the first.

    Raises:
        InputError: the file is missing, empty or not UTF-8, lacks a column, or has no usable row. With the default
            `on_problem` also: a row has broken quoting, too few or too many fields, an empty or repeated id, or a label
            that is not a number in the schema's range.
    """
    raw = read_bytes(path)
    columns = ("id", *schema.sentence_columns, *((schema.label_column,) if labelled else ()))
    line_of_id: dict[str, int] = {}
    sentences: tuple[list[str], ...] = tuple([] for _ in schema.sentence_columns)
    labels: list[float] = []
    incomplete: list[int] = []
    for line, (identifier, *fields) in parse_rows(path, raw, "\t", columns, on_problem):
        if not all(fields):
            incomplete.append(line)
            if labelled:
                continue
        if problem := _id_problem(identifier, line_of_id):
            on_problem(f"{path}:{line}: {problem}")
            continue
        if labelled:
            label = _label(fields[-1], schema)
            if label is None:
                on_problem(f"{path}:{line}: {_label_problem(fields[-1], schema)}")
                continue
            labels.append(label)
        line_of_id[identifier] = line
        for column, text in zip(sentences, fields, strict=False):  # the label is not a sentence
            column.append(text)
    if labelled:
        warn_incomplete(path, "left out", "without a label or a sentence", incomplete)
    else:
        warn_incomplete(path, "kept", "with an empty sentence", incomplete)
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

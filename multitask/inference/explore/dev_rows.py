"""The rows of a labelled set with a model's predictions: sorted, filtered, and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multitask.data.examples import Examples
from multitask.evaluation.calibration_and_errors import confidence_of, written_label
from multitask.evaluation.task_predictions import written
from multitask.tasks.kinds import Classification, MultiLabel
from multitask.tasks.task import Task

Order = Literal["row", "confidence", "error"]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets run a text that begins with one of these as a formula (OWASP, "CSV Injection")."""


@dataclass(frozen=True)
class DevRow:
    """A labelled row and what a model predicts for it.

    Args:
        row: its number in the file, from 0.
        texts: its sentence, or the two sentences of a pair.
        gold: its label.
        predicted: the model's label or number.
        confidence: probability of the prediction; of several labels a row that of the least certain one; None of
            numbers.
        error: distance of the number from the label, in its unit; otherwise 0 for a right and 1 for a wrong prediction.
    """

    row: int
    texts: tuple[str, ...]
    gold: str
    predicted: str
    confidence: float | None
    error: float


def dev_rows(task: Task, estimates: NDArray[np.float64], examples: Examples) -> list[DevRow]:
    """The rows of a labelled set in file order, from a model's estimates (see `Task.estimate`)."""
    labels, decided = np.asarray(examples.labels), task.decide(estimates)
    confidence: Sequence[float | None] = [None] * len(examples)
    if isinstance(task, Classification | MultiLabel):
        confidence = confidence_of(task, estimates).reshape(len(examples), -1).min(axis=1).tolist()
        errors = (decided != labels).reshape(len(examples), -1).any(axis=1).astype(np.float64)
    else:
        errors = np.abs(decided - labels).astype(np.float64)
    return [
        DevRow(row, texts, shown_label(written_label(task, labels[row])), shown_label(predicted), sure, error)
        for row, (texts, predicted, sure, error) in enumerate(
            zip(
                zip(*examples.sentences, strict=True),
                written(task, estimates),
                confidence,
                errors.tolist(),
                strict=True,
            )
        )
    ]


def shown_label(label: str | float) -> str:
    """A label or prediction as the page shows it: names as they are, numbers with four digits."""
    return label if isinstance(label, str) else f"{label:.4g}"


@dataclass(frozen=True)
class Choice:
    """Which rows to show, and in which order. None: rows of any label."""

    gold: str | None = None
    predicted: str | None = None
    only_wrong: bool = False
    order: Order = "row"
    descending: bool = False


def chosen_rows(rows: Iterable[DevRow], choice: Choice) -> list[DevRow]:
    """The rows of a choice; rows that are equal in its order stay in file order."""
    kept = [
        row
        for row in rows
        if (choice.gold is None or row.gold == choice.gold)
        and (choice.predicted is None or row.predicted == choice.predicted)
        and not (choice.only_wrong and row.error == 0)
    ]
    keys = {"row": lambda row: row.row, "confidence": lambda row: row.confidence or 0, "error": lambda row: row.error}
    return sorted(kept, key=keys[choice.order], reverse=choice.descending)


def csv_of(rows: Iterable[DevRow], columns: Sequence[str]) -> str:
    """Rows as CSV. A text that a spreadsheet would run as a formula gets an apostrophe in front.

    Args:
        rows: to write.
        columns: names of the sentences' columns.
    """
    file = io.StringIO()
    writer = csv.writer(file)  # with the line ends of RFC 4180, so that carriage returns are quoted, too
    writer.writerow(map(safe, ("row", *columns, "gold", "predicted", "confidence", "error")))
    for row in rows:
        texts = map(safe, (*row.texts, row.gold, row.predicted))
        writer.writerow([row.row, *texts, "" if row.confidence is None else row.confidence, row.error])
    return file.getvalue()


def safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula. Numbers stay as they are."""
    if not text.startswith(FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text

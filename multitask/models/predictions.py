"""A model's outputs for rows of text, and what they mean: labels with probabilities, or numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.base import logger
from multitask.data.messages import listed, quote
from multitask.data.texts import visible_text
from multitask.tasks.kinds import Classification, MultiLabel
from multitask.tasks.labels import Labelled
from multitask.tasks.task import Task

Key = TypeVar("Key")
Sentence = str | Sequence[str]
"""A row: a sentence, or the two sentences of a pair."""


@dataclass(frozen=True)
class Prediction:
    """What a model predicts for one row.

    Args:
        label: the most probable class; None of other tasks.
        probability: of `label`.
        probabilities: of every class or label.
        labels: of several labels a row, those above their thresholds.
        value: of a regression, in the unit of the labels; None of other tasks.
    """

    label: str | None = None
    probability: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    value: float | None = None


def interpret(task: Task, estimates: NDArray[np.float64]) -> list[Prediction]:
    """Estimates (see `Task.estimate`) of rows as predictions."""
    decided = task.decide(estimates)
    if isinstance(task, Classification):
        names = task.names
        return [
            Prediction(names[best], row[best], dict(zip(names, row, strict=True)))
            for best, row in zip(decided.tolist(), task.probabilities(estimates).tolist(), strict=True)
        ]
    if isinstance(task, MultiLabel):
        return [
            Prediction(
                probabilities=dict(zip(task.names, row, strict=True)),
                labels=tuple(name for name, chosen in zip(task.names, above, strict=True) if chosen),
            )
            for above, row in zip(decided.tolist(), estimates.tolist(), strict=True)
        ]
    return [Prediction(value=value) for value in decided.tolist()]


def added_columns(task: Task, prefix: str = "", probabilities: bool = False) -> list[str]:
    """Names of the columns that a task's predictions add to a table."""
    name = f"{prefix}{task.name}"
    if not isinstance(task, Labelled):
        return [name]
    each = [f"{name}_probability_{label}" for label in task.shown_names.values()] if probabilities else []
    return [name, *([] if isinstance(task, MultiLabel) else [f"{name}_probability"]), *each]


def added_values(task: Task, prediction: Prediction, probabilities: bool = False) -> list[Any]:
    """The values of these columns; several labels are a tuple."""
    each = list(prediction.probabilities.values()) if probabilities else []
    if isinstance(task, MultiLabel):
        return [tuple(task.shown_names[label] for label in prediction.labels), *each]
    if not isinstance(task, Labelled) or prediction.label is None:
        return [prediction.value]
    return [task.shown_names[prediction.label], prediction.probability, *each]


def grouped(keys: Mapping[str, Key]) -> dict[Key, list[str]]:
    """Names by their keys: the tasks that read the same texts."""
    return {key: [name for name, own in keys.items() if own == key] for key in keys.values()}


def warn_of_empty_texts(columns: Sequence[Sequence[str]]) -> None:
    """Log one warning that counts rows with an empty text: a model predicts these with confidence, too."""
    if empty := [number for number, row in enumerate(zip(*columns, strict=True)) if not all(row)]:
        unit = "row" if len(empty) == 1 else "rows"
        shown = listed(empty, most=5)
        logger.warning("predicted %d %s with an empty text (%s %s, counted from 0)", len(empty), unit, unit, shown)


def cell_text(value: Any) -> Any:
    """A value of a text column: an empty text if it is missing, as null of JSON or NaN of pandas are."""
    missing = value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))
    return "" if missing else value


def columns_of(rows: Sequence[Sentence]) -> list[list[str]]:
    """Rows as columns of texts. Raises InputError if they are not all sentences, or all pairs of sentences."""
    if isinstance(rows, str):
        raise InputError(f"expected a list of sentences, found the text {quote(rows)}")
    tuples = [tuple(map(cell_text, row if isinstance(row, list | tuple) else (row,))) for row in rows]
    width = len(tuples[0]) if tuples else 1
    for number, row in enumerate(tuples):
        if len(row) != width or not 1 <= width <= 2 or not all(isinstance(text, str) for text in row):
            expected = "a pair of sentences" if width == 2 else "text"
            raise InputError(f"row {number} is {quote(rows[number])}; expected {expected}")
    # Training rows have no white space around their texts, which some tokenizers would see.
    return [[visible_text(text) for text in column] for column in zip(*tuples, strict=True)] or [[]]

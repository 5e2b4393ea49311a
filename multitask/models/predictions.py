"""A model's outputs for rows of text, and what they mean: labels with probabilities, or numbers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.packing import PackedBatch
from minbert.tokenizer import Ids
from multitask.data.examples import Rows
from multitask.data.labelled_data import LabelledData
from multitask.data.problems import quote
from multitask.models.compute_in_batches import compute_in_batches
from multitask.runtime.device import Runtime
from multitask.tasks.kinds import Classification, MultiLabel
from multitask.tasks.task import Task

if TYPE_CHECKING:
    from multitask.models.multitask_model import MultitaskModel

logger = logging.getLogger("multitask")

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


def predict_rows(
    model: "MultitaskModel",
    rows: Sequence[Sentence],
    tasks: Sequence[str] | None = None,
    runtime: Runtime | None = None,
) -> dict[str, list[Prediction]]:
    """See `MultitaskModel.predict_all`.

    Args:
        model: in eval mode.
        rows: sentences or pairs.
        tasks: names of tasks.
        runtime: device and precision; by default those that the model was loaded with.
    """
    estimates = estimate_rows(model, rows, tasks, runtime)
    return {name: interpret(model.tasks[name], values) for name, values in estimates.items()}


def estimate_rows(
    model: "MultitaskModel",
    rows: Sequence[Sentence],
    tasks: Sequence[str] | None = None,
    runtime: Runtime | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Estimates (see `Task.estimate`) of several tasks for the same rows; the arguments are those of `predict_rows`.

    Tasks that encode their sentences separately share one pass of the encoder; tasks that read pairs jointly another.
    """
    columns = columns_of(rows)
    # Nothing tells whether an empty list is one of pairs, so all tasks take it.
    width = len(columns) if rows else None
    names = tasks_for(model, width, tasks)
    runtime = runtime or model.runtime
    if not rows:
        return {name: np.empty((0, *([model.tasks[name].outputs] * (model.tasks[name].outputs > 1)))) for name in names}
    found: dict[str, NDArray[np.float64]] = {}
    for joint in (False, True):
        if together := [name for name in names if model.reads_jointly(name) == joint]:
            sequences, cut = _encode(model, columns, joint)
            if cut:
                _warn_once(f"texts of more than {model.max_length or model.tokenizer.max_length} tokens are cut")
            raw = _outputs(model, together, sequences, runtime)
            found |= {name: model.tasks[name].estimate(values) for name, values in raw.items()}
    if damaged := [name for name, values in found.items() if not np.isfinite(values).all()]:
        raise InputError(
            f"{model.tokenizer.source}: the model's outputs for {damaged[0]} are not finite; its weights are damaged"
        )
    return {name: found[name] for name in names}


def columns_of(rows: Sequence[Sentence]) -> list[list[str]]:
    """Rows as columns of texts. Raises InputError if they are not all sentences, or all pairs of sentences."""
    if isinstance(rows, str):
        raise InputError(f"expected a list of sentences, found the text {quote(rows)}")
    tuples = [tuple(row) if isinstance(row, list | tuple) else (row,) for row in rows]
    width = len(tuples[0]) if tuples else 1
    for number, row in enumerate(tuples):
        if len(row) != width or not 1 <= width <= 2 or not all(isinstance(text, str) for text in row):
            expected = "a pair of sentences" if width == 2 else "text"
            raise InputError(f"row {number} is {quote(rows[number])}; expected {expected}")
    # Training rows have no white space around their texts, which some tokenizers would see.
    return [[text.strip() for text in column] for column in zip(*tuples, strict=True)] or [[]]


def tasks_for(model: "MultitaskModel", width: int | None, tasks: Sequence[str] | None) -> list[str]:
    """The names of tasks, or of all tasks that read so many columns (None: any number).

    Raises InputError if one of them does not.
    """
    kind = "pairs of sentences" if width == 2 else "sentences"
    fitting = [name for name, task in model.tasks.items() if width in (None, len(task.text))]
    for name in tasks or ():
        if name not in model.tasks:
            raise InputError(f'the model has no task "{name}"; it has {", ".join(model.tasks)}')
        if name not in fitting:
            raise InputError(f"{name} reads {'sentences' if width == 2 else 'pairs of sentences'}, not {kind}")
    if not fitting:
        raise InputError(f"no task of the model reads {kind}; it has {', '.join(model.tasks) or 'no tasks'}")
    return list(tasks or fitting)


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def _encode(
    model: "MultitaskModel", columns: list[list[str]], joint: bool
) -> tuple[list[tuple[list[Ids], list[Ids]]], int]:
    """Token ids and types of each encoder input of a row, and how many inputs are cut."""
    inputs: list[list[Any]] = [list(zip(*columns, strict=True))] if joint else list(columns)
    encoded = [model.tokenizer.encode_and_count_cut(column, model.max_length) for column in inputs]
    return [(ids, types) for ids, types, _ in encoded], sum(cut for *_, cut in encoded)


def _outputs(
    model: "MultitaskModel", tasks: list[str], sequences: list[tuple[list[Ids], list[Ids]]], runtime: Runtime
) -> dict[str, NDArray[np.float32]]:
    """The outputs of tasks that read the same encoder inputs, from one pass of the encoder."""
    lengths = np.sum([[len(ids) for ids in column] for column, _ in sequences], axis=0)
    widths = [model.tasks[name].outputs for name in tasks]

    def compute(rows: Rows) -> Tensor:
        ids = [column[row] for column, _ in sequences for row in rows]
        types = [column[row] for _, column in sequences for row in rows]
        embeddings = model.embed(PackedBatch.from_sequences(ids, types).to(runtime.device))
        return torch.cat([model.head(name, embeddings).reshape(len(rows), -1) for name in tasks], dim=1)

    parts = np.split(compute_in_batches(lengths, compute, runtime), np.cumsum(widths)[:-1], axis=1)
    return {name: part[:, 0] if width == 1 else part for name, width, part in zip(tasks, widths, parts, strict=True)}


def outputs(model: "MultitaskModel", task: str, data: LabelledData, runtime: Runtime) -> NDArray[np.float32]:
    """The head's outputs for every row, in file order: [rows, classes] or [rows]. The model must be in eval mode.

    Raises:
        InputError: outputs are not finite.
    """

    def compute(rows: Rows) -> Tensor:
        batch = PackedBatch.from_sequences(*data.sequences(rows)).to(runtime.device)
        return model(batch, {task: len(rows)})[task]

    raw = compute_in_batches(data.lengths, compute, runtime)
    if not np.isfinite(raw).all():
        raise InputError(f"{data.examples.source}: the model's outputs are not finite; its weights are damaged")
    return raw

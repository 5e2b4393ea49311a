"""A multi-task model's estimates for the rows of its tasks' data sets, and files of predictions."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.files import write_text
from multitask.base.progress import OnRows, RowsDone, no_progress
from multitask.data.examples import Examples, LabelledData, RowNumbers
from multitask.data.write_tables import several_labels
from multitask.models.compute_in_batches import compute_in_batches
from multitask.models.multitask_model import MultitaskModel, outputs
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import Classification, MultiLabel, Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Split, Task

Estimates = Mapping[str, NDArray[np.float64]]
"""For each task the values that `Task.estimate` gives, [rows, ...] in file order."""


def load_split(
    model: MultitaskModel, data: Path, split: Split, tasks: Sequence[str] | None = None, labelled: bool | None = None
) -> dict[str, LabelledData]:
    """The data of a split, tokenised as the model reads it, for `tasks` or for all tasks that the model has a head for.

    Args:
        model: with its own declarations of the tasks.
        data: a tasks file, or the folder of the course's files.
        split: name of the split.
        tasks: names of tasks.
        labelled: whether to read labels; by default of all but the test rows.

    Raises:
        InputError: a missing or malformed file, or a model whose tasks differ from the tasks of `data`.
    """
    found, names = load_tasks(data), tasks or tuple(model.tasks)
    if undeclared := [name for name in names if name not in found]:
        raise InputError(
            f'{data}: the model\'s task "{undeclared[0]}" is not declared there, only {", ".join(found)}; give the '
            "tasks file that the model was trained with (--tasks-file)"
        )
    examples = {name: load_rows(with_files_of(model.tasks[name], found[name]), split, labelled) for name in names}
    return {name: model.tokenised(name, rows) for name, rows in examples.items()}


def with_files_of(task: Task, declared: Task) -> Task:
    """A model's task with the files of a declaration, those of predictions too.

    Raises InputError if the two are different tasks.
    """
    if type(task) is not type(declared):
        raise declared.problem(f"kind is {declared.kind}; the model was trained for {task.kind}")
    more: dict[str, Any] = {}
    if isinstance(task, Labelled) and isinstance(declared, Labelled):
        if declared.names not in ((), task.names):
            raise declared.problem(f"labels are {', '.join(declared.names)}; the model has {', '.join(task.names)}")
        of_files = ("aliases", "label_separator", "empty")
        more = {name: getattr(declared, name) for name in of_files if hasattr(declared, name)}
        more["labels"] = declared.labels or task.labels  # which may be declared as numbers
    if isinstance(task, Regression) and isinstance(declared, Regression) and declared.range not in (None, task.bounds):
        raise declared.problem(f"range is {list(declared.bounds)}; the model has {list(task.bounds)}")
    more |= {"prediction_file": declared.prediction_file, "prediction_column": declared.prediction_column}
    return replace(task, files=declared.files, **more)


def estimate(model: MultitaskModel, data: Mapping[str, LabelledData]) -> dict[str, NDArray[np.float64]]:
    """A model's estimates for all rows, in file order. The model must be in eval mode.

    Shows how many rows are done. Raises InputError if some outputs are not finite.
    """
    with RowsDone(sum(map(len, data.values()))) as shown:
        raw = {name: raw_outputs(model, name, rows, shown.add) for name, rows in data.items()}
    return {name: model.tasks[name].estimate(values) for name, values in raw.items()}


def raw_outputs(
    model: MultitaskModel, task: str, data: LabelledData, on_rows: OnRows = no_progress
) -> NDArray[np.float32]:
    """The outputs of a task's head for all rows, in file order."""
    known = None if data.embeddings is None else partial(kept_embeddings, data, model.encoder.runtime.device)
    return outputs(model, [task], data.columns, on_rows, known)[task]


def embeddings_of(encoder: SentenceEncoder, data: LabelledData) -> NDArray[np.float32]:
    """Embeddings of the sequences of each row, [rows, sequences, hidden]; rows without tokens have undefined ones."""
    read = np.flatnonzero(data.lengths)

    def compute(rows: RowNumbers) -> Tensor:
        return encoder.embed(*data.sequences(read[rows])).unflatten(0, (-1, len(rows))).transpose(0, 1)

    with RowsDone(len(read)) as shown:
        found = compute_in_batches(data.lengths[read], compute, encoder.runtime, on_rows=shown.add)
    if len(read) == len(data):
        return found
    every = np.empty((len(data), *found.shape[1:]), np.float32)
    every[read] = found
    return every


def kept_embeddings(data: LabelledData, device: torch.device, rows: RowNumbers) -> Tensor:
    """The embeddings that rows have with them, as a model gives them: of all first sequences, then of all second."""
    assert data.embeddings is not None
    return torch.from_numpy(data.embeddings[rows]).to(device).transpose(0, 1).flatten(0, 1)


def choose_thresholds(
    model: MultitaskModel, dev: Mapping[str, LabelledData], calibrate: bool
) -> dict[str, NDArray[np.float64]]:
    """Store in a model, in eval mode, what its tasks choose on their labelled dev sets; returns its estimates.

    These are thresholds and, if `calibrate`, temperatures. Raises InputError if some outputs are not finite.
    """
    estimates = {}
    for name, rows in dev.items():
        labels = rows.examples.gold
        raw = raw_outputs(model, name, rows)
        task = model.tasks[name].calibrated(raw, labels) if calibrate else model.tasks[name]
        estimates[name] = task.estimate(raw)
        model.tasks[name] = task.tuned(estimates[name], labels)
    return estimates


def write_predictions(
    tasks: Mapping[str, Task], estimates: Estimates, examples: Mapping[str, Examples], split: Split, folder: Path
) -> list[Path]:
    """Write prediction files of the rows in file order: of the course's tasks with lines `id , value`, others as csv.

    Of a task without ids, a row's id is its number in its file, as errors name it. Returns the files:
    `{sst,para,sts,cfimdb}-{dev,test}-output.csv` of the course's tasks; of other tasks the task's name is the first
    part.
    """
    paths = []
    for name, values in estimates.items():
        task, rows = tasks[name], examples[name]
        assert rows.numbers is not None, "rows of files have numbers"
        ids = rows.ids or map(str, rows.numbers)
        answers = zip(ids, written(task, task.decide(values)), strict=True)
        if task.prediction_file is None:
            lines = StringIO()
            csv.writer(lines, lineterminator="\n").writerows([("id", task.prediction_column or name), *answers])
            text = lines.getvalue()
        else:
            header = f"id \t {task.prediction_column or name} \n"
            text = header + "".join(f"{i} , {value} \n" for i, value in answers)
        paths.append(folder / f"{task.prediction_file or name}-{split}-output.csv")
        write_text(paths[-1], text)
    return paths


def written(task: Task, labels: NDArray[Any]) -> list[Any]:
    """Labels or decisions, as files show them: names of classes, names of labels in one text, or numbers."""
    if isinstance(task, MultiLabel):
        return [several_labels(compress(task.names, row)) for row in labels]
    if isinstance(task, Classification):
        return [task.names[int(label)] for label in labels]
    return [float(str(label)) for label in labels]  # the shortest decimals: 9.8, where fp32 has 9.80000019

"""A model's outputs and predictions on the tasks' data sets, and the course's prediction files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.files import write_text
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer
from multitask.data.labelled_data import LabelledData
from multitask.data.read_task_files import Examples, Split
from multitask.data.shuffle_and_batch import Rows
from multitask.models.compute_in_batches import compute_in_batches
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import Runtime
from multitask.tasks.all_tasks import TASKS


def load_split(
    model: MultitaskModel, tokenizer: Tokenizer, folder: Path, split: Split, tasks: Sequence[str] | None = None
) -> dict[str, LabelledData]:
    """The data of a split, tokenised as the model reads it, for `tasks` or for all tasks that the model has a head for.

    Raises:
        InputError: a missing or malformed file.
    """
    return {
        name: LabelledData.load(
            folder, TASKS[name].schema, split, tokenizer, model.max_length, model.reads_jointly(name)
        )
        for name in tasks or model.tasks
    }


def outputs(model: MultitaskModel, task: str, data: LabelledData, runtime: Runtime) -> NDArray[np.float32]:
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


def predict(model: MultitaskModel, data: Mapping[str, LabelledData], runtime: Runtime) -> dict[str, NDArray[Any]]:
    """Predictions in the labels' own units for every row, in file order: [rows]. The model must be in eval mode."""
    return {name: TASKS[name].kind.predict(outputs(model, name, split, runtime)) for name, split in data.items()}


def write_predictions(
    predictions: Mapping[str, NDArray[Any]], examples: Mapping[str, Examples], split: Split, folder: Path
) -> list[Path]:
    """Write the course's prediction files: the course's header, then a line `id , value` for each row in file order.

    Args:
        predictions: of each task, [rows] in file order.
        examples: the rows that were predicted.
        split: name of the split.
        folder: for the files.

    Returns:
        The files written: `{sst,para,sts,cfimdb}-{dev,test}-output.csv`, one for each task.
    """
    paths = []
    for name, values in predictions.items():
        task = TASKS[name]
        lines = [f"id \t {task.prediction_header} \n"]
        lines += [f"{i} , {value} \n" for i, value in zip(examples[name].ids, values.tolist(), strict=True)]
        paths.append(folder / f"{task.prediction_stem}-{split}-output.csv")
        write_text(paths[-1], "".join(lines))
    return paths

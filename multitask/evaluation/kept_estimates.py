"""Estimates of dev rows, kept with the checkpoint that training selected by them: scoring it again computes nothing.

They are found by a hash of everything that decides them, so other weights, rows or another precision find none.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import atomic_file, read_arrays
from multitask.data.examples import Examples, LabelledData
from multitask.evaluation.score_intervals import Answers
from multitask.evaluation.task_predictions import Estimates, estimate, load_examples
from multitask.models.model_folder import file_hashes, read_description
from multitask.models.multitask_model import MultitaskModel, stored_tasks
from multitask.runtime.device import Runtime
from multitask.tasks.kinds import Classification

FILE = "dev-estimates.npz"
DECIDE = ("device", "precision", "attention")
"""What of a runtime decides estimates: the number of threads does not (see `compute_in_batches`)."""


def keep_estimates(folder: Path, estimates: Estimates, data: Mapping[str, LabelledData], runtime: Runtime) -> None:
    """Write the estimates of a saved model for some rows into its folder."""
    keys = _keys(folder, _examples(data), runtime.describe())
    arrays: dict[str, Any] = {keys[name]: values for name, values in estimates.items()}
    with atomic_file(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def kept_estimates(
    folder: Path, rows: Mapping[str, Examples], computing: Mapping[str, Any]
) -> dict[str, NDArray[np.float64]]:
    """The estimates that were kept with a model, of the tasks where they are of these rows and were so computed."""
    if not (folder / FILE).is_file():
        return {}
    kept = read_arrays(folder / FILE)
    return {name: kept[key] for name, key in _keys(folder, rows, computing).items() if key in kept}


def kept_answers(folder: Path, data: Path, computing: Mapping[str, Any]) -> dict[str, Answers]:
    """The answers that were kept with a model, of the tasks whose dev sets are still those of the data.

    `computing` is what `Runtime.describe` gave in training. Raises InputError if a file of the data is gone.
    """
    if (description := read_description(folder)) is None:
        return {}
    tasks, found = stored_tasks(folder, description), {}
    rows = load_examples(tasks, data, "dev")
    for name, values in kept_estimates(folder, rows, computing).items():
        task, labels = tasks[name], rows[name].gold
        classes = len(task.labels) if isinstance(task, Classification) else None
        predictions = values if task.metric == "average_precision" else task.decide(values)
        found[name] = Answers(labels, predictions, task.metric, classes, task.score(values, labels))
    return found


def kept_or_computed(
    folder: Path, model: MultitaskModel, data: Mapping[str, LabelledData], runtime: Runtime
) -> dict[str, NDArray[np.float64]]:
    """The estimates of the model that was loaded from a folder, for all rows in file order; see `estimate`."""
    found = kept_estimates(folder, _examples(data), runtime.describe())
    others = {name: rows for name, rows in data.items() if name not in found}
    computed = estimate(model, others, runtime)
    return {name: found[name] if name in found else computed[name] for name in data}


def _examples(data: Mapping[str, LabelledData]) -> dict[str, Examples]:
    return {name: rows.examples for name, rows in data.items()}


def _keys(folder: Path, rows: Mapping[str, Examples], computing: Mapping[str, Any]) -> dict[str, str]:
    """What decides each task's estimates, as a hash."""
    weights = file_hashes(folder)
    decides = {name: value for name, value in computing.items() if name in DECIDE}
    texts = {name: [list(column) for column in of.sentences] for name, of in rows.items()}
    return {name: sha256(json.dumps([name, weights, decides, of]).encode()).hexdigest() for name, of in texts.items()}

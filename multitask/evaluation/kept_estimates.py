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
from multitask.data.examples import LabelledData
from multitask.evaluation.task_predictions import Estimates, estimate
from multitask.models.model_folder import file_hashes
from multitask.models.multitask_model import MultitaskModel
from multitask.runtime.device import Runtime

FILE = "dev-estimates.npz"
DECIDE = ("device", "precision", "attention")
"""What of a runtime decides estimates: the number of threads does not (see `compute_in_batches`)."""


def keep_estimates(folder: Path, estimates: Estimates, data: Mapping[str, LabelledData], runtime: Runtime) -> None:
    """Write the estimates of a saved model for some rows into its folder."""
    keys = _keys(folder, data, runtime)
    arrays: dict[str, Any] = {keys[name]: values for name, values in estimates.items()}
    with atomic_file(folder / FILE) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def kept_or_computed(
    folder: Path, model: MultitaskModel, data: Mapping[str, LabelledData], runtime: Runtime
) -> dict[str, NDArray[np.float64]]:
    """The estimates of the model that was loaded from a folder, for all rows in file order; see `estimate`."""
    kept = read_arrays(folder / FILE) if (folder / FILE).is_file() else {}
    found = {name: kept[key] for name, key in _keys(folder, data, runtime).items() if key in kept} if kept else {}
    others = {name: rows for name, rows in data.items() if name not in found}
    computed = estimate(model, others, runtime)
    return {name: found[name] if name in found else computed[name] for name in data}


def _keys(folder: Path, data: Mapping[str, LabelledData], runtime: Runtime) -> dict[str, str]:
    """What decides each task's estimates, as a hash."""
    weights = file_hashes(folder)
    computing = {name: value for name, value in runtime.describe().items() if name in DECIDE}
    rows = {name: [list(column) for column in of.examples.sentences] for name, of in data.items()}
    return {name: sha256(json.dumps([name, weights, computing, of]).encode()).hexdigest() for name, of in rows.items()}

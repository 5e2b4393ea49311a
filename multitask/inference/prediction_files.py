"""Prediction files of a fine-tuned model for the course's dev and test sets, in the course's format."""

from pathlib import Path

from multitask.evaluation.task_predictions import estimate, load_split, write_predictions
from multitask.models.multitask_model import load_model
from multitask.runs.artefact import locate_model
from multitask.runtime.device import start
from multitask.runtime.options import Device, Precision
from multitask.tasks.declarations import load_tasks
from multitask.tasks.task import Split


def write_prediction_files(
    model: Path,
    data: Path,
    output: Path,
    best_on: str | None = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> list[Path]:
    """Write a model's predictions on its tasks' dev and test sets, in file order; returns the files written.

    Args:
        model: a run's folder or a model folder.
        data: a tasks file, or the folder of the course's files.
        output: folder for the prediction files.
        best_on: of a run's models, take the one that is best on this score; see `locate_model`.
        device: where to compute.
        precision: of the matrix products.

    Raises:
        InputError: no such model, a missing or malformed file, or predictions that are not finite.
    """
    folder = locate_model(model, best_on=best_on)
    runtime = start(device, precision)
    loaded = load_model(folder, load_tasks(data)).to(runtime.device)
    splits: tuple[Split, ...] = ("dev", "test")
    rows = {split: load_split(loaded, data, split) for split in splits}  # all, before writing any
    predictions = {split: estimate(loaded, rows[split], runtime) for split in splits}
    return [
        path
        for split in splits
        for path in write_predictions(
            loaded.tasks, predictions[split], {name: d.examples for name, d in rows[split].items()}, split, output
        )
    ]

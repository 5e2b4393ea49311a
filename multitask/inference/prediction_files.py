"""Prediction files of a fine-tuned model for the course's dev and test sets, in the course's format."""

from pathlib import Path

from multitask.data.examples import LabelledData
from multitask.evaluation.task_predictions import estimate, load_split, located, tokenised, write_predictions
from multitask.models.multitask_model import load_model
from multitask.runs.artefact import locate_model
from multitask.runtime.device import start
from multitask.runtime.options import Device, Precision
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_test_rows
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

    A task without a test set has no test file. `best_on` chooses the one of a run's models that is best on this
    score. Raises InputError for no such model, a missing or malformed file, or predictions that are not finite.
    """
    folder = locate_model(model, best_on=best_on)
    runtime = start(device, precision)
    declared = load_tasks(data)
    loaded = load_model(folder, declared).to(runtime.device)
    rows: dict[Split, dict[str, LabelledData]] = {"dev": load_split(loaded, data, "dev")}
    test = {name: load_test_rows(located(task, declared[name])) for name, task in loaded.tasks.items()}
    rows["test"] = {name: tokenised(loaded, name, found) for name, found in test.items() if found is not None}
    found = [(split, estimate(loaded, sets, runtime), sets) for split, sets in rows.items()]
    return [
        path
        for split, predictions, sets in found  # all are there before the first is written
        for path in write_predictions(
            loaded.tasks, predictions, {name: d.examples for name, d in sets.items()}, split, output
        )
    ]

"""Scoring a model on its dev sets, every prediction kept: what tables, figures and tests are made from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_file, read_json, write_json
from minbert.tokenizer import load_tokenizer
from multitask.artefacts import Artefact
from multitask.config import RunOptions
from multitask.datasets.readers import Examples
from multitask.evaluation.multitask import load_split, predict, score
from multitask.model import load_model
from multitask.runtime import start
from multitask.tasks import TASKS


def evaluate_run(run: Artefact, data: Path, options: RunOptions) -> Artefact:
    """Score a run's best model on the dev sets that it was selected on; an encoder without heads on pairs alone.

    The artefact holds evaluation.json (overall score, each task's own score and its name, all metrics) and
    predictions.npz (`{task}_predictions` and `{task}_labels`, each [rows] in file order).

    Args:
        run: a complete training.
        data: the folder with its data.
        options: where to compute and to write.

    Raises:
        InputError: the dev files are not those of the run.
    """
    runtime = start(options.device, options.precision)
    config = {"split": "dev", "best_on": "overall"}
    inputs = {"model": run.digest, **runtime.describe()}
    with Artefact.building(options.runs, "evaluate", options.name, config, inputs, {"data": str(data)}) as artefact:
        if artefact.done:
            return artefact
        folder = run.model_folder()
        model = load_model(folder).to(runtime.device)
        dev = load_split(model, load_tokenizer(str(folder)), data, "dev")
        for name, fingerprint in read_json(run.folder / "inputs.json").get("dev", {}).items():
            if name in dev and dev[name].examples.fingerprint != fingerprint:
                raise InputError(f"{dev[name].examples.source}: not the file that {run.folder} was selected on")
        examples = {name: split.examples for name, split in dev.items()}
        write_evaluation(artefact.folder, predict(model, dev, runtime), examples, {})
        artefact.finish()
    return artefact


def write_evaluation(
    folder: Path, predictions: Mapping[str, NDArray[Any]], examples: Mapping[str, Examples], beside: Mapping[str, Any]
) -> None:
    """Score predictions, [rows] in file order, and write evaluation.json, with `beside` in it, and predictions.npz."""
    scores = score(predictions, examples)
    arrays: dict[str, Any] = {f"{name}_predictions": values for name, values in predictions.items()}
    arrays |= {f"{name}_labels": np.asarray(examples[name].labels) for name in predictions}
    with atomic_file(folder / "predictions.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    measures = {name: TASKS[name].kind.metric for name in scores.tasks}
    evaluation = {"overall": scores.overall, "scores": scores.tasks, "measures": measures, "metrics": scores.metrics}
    write_json(folder / "evaluation.json", {**evaluation, **beside})

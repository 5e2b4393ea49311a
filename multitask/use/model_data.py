"""The data that a model is used with, by default those that its run was trained with."""

from pathlib import Path
from typing import NamedTuple

from minbert.errors import InputError
from minbert.files import read_json
from multitask.base import logger
from multitask.base.runs import Run, is_run, run_of
from multitask.stages.reads import SPLITS_BY_USE, changed_file

SAMPLE_DATA = Path("data/sample")


class ModelData(NamedTuple):
    """A tasks file, or the folder of the course's files; `own`: whether it is what the model's run was trained with."""

    path: Path
    own: bool


def data_for(model: str | Path, given: Path | None) -> ModelData:
    """The data that a model is used with, by default those that its run was trained with; logs their path.

    A model outside a run has the sample. Raises InputError if the run's own data are gone or have changed.
    """
    found = _find(model, given)
    logger.info("data: %s", found.path)
    return found


def _find(model: str | Path, given: Path | None) -> ModelData:
    run = trained_run(run_of(model))
    if run is None:
        return ModelData(SAMPLE_DATA if given is None else given, own=False)
    inputs, recorded = read_json(run / "inputs.json", dict), Path(Run(run).labels.get("data", "its data"))
    if given is not None:
        same = given.resolve() == recorded.resolve() or bool(inputs.get("dev"))
        return ModelData(given, own=same and given.exists() and changed_file(inputs, given) is None)
    remedy = "name the data with --data or --tasks-file"
    if file := changed_file(inputs, recorded) if recorded.exists() else recorded:
        if not file.exists():
            raise InputError(f"{file}: no such file, and {run} was trained with it; {remedy}")
        raise InputError(f"{file}: changed since {run} was trained with it; {remedy}")
    return ModelData(recorded, own=True)


def trained_run(run: Path) -> Path | None:
    """The run, or the nearest one that it was made from, that read rows; the last known one if none did.

    A run that is not at its recorded place is looked for next to the run that was made from it.
    """
    chain: list[Path] = []
    while is_run(run) and run not in chain:
        chain.append(run)
        inputs = read_json(run / "inputs.json", dict)
        if any(inputs.get(use) for use in SPLITS_BY_USE):
            break
        start = run_of(Run(run).labels.get("start", ""))
        run = start if is_run(start) else run.parent / start.name
    return chain[-1] if chain else None

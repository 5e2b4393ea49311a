"""Which data a model is used with if none are named: those that its run was trained with, as long as they are the same.

The run's inputs.json says where they were, and has a hash of every file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from minbert.errors import InputError
from minbert.files import read_json, sha256_of_file
from multitask.data.problems import LOGGER
from multitask.runs.artefact import is_run
from multitask.stages.reads import SPLITS_BY_USE, changed_file

SAMPLE = Path("data/sample")


class ModelData(NamedTuple):
    """A tasks file, or the folder of the course's files; `own`: whether it is what the model's run was trained with."""

    path: Path
    own: bool


def data_for(model: str | Path, given: Path | None) -> ModelData:
    """The data that a model is used with, by default those that its run was trained with; logs their path.

    A model outside a run has the sample. Raises InputError if the run's own data are gone or have changed.
    """
    found = _find(model, given)
    LOGGER.info("data: %s", found.path)
    return found


def _find(model: str | Path, given: Path | None) -> ModelData:
    run = trained_run(run_of(Path(model)))
    if run is None:
        return ModelData(SAMPLE if given is None else given, own=False)
    inputs = read_json(run / "inputs.json", dict)
    recorded = Path(str(inputs["labels"]["data"]))
    if given is not None:
        same = given.resolve() == recorded.resolve() or bool(inputs.get("dev"))
        return ModelData(given, own=same and given.exists() and changed_file(inputs, given) is None)
    remedy = "name the data with --data or --tasks-file"
    if file := changed_file(inputs, recorded) if recorded.exists() else recorded:
        if not file.exists():
            raise InputError(f"{file}: no such file, and {run} was trained with it; {remedy}")
        raise InputError(f"{file}: changed since {run} was trained with it; {remedy}")
    return ModelData(recorded, own=True)


def run_of(model: Path) -> Path:
    """The run that a checkpoint belongs to, or the folder itself if it belongs to none."""
    folder = model.absolute()
    return folder.parent.parent if folder.parent.name == "checkpoints" else model


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
        start = run_of(Path(str(inputs.get("labels", {}).get("start", ""))))
        run = start if is_run(start) else run.parent / start.name
    return chain[-1] if chain else None


@contextmanager
def replaced_files_named(*places: Path) -> Iterator[None]:
    """Log which of these files, or files in these folders, have other bytes when the block ends."""
    files = [path for place in places for path in ([place] if place.is_file() else place.glob("*")) if path.is_file()]
    before = {path: sha256_of_file(path) for path in files}
    yield
    for path, hash_before in before.items():
        if sha256_of_file(path) != hash_before:
            LOGGER.warning("%s: replaced; it had other contents", path)

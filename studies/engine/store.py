"""The store: which artefact a recipe has, known without loading a model, and what of all artefacts is still needed.

An artefact is named by the hash of what its stage read (see `multitask.artefacts`), which only the stage can tell. A
recipe has a key of its own, from its configurations and the files behind it; `runs/.nodes/<key>.json` remembers the
artefact that it led to. Without that note a stage loads its inputs and then finds the artefact.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import sha256_of_file
from multitask.runs.artefact import LOCKS, Artefact, Weights, check_names, locate_model
from multitask.runs.garbage import KEEP_LISTS, entries, keep_lists, remove, unneeded
from multitask.runs.locks import is_free
from multitask.runs.records import read_sealed, write_sealed
from multitask.runs.run_hash import hash_of
from multitask.runtime.options import RunOptions
from multitask.stages.registry import stage_named
from studies.engine.recipes import Node

logger = logging.getLogger("multitask")

NOTES = ".nodes"
LOGS = "logs"
GRIDS = "experiments"  # a lock that everyone shares who computes a grid


@dataclass(frozen=True)
class Note:
    """What is remembered of a computed recipe.

    Args:
        artefact: name of its folder.
        stage: the stage's name.
        seconds: wall time that it took.
    """

    artefact: str
    stage: str
    seconds: float


class Store:
    """Notes in the folder of artefacts, for one set of start weights, data, device and precision.

    Args:
        options: the folder, device and precision.
    """

    def __init__(self, options: RunOptions) -> None:
        self.runs = options.runs
        self.options = options
        self._keys: dict[Node | Weights | Path, str] = {}
        self._hashes: dict[Path, str] = {}

    @cached_property
    def _computing(self) -> dict[str, str]:
        from multitask.runtime.device import start  # imports torch

        described = start(self.options.device, self.options.precision).describe()
        return described if self.options.threads is None else {**described, "threads": str(self.options.threads)}

    def key(self, node: Node | Weights | Path) -> str:
        """A hash of all that decides a recipe's result; of weights and data a hash of their files."""
        if node not in self._keys:
            identity: Any
            if isinstance(node, Path):
                identity = _declared(node) if node.suffix == ".toml" else _listed(node)
            elif isinstance(node, Weights):
                from multitask.models.model_folder import file_hashes  # imports torch

                identity = file_hashes(locate_model(node.name, node.revision))
            else:
                parents = [self.key(parent) for parent in node.parents]
                inputs = {"parents": parents, "data": self._data(node), **self._computing}
                identity = stage_named(node.stage).key(node.config, inputs).digest()
            self._keys[node] = hash_of(identity)
        return self._keys[node]

    def _data(self, node: Node) -> str | dict[str, str]:
        """A hash of the data folder, or of the files there that the stage says it reads."""
        listed = stage_named(node.stage).files
        if listed is None:
            return self.key(node.data)
        files = listed(node.config)
        for path in [node.data / file for file in files]:
            if path not in self._hashes and path.is_file():
                self._hashes[path] = sha256_of_file(path)
        return {file: self._hashes[node.data / file] for file in files if node.data / file in self._hashes}

    def note(self, node: Node) -> Note | None:
        """What is remembered of a recipe, if its artefact is there and complete. Raises InputError if it is damaged."""
        path = self._path(node)
        note = _read_note(path) if path.is_file() else None
        if note is None or not (artefact := Artefact(self.runs / note.artefact)).done:
            return None
        artefact.check()
        return note

    def remember(self, node: Node, artefact: Artefact, seconds: float) -> Note:
        """Note a computed recipe; of a run that was resumed the training's own seconds count, when they are more."""
        path = artefact.folder / "metrics.jsonl"
        trained = artefact.history()[-1]["seconds"] if path.is_file() else 0.0
        note = Note(artefact.folder.name, node.stage, round(max(seconds, trained), 3))
        write_sealed(self._path(node), asdict(note))
        return note

    def log(self, node: Node, label: str) -> Path:
        """Where a recipe's log goes."""
        return self.runs / LOGS / f"{node.stage}-{label}-{self.key(node)}.log"

    def _path(self, node: Node) -> Path:
        return self.runs / NOTES / f"{self.key(node)}.json"


def _listed(folder: Path) -> dict[str, str]:
    """Hashes of a data folder's files."""
    return {path.name: sha256_of_file(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _declared(tasks_file: Path) -> list[str]:
    """Hashes of a tasks file and of all files and data sets that it names."""
    from multitask.tasks.declarations import load_tasks  # imports torch
    from multitask.tasks.task import SPLITS

    named = (getattr(task, split) for task in load_tasks(tasks_file).values() for split in SPLITS)
    sources = {source.path or source: source for source in named if source is not None and source.exists()}
    return [sha256_of_file(tasks_file), *(source.fingerprint() for source in sources.values())]


def garbage(runs: Path, named: Sequence[str] = ()) -> list[Path]:
    """What no preset's tables need: runs that grids made, complete or not; notes and logs of such runs.

    Args:
        runs: folder of all runs.
        named: names or hashes of runs that people made by hand and that may go too.

    Raises:
        InputError: a damaged keep-list, or a name of no run or of a needed one.
    """
    unused = [artefact.folder for artefact in unneeded(runs, named)]
    kept = {entry.artefact.folder.name for entry in entries(runs)} - {folder.name for folder in unused}
    notes = [
        path for path in (runs / NOTES).glob("*.json") if (n := _read_note(path)) is None or n.artefact not in kept
    ]
    lists = keep_lists(runs)
    if unlisted := [path for path in sorted(runs.glob(f"{GRIDS}-*.json")) if path.stem not in lists]:
        raise InputError(
            f"{unlisted[0]}: no list in {runs / KEEP_LISTS} says what it needs; "
            f"`multitask experiments run {unlisted[0].stem.removeprefix(f'{GRIDS}-')}` writes one"
        )
    needed = {name for names in lists.values() for name in names}
    logs = [path for path in (runs / LOGS).glob("*.log") if path.relative_to(runs).as_posix() not in needed]
    return [*unused, *sorted(notes), *sorted(logs)]


def _read_note(path: Path) -> Note | None:
    """A note; None, with a warning, of a damaged one, without which a stage loads its inputs to find its artefact."""
    try:
        note: Note = read_sealed(path, Note)
        check_names([note.artefact], path)
    except InputError as error:
        logger.warning("%s; the note is not used", error)
        return None
    return note


def collect(runs: Path, paths: Sequence[Path]) -> None:
    """Delete what `garbage` found. Raises InputError while experiments run, whose runs may not be recorded yet."""
    if not is_free(runs / LOCKS / GRIDS):
        raise InputError(f"{runs}: experiments are running there; wait for their end")
    remove(paths)

"""Which runs are still needed: those that a preset's record names, and those that a person asked for.

A run that a person asked for has a file KEEP in its folder (see `multitask.runs.artefact`). All others may be removed.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.errors import InputError
from multitask.runs.artefact import DONE, KEEP, Artefact, lock_file
from multitask.runs.locks import held_now, refuse_link
from studies.engine.grid import GRIDS, LOGS
from studies.engine.record import Record


@dataclass(frozen=True)
class Entry:
    """A run as it lies in the folder."""

    artefact: Artefact
    size: int  # of its files, in bytes
    needed_by: tuple[str, ...]  # the presets whose records name it

    @property
    def state(self) -> str:
        """`complete` or `unfinished`."""
        return "complete" if self.artefact.done else "unfinished"

    @property
    def by_hand(self) -> bool:
        """Whether a person asked for it."""
        return (self.artefact.folder / KEEP).is_file()


def entries(runs: Path) -> list[Entry]:
    """All runs by name, also a complete one that has lost its inputs.json. Raises InputError if a record is damaged."""
    needed = {record.preset: record.artefacts() for record in Record.read_all(runs)}
    folders = {path.parent for name in ("inputs.json", DONE) for path in runs.glob(f"*/{name}")}
    return [
        Entry(Artefact(folder), size_of(folder), tuple(name for name in needed if folder.name in needed[name]))
        for folder in sorted(folders)
    ]


def find_entry(runs: Path, name: str) -> Entry:
    """The run of this path, name or key. Raises InputError if there is none."""
    if (path := Path(name)).parent != Path():
        runs, name = path.parent, path.name
    for entry in entries(runs):
        if name in (entry.artefact.folder.name, entry.artefact.folder.name.rpartition("-")[2]):
            return entry
    raise InputError(f"{runs}: no such run: {name}; `multitask experiments list` shows all")


def collect(runs: Path, named: Sequence[str] = (), delete: bool = False) -> dict[Path, int]:
    """What nobody needs, with its size in bytes: runs that grids made, complete or not, and logs that no record names.

    No experiment runs from the look at the records to the last removal, and nobody builds a run that is removed.
    `named` has names or keys of runs that people made by hand and that may go too.

    Raises:
        InputError: a damaged record, a name of no run or of a needed one, a link where logs or locks should be, or
            experiments that run while something should be removed: what they need may not be recorded yet.
    """
    if not runs.is_dir():
        raise InputError(f"{runs}: no such folder; expected the folder of all runs")
    found: dict[Path, int] = {}
    with held_now(lock_file(runs, GRIDS)) as alone:
        if delete and not alone:
            raise InputError(f"{runs}: experiments are running there; wait for their end")
        chosen = [find_entry(runs, name).artefact for name in named]
        there = entries(runs)
        for entry in there:
            if entry.needed_by and entry.artefact in chosen:
                raise InputError(f"{entry.artefact.folder}: needed by {', '.join(entry.needed_by)}")
        for entry in there:
            with held_now(entry.artefact.lock) as free:
                if free and not entry.needed_by and (entry.artefact in chosen or not entry.by_hand):
                    found[entry.artefact.folder] = entry.size
                    if delete:
                        remove(entry.artefact.folder)
        refuse_link(runs / LOGS)
        logs = {run.log for record in Record.read_all(runs) for run in record.runs}
        for path in sorted((runs / LOGS).glob("*.log")):
            if path.relative_to(runs).as_posix() not in logs:
                found[path] = size_of(path)
                if delete:
                    remove(path)
    return found


def remove(path: Path) -> None:
    """Delete a file, a folder or a link. DONE goes first, so that a kill leaves no run that looks complete."""
    if path.is_dir() and not path.is_symlink():
        (path / DONE).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


def size_of(path: Path) -> int:
    """Bytes of a file or of all files within a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def megabytes(size: int) -> str:
    """`12.3 MB`."""
    return f"{size / 1e6:,.1f} MB"

"""Which runs are still needed: those that a keep-list names, and those that a person asked for.

A program that makes many runs writes the names of those that it still needs into `runs/keep/<list>.json`. A run that a
person asked for has a file KEEP in its folder (see `artefact`). Everything else may be removed.
"""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.errors import InputError
from multitask.runs.artefact import DONE, KEEP, LOCKS, Artefact
from multitask.runs.locks import is_free
from multitask.runs.records import read_sealed, write_sealed

KEEP_LISTS = "keep"


@dataclass(frozen=True)
class Entry:
    """A run as it lies in the folder.

    Args:
        artefact: its folder.
        size: of its files, in bytes.
        needed_by: the keep-lists that name it.
    """

    artefact: Artefact
    size: int
    needed_by: tuple[str, ...]

    @property
    def state(self) -> str:
        """`complete` or `unfinished`."""
        return "complete" if self.artefact.done else "unfinished"

    @property
    def by_hand(self) -> bool:
        """Whether a person asked for it."""
        return (self.artefact.folder / KEEP).is_file()


def write_keep_list(runs: Path, name: str, needed: Collection[str]) -> None:
    """Say which runs are needed, in place of what the list said before.

    Args:
        runs: folder of all runs.
        name: of the list.
        needed: names of run folders, and of other files within `runs` that belong to them.
    """
    write_sealed(runs / KEEP_LISTS / f"{name}.json", sorted(needed))


def keep_lists(runs: Path) -> dict[str, set[str]]:
    """All keep-lists by name. Raises InputError if one is damaged: then nobody knows what may be removed."""
    found = {}
    for path in sorted((runs / KEEP_LISTS).glob("*.json")):
        try:
            found[path.stem] = set(read_sealed(path, list[str]))
        except InputError as error:
            raise InputError(f"{error}; delete it and run the command that writes it again") from None
    return found


def entries(runs: Path) -> list[Entry]:
    """All runs by name, also a complete one that has lost its inputs.json."""
    lists = keep_lists(runs)
    folders = {path.parent for name in ("inputs.json", DONE) for path in runs.glob(f"*/{name}")}
    return [
        Entry(
            Artefact(folder),
            size_of(folder),
            tuple(name for name, needed in lists.items() if folder.name in needed),
        )
        for folder in sorted(folders)
    ]


def find_entry(runs: Path, name: str) -> Entry:
    """The run of this name or hash. Raises InputError if there is none."""
    for entry in entries(runs):
        if name in (entry.artefact.folder.name, entry.artefact.digest):
            return entry
    raise InputError(f"{runs / name}: no such run; `multitask experiments list` shows all")


def unneeded(runs: Path, named: Sequence[str] = ()) -> list[Artefact]:
    """Runs, complete or not, that may be removed; never one that a process is building.

    Version 0.1 did not record who asked for a run, so its complete runs stay unless they are named.

    Args:
        runs: folder of all runs.
        named: names or hashes of runs that people asked for and that may go too.

    Raises:
        InputError: a name that no run has, or of a run that a keep-list needs.
    """
    chosen = [find_entry(runs, name) for name in named]
    for entry in chosen:
        if entry.needed_by:
            raise InputError(f"{entry.artefact.folder}: needed by {', '.join(entry.needed_by)}")
    names = {entry.artefact.folder.name for entry in chosen}
    return [
        entry.artefact
        for entry in entries(runs)
        if not entry.needed_by
        and (not entry.by_hand or entry.artefact.folder.name in names)
        and is_free(runs / LOCKS / f"{entry.artefact.folder.name.partition('-')[0]}-{entry.artefact.digest}")
    ]


def remove(paths: Sequence[Path]) -> None:
    """Delete files, folders and links. DONE goes first, so that a kill leaves no run that looks complete."""
    for path in paths:
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

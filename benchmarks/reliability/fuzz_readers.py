"""A reader of changed inputs, of one file or of a folder with one changed file."""

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reliability.mutations import (
    mutated_file,
    mutated_tensors,
)

CASE, MADE = Path("case"), Path("made")
"""The folders of changed files, and of originals that no command wrote."""


Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """Something that reads, with an input that it takes.

    Args:
        original: an input.
        read: reads one.
        change: makes another one.
        names: what an error has to contain: the name of the file.
    """

    original: bytes
    read: Callable[[bytes], object]
    change: Callable[[bytes, random.Random], bytes] = mutated_file
    names: str = ""


def of_file(original: bytes, name: str, read: Read, **more: Any) -> Reader:
    """A reader of one file, which is written anew for each case."""
    path = CASE / name

    def read_changed(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    path.parent.mkdir(parents=True, exist_ok=True)
    return Reader(original, read_changed, **{"names": path.name, **more})


def of_folder(original: Path, files: Iterable[str], read: Read, **more: Any) -> Iterator[Reader]:
    """Readers of a folder, each with one of these files changed. An error names the folder."""

    def read_changed(path: Path, content: bytes) -> object:
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            return read(copied)
        finally:
            path.write_bytes(before)

    copied = CASE / original.name
    shutil.copytree(original, copied, dirs_exist_ok=True)
    for name in files:
        path = copied / name
        changes = (mutated_tensors,) if path.suffix == ".safetensors" else ()
        for change in (mutated_file, *changes):
            settings = {"change": change, "names": copied.name, **more}
            yield Reader(path.read_bytes(), partial(read_changed, path), **settings)

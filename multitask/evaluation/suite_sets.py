"""The data sets of each suite of frozen embeddings, and published scores. Imports neither torch nor numpy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, get_args

from minbert.files import read_toml
from multitask.base import logger

TaskSuite = Literal["sts", "transfer", "retrieval"]


@dataclass(frozen=True)
class DataSet:
    """One data set of the folder, as suites.toml describes it."""

    name: str  # SentEval's name of the set
    column: str  # its heading in the papers' tables
    files: tuple[str, ...]  # paths within the data folder
    reader: str  # function of suite_data.py, from the files' full paths and `table` to the data
    table: Mapping[str, Any] = field(default_factory=dict)  # where a table has its sentences and labels

    @classmethod
    def of(cls, files: Sequence[str], subsets: Sequence[str] = ("",), **entry: Any) -> "DataSet":
        """A set of an entry of suites.toml: its files exist for each sub-set."""
        return cls(files=tuple(name.format(subset) for subset in subsets for name in files), **entry)

    def paths(self, folder: Path) -> list[Path]:
        """The files' full paths."""
        return [folder / name for name in self.files]

    def read(self, paths: Sequence[Path]) -> Any:
        """The data in the files. Raises InputError for a malformed file."""
        return resolve_name(f"{__package__}.suite_data:{self.reader}")(paths, **self.table)


_FOUND = read_toml(Path(__file__).with_name("suites.toml"))
SETS: Mapping[TaskSuite, Sequence[DataSet]] = {
    suite: tuple(DataSet.of(**entry) for entry in _FOUND["sets"][suite]) for suite in get_args(TaskSuite)
}
PUBLISHED: Mapping[str, Sequence[Mapping[str, Any]]] = _FOUND["published"]
"""Rows of papers' tables: `label`, `source` (the paper and the table), `scores` and `average` in points."""


def missing_files(sets: Sequence[DataSet], folder: Path) -> dict[str, str]:
    """For each data set that lacks a file, the first one missing. A warning names them, unless all lack one."""
    absent = {entry.name: [path for path in entry.paths(folder) if not path.is_file()] for entry in sets}
    missing = {task: str(paths[0]) for task, paths in absent.items() if paths}
    if len(missing) < len(sets):
        for task, path in missing.items():
            logger.warning("%s: no such file; %s is left out", path, task)
    return missing

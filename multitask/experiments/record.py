"""What a preset ran: its tables, and the runs of each row and seed. Reports are made from records alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minbert.errors import InputError
from minbert.files import read_text, write_json
from minbert.settings import adapter, read_as
from multitask.base.keys import FORMAT_VERSION
from multitask.base.runs import Run, check_names
from multitask.experiments.tables import MAIN_TASKS, OWN_TASKS, StudyTable

SCORES = ("evaluate", "suites", "ensemble")
"""Stages whose runs hold a row's scores and predictions. Ensembles are their own evaluation; simulations have none."""


@dataclass(frozen=True)
class RecordedRun:
    """One seed of one row."""

    table: str  # the table's key
    row: str  # the row's key
    seed: int  # of all its stages
    chain: tuple[str, ...] = ()  # names of all its runs that are complete, parents before children. Rows can share runs
    error: str | None = None
    log: str | None = None  # of the stage that failed, a path within the folder of runs

    @property
    def evaluation(self) -> str | None:
        """Name of the run with its scores and predictions, if it is complete."""
        return self.chain[-1] if self.chain and self.chain[-1].startswith(tuple(f"{s}-" for s in SCORES)) else None

    @property
    def model(self) -> str | None:
        """Name of the run with the row's final model, if it is scored; ensembles and start weights score themselves."""
        alone = self.evaluation is None or self.evaluation.startswith("ensemble-") or len(self.chain) == 1
        return self.evaluation if alone else self.chain[-2]


@dataclass(frozen=True)
class PresetRecord:
    """Everything that one preset ran: the last run of every table.

    Raises:
        ValueError: a run of a row that no table has.
    """

    preset: str
    start: str  # start weights as they were called
    data: str  # folder of the data as it was called, or a tasks file
    notes: tuple[str, ...]  # warnings that belong next to the scores
    tables: tuple[StudyTable, ...]  # what was run
    # one for each seed of each row, in the tables' order. Rows without a recipe have none
    runs: tuple[RecordedRun, ...]
    format_version: int = FORMAT_VERSION  # of the runs

    def __post_init__(self) -> None:
        rows = {(table.key, row.key) for table in self.tables for row in table.rows}
        if unknown := {(run.table, run.row) for run in self.runs} - rows:
            raise ValueError(f"runs of rows that no table has: {sorted(unknown)}")

    @property
    def failures(self) -> list[tuple[str, RecordedRun]]:
        """Failed runs with the labels of their rows."""
        tables = {table.key: table for table in self.tables}
        return [(tables[run.table].label(run.row), run) for run in self.runs if run.error is not None]

    @property
    def subject(self) -> str:
        """What the report is about, for its headings."""
        return f"tasks of {Path(self.data).name}" if self.preset == OWN_TASKS else f"{self.preset} preset"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose best model the report shows: those of a tasks file's table, or the course's main tasks."""
        return next((table.columns for table in self.tables if table.key == OWN_TASKS), MAIN_TASKS)

    def of_row(self, table: str, row: str) -> tuple[RecordedRun, ...]:
        """The runs of a row, one for each seed."""
        return tuple(run for run in self.runs if (run.table, run.row) == (table, row))

    def artefacts(self, *tables: str) -> set[str]:
        """Names of all runs of the tables with these keys, or of all tables."""
        return {name for run in self.runs if not tables or run.table in tables for name in run.chain}

    def with_tables_of(self, earlier: "PresetRecord", folder: Path, order: Sequence[str]) -> "PresetRecord":
        """The record plus the tables that only an earlier record has, if it has the same start weights, data and notes.

        Tables that are not in `order`, the keys of all tables, and those whose runs are incomplete are left out.
        """
        if any(getattr(earlier, of) != getattr(self, of) for of in ("start", "data", "notes", "format_version")):
            return self
        own = {table.key for table in self.tables}

        def kept(key: str) -> bool:
            done = (Run(folder / name).done for name in earlier.artefacts(key))
            return key in order and key not in own and all(done)

        others = {table.key for table in earlier.tables if kept(table.key)}
        place = {key: number for number, key in enumerate(order)}
        tables = [*self.tables, *(table for table in earlier.tables if table.key in others)]
        runs = [*self.runs, *(run for run in earlier.runs if run.table in others)]
        tables.sort(key=lambda table: place.get(table.key, len(place)))
        runs.sort(key=lambda run: place.get(run.table, len(place)))
        return replace(self, tables=tuple(tables), runs=tuple(runs))

    @staticmethod
    def path(folder: Path, preset: str) -> Path:
        """The file of a preset's record."""
        return folder / f"experiments-{preset}.json"

    def write(self, folder: Path) -> None:
        """Write the record into the folder of runs."""
        write_json(self.path(folder, self.preset), adapter(PresetRecord).dump_python(self, mode="json"))

    @classmethod
    def read(cls, folder: Path, preset: str) -> "PresetRecord":
        """A preset's record. Raises InputError if there is none, another version wrote it, or it is damaged."""
        what = "--tasks-file FILE" if preset == OWN_TASKS else preset
        path, command = cls.path(folder, preset), f"`multitask experiments run {what}`"
        if not path.is_file():
            raise InputError(f"{path}: no such file; run {command} first")
        try:
            record: PresetRecord = read_as(PresetRecord, read_text(path), path)
            if record.format_version != FORMAT_VERSION:
                raise InputError(f"{path}: written by another version")
            check_names(record.artefacts(), path)
        except InputError as error:
            raise InputError(f"{error}; run {command} again") from None
        return record

    @classmethod
    def read_all(cls, folder: Path) -> "list[PresetRecord]":
        """The records of all presets. Raises InputError if one is damaged."""
        names = sorted(path.stem.removeprefix("experiments-") for path in folder.glob("experiments-*.json"))
        return [cls.read(folder, name) for name in names]


def duration(seconds: float | None) -> str:
    """`12.3 s`, `4 min 10 s`, `3 h 05 min`, or a question mark if unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes} min {rest:02d} s"

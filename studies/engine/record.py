"""What a preset ran: its tables, and the artefacts of each row and seed. Reports are made from records."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_json
from minbert.settings import read_as
from multitask.runs.artefact import Artefact, check_names
from multitask.runs.garbage import write_keep_list
from multitask.runs.records import read_sealed, write_sealed
from multitask.runs.run_hash import FORMAT_VERSION
from studies.engine.table import MAIN_TASKS, OWN_TASKS, Table

SCHEMA = 2
"""Version of the record's fields. Version 1 had no keys."""


@dataclass(frozen=True)
class RecordedStage:
    """One artefact on the way to a row.

    Args:
        stage: the stage's name.
        artefact: name of its folder.
        seconds: wall time of its computation, including loading and evaluation; 0 if unknown.
    """

    stage: str
    artefact: str
    seconds: float


@dataclass(frozen=True)
class RecordedRun:
    """One seed of one row.

    Args:
        table: the table's key.
        row: the row's key.
        seed: of all its stages.
        model: name of the artefact with the row's final model, if it is computed. An ensemble is its own evaluation.
        evaluation: name of the artefact with its scores and predictions, if it is computed. Simulations have none.
        error: why a stage failed.
        log: of the stage that failed, a path within the folder of artefacts.
        chain: all computed artefacts of the row, parents before children. Rows can share artefacts.
    """

    table: str
    row: str
    seed: int
    model: str | None = None
    evaluation: str | None = None
    error: str | None = None
    log: str | None = None
    chain: tuple[RecordedStage, ...] = ()


@dataclass(frozen=True)
class Record:
    """Everything that one preset ran: the last run of every table.

    Args:
        preset: its name.
        start: start weights as they were called.
        data: folder of the data as it was called, or a tasks file.
        notes: warnings that belong next to the scores.
        tables: what was run.
        runs: one for each seed of each row, in the tables' order. Rows without a recipe have none.
        format_version: of the artefacts.
        schema: of the record.

    Raises:
        ValueError: a run of a row that no table has.
    """

    preset: str
    start: str
    data: str
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    runs: tuple[RecordedRun, ...]
    format_version: int = FORMAT_VERSION
    schema: int = SCHEMA

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
        """Names of all artefacts of the tables with these keys, or of all tables."""
        return {stage.artefact for run in self.runs if not tables or run.table in tables for stage in run.chain}

    def with_tables_of(self, earlier: "Record", folder: Path, order: Sequence[str]) -> "Record":
        """The record plus the tables that only an earlier record has, if it has the same start weights and data.

        Args:
            earlier: a record of the same preset.
            folder: of all artefacts. Tables whose artefacts are incomplete are left out.
            order: keys of all tables.
        """
        if (earlier.start, earlier.data, earlier.format_version) != (self.start, self.data, self.format_version):
            return self
        own = {table.key for table in self.tables}
        kept = {
            table.key
            for table in earlier.tables
            if table.key in order
            and table.key not in own
            and all(Artefact(folder / name).done for name in earlier.artefacts(table.key))
        }
        place = {key: number for number, key in enumerate(order)}
        tables = [*self.tables, *(table for table in earlier.tables if table.key in kept)]
        runs = [*self.runs, *(run for run in earlier.runs if run.table in kept)]
        tables.sort(key=lambda table: place.get(table.key, len(place)))
        runs.sort(key=lambda run: place.get(run.table, len(place)))
        return replace(self, tables=tuple(tables), runs=tuple(runs))

    def best_model(self, folder: Path, tasks: Collection[str]) -> str | None:
        """The artefact of the model with the best overall dev score on exactly these tasks. None if no run has it."""
        scores: dict[str, float] = {}
        for run in self.runs:
            if run.model is not None and run.evaluation is not None:
                evaluation = read_json(folder / run.evaluation / "evaluation.json")
                if set(evaluation["scores"]) == set(tasks) and not isnan(evaluation["overall"]):
                    scores[run.model] = evaluation["overall"]
        return max(scores, key=scores.__getitem__, default=None)

    @staticmethod
    def path(folder: Path, preset: str) -> Path:
        """The file of a preset's record."""
        return folder / f"experiments-{preset}.json"

    def write(self, folder: Path) -> None:
        """Write the record into the folder of artefacts, and a keep-list of the runs and logs that it rests on."""
        logs = [run.log for _, run in self.failures if run.log is not None]
        write_keep_list(folder, f"experiments-{self.preset}", [*self.artefacts(), *logs])
        write_sealed(self.path(folder, self.preset), self)

    @classmethod
    def read(cls, folder: Path, preset: str) -> "Record":
        """Read a preset's record.

        Raises:
            InputError: there is none, another version wrote it, or it is damaged.
        """
        what = "--tasks-file FILE" if preset == OWN_TASKS else preset
        path, command = cls.path(folder, preset), f"`multitask experiments run {what}`"
        if not path.is_file():
            raise InputError(f"{path}: no such file; run {command} first")
        try:
            found = read_sealed(path, dict[str, Any])
            if (found.get("schema"), found.get("format_version")) != (SCHEMA, FORMAT_VERSION):
                raise InputError(f"{path}: written by another version")
            record: Record = read_as(cls, json.dumps(found), path)
            check_names([name for run in record.runs for name in (run.model, run.evaluation)], path)
            check_names(record.artefacts(), path)
        except InputError as error:
            raise InputError(f"{error}; run {command} again") from None
        return record


def duration(seconds: float | None) -> str:
    """`12.3 s`, `4 min 10 s`, `3 h 05 min`, or a question mark if unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes} min {rest:02d} s"

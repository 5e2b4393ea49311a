"""What a set of experiments ran: its tables, and which artefacts hold each row. All that a report starts from."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from minbert.files import read_json, write_json


@dataclass(frozen=True)
class RecordedRun:
    """One seed of one row.

    Args:
        seed: of the run.
        training: name of the artefact that holds the fine-tuning, None if there is none.
        evaluation: name of the artefact that holds its dev scores and predictions, None if there is none.
        error: why there is none.
    """

    seed: int
    training: str | None = None
    evaluation: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class RecordedRow:
    """One row of a table, a run a seed."""

    label: str
    runs: tuple[RecordedRun, ...]


@dataclass(frozen=True)
class RecordedTable:
    """One table, as in `experiments.tables.Table`."""

    title: str
    note: str
    rows: tuple[RecordedRow, ...]


@dataclass(frozen=True)
class Record:
    """Everything that one preset ran.

    Args:
        preset: its name.
        start: start weights as they were called.
        data: folder of the data as it was called.
        notes: warnings that belong beside the scores.
        tables: what was run.
    """

    preset: str
    start: str
    data: str
    notes: tuple[str, ...]
    tables: tuple[RecordedTable, ...]

    @property
    def failures(self) -> list[tuple[str, RecordedRun]]:
        """Runs that failed, with the labels of their rows, in the tables' order."""
        rows = (row for table in self.tables for row in table.rows)
        return [(row.label, run) for row in rows for run in row.runs if run.error is not None]

    def best_training(self, runs: Path, tasks: Collection[str]) -> str | None:
        """The training with the best overall dev score among those that were scored on exactly these tasks.

        Args:
            runs: folder of all artefacts.
            tasks: names of the tasks.

        Returns:
            The artefact's name, or None when no such run succeeded.
        """
        scores: dict[str, float] = {}
        for run in (run for table in self.tables for row in table.rows for run in row.runs):
            if run.training is not None and run.evaluation is not None:
                evaluation = read_json(runs / run.evaluation / "evaluation.json")
                if set(evaluation["scores"]) == set(tasks):
                    scores[run.training] = evaluation["overall"]
        return max(scores, key=scores.__getitem__, default=None)

    @staticmethod
    def path(runs: Path, preset: str) -> Path:
        """Where the record of a preset lies."""
        return runs / f"experiments-{preset}.json"

    def write(self, runs: Path) -> None:
        """Write the record into the folder of artefacts."""
        write_json(self.path(runs, self.preset), asdict(self))

    @classmethod
    def read(cls, runs: Path, preset: str) -> "Record":
        """Read a preset's record. Raises InputError if there is none."""
        path = cls.path(runs, preset)
        if not path.is_file():
            raise InputError(f"{path}: no such file; run `multitask experiments {preset}` first")
        fields = read_json(path)
        try:
            return cls(**{**fields, "notes": tuple(fields["notes"]), "tables": tuple(map(_table, fields["tables"]))})
        except (TypeError, KeyError) as error:
            raise InputError(f"{path}: not a record of experiments ({error})") from None


def _table(fields: dict[str, Any]) -> RecordedTable:
    rows = (RecordedRow(row["label"], tuple(RecordedRun(**run) for run in row["runs"])) for row in fields["rows"])
    return RecordedTable(fields["title"], fields["note"], tuple(rows))

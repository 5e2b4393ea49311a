"""What a set of experiments ran: its tables, and which artefacts hold each row. All that a report starts from."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from minbert.errors import InputError
from minbert.files import read_json, write_json
from multitask.runs.artefact import Artefact
from multitask.runs.run_hash import FORMAT_VERSION

TableKind = Literal["table", "curves", "simulations"]
MAIN_TASKS = ("sentiment", "paraphrase", "similarity")


@dataclass(frozen=True)
class Published:
    """The report's dev scores of a row: accuracies of 0 to 1, and Pearson correlation; None where it gives none."""

    overall: float | None
    sentiment: float | None
    paraphrase: float | None
    similarity: float | None


@dataclass(frozen=True)
class RecordedStage:
    """One artefact on the way to a row.

    Args:
        stage: pretrain, finetune, fuse, mlm, prune, ensemble, evaluate or simulate.
        artefact: name of its folder.
        seconds: wall time that it took to compute, loading and evaluation included; 0 when that is not known.
    """

    stage: str
    artefact: str
    seconds: float


@dataclass(frozen=True)
class RecordedRun:
    """One seed of one row.

    Args:
        seed: of the whole chain.
        model: name of the artefact that holds the row's final model, None if there is none. An ensemble is its own
            evaluation, and has no metrics.jsonl.
        evaluation: name of the artefact that holds its scores and predictions, None if there is none, as of
            simulations.
        error: why there is none.
        log: of the stage that failed, a path within the folder of artefacts.
        chain: all artefacts behind the row that were computed, parents before children, the evaluation last. One that
            rows share stands in each.
    """

    seed: int
    model: str | None = None
    evaluation: str | None = None
    error: str | None = None
    log: str | None = None
    chain: tuple[RecordedStage, ...] = ()


@dataclass(frozen=True)
class RecordedRow:
    """One row of a table, a run a seed; no runs for a row that only the report can have.

    Args:
        label: the row's name.
        runs: one a seed.
        published: the report's scores, None for rows that it does not have.
    """

    label: str
    runs: tuple[RecordedRun, ...]
    published: Published | None = None


@dataclass(frozen=True)
class RecordedTable:
    """One table, as in `experiments.tables.Table`.

    Args:
        title: what is compared.
        note: what a reader must know.
        rows: in the table's order.
        key: how the command line calls it: 1 to 10 for the report's tables, else a name.
        reference: label of the row that the others are compared with, the report's bold one; None if there is none.
        columns: the tasks scored; with several there is a column of their mean, or of the means of groups.
        groups: columns that are means of others, by name.
        kind: shown as a table of best scores, or as curves of the overall dev score after every epoch; simulations,
            which have no scores, are shown in the study.
    """

    title: str
    note: str
    rows: tuple[RecordedRow, ...]
    key: str = ""
    reference: str | None = None
    columns: tuple[str, ...] = MAIN_TASKS
    kind: TableKind = "table"
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """Everything that one preset ran: of every table its last run.

    Args:
        preset: its name.
        start: start weights as they were called.
        data: folder of the data as it was called.
        notes: warnings that belong beside the scores.
        tables: what was run.
        format_version: of the artefacts.
    """

    preset: str
    start: str
    data: str
    notes: tuple[str, ...]
    tables: tuple[RecordedTable, ...]
    format_version: int = FORMAT_VERSION

    @property
    def runs(self) -> list[tuple[str, RecordedRun]]:
        """All runs with the labels of their rows, in the tables' order; a row of two tables stands there twice."""
        return [(row.label, run) for table in self.tables for row in table.rows for run in row.runs]

    @property
    def failures(self) -> list[tuple[str, RecordedRun]]:
        """Runs that failed, with the labels of their rows, in the tables' order."""
        return [(label, run) for label, run in self.runs if run.error is not None]

    def artefacts(self) -> set[str]:
        """Names of all artefacts that the record rests on."""
        return {stage.artefact for _, run in self.runs for stage in run.chain}

    def with_tables_of(self, earlier: "Record", runs: Path, order: Sequence[str]) -> "Record":
        """The record with the tables that only an earlier one has, if that is of the same start weights and data.

        Args:
            earlier: of the same preset.
            runs: folder of all artefacts; a table that has lost one is left out.
            order: keys of all tables there are.
        """
        if (earlier.start, earlier.data, earlier.format_version) != (self.start, self.data, self.format_version):
            return self
        own = {table.key for table in self.tables}
        kept = [table for table in earlier.tables if table.key in order and table.key not in own]
        whole = [t for t in kept if all(Artefact(runs / name).done for name in replace(self, tables=(t,)).artefacts())]
        places = {key: place for place, key in enumerate(order)}
        tables = sorted((*self.tables, *whole), key=lambda table: places.get(table.key, len(places)))
        return replace(self, tables=tuple(tables))

    def best_model(self, runs: Path, tasks: Collection[str]) -> str | None:
        """The model with the best overall dev score among those that were scored on exactly these tasks.

        Args:
            runs: folder of all artefacts.
            tasks: names of the tasks.

        Returns:
            The artefact's name, or None when no such run succeeded.
        """
        scores: dict[str, float] = {}
        for _, run in self.runs:
            if run.model is not None and run.evaluation is not None:
                evaluation = read_json(runs / run.evaluation / "evaluation.json")
                if set(evaluation["scores"]) == set(tasks):
                    scores[run.model] = evaluation["overall"]
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
        """Read a preset's record. Raises InputError if there is none, or one of another version's artefacts."""
        path = cls.path(runs, preset)
        if not path.is_file():
            raise InputError(f"{path}: no such file; run `multitask experiments run {preset}` first")
        fields = read_json(path)
        if fields.get("format_version") != FORMAT_VERSION:
            raise InputError(f"{path}: written by another version; run `multitask experiments run {preset}` again")
        try:
            return cls(**{**fields, "notes": tuple(fields["notes"]), "tables": tuple(map(_table, fields["tables"]))})
        except (TypeError, KeyError) as error:
            raise InputError(f"{path}: not a record of experiments ({error})") from None


def _table(fields: dict[str, Any]) -> RecordedTable:
    rows = tuple(map(_row, fields["rows"]))
    groups = {name: tuple(columns) for name, columns in fields.get("groups", {}).items()}
    return RecordedTable(**{**fields, "rows": rows, "columns": tuple(fields["columns"]), "groups": groups})


def _row(fields: dict[str, Any]) -> RecordedRow:
    published = fields["published"]
    return RecordedRow(
        fields["label"],
        tuple(_run(run) for run in fields["runs"]),
        None if published is None else Published(**published),
    )


def _run(fields: dict[str, Any]) -> RecordedRun:
    return RecordedRun(**{**fields, "chain": tuple(RecordedStage(**stage) for stage in fields["chain"])})

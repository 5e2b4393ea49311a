"""Results as a report shows them, read from the record of a preset and its artefacts; no model, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import read_json
from multitask.artefacts import Artefact
from multitask.experiments.record import Record, RecordedRow, RecordedRun, RecordedTable

MAIN_TASKS = ("sentiment", "paraphrase", "similarity")
OVERALL = "overall"
MEASURES = {"accuracy": "accuracy", "pearson": "Pearson correlation"}


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Args:
        folder: of the training.
        evaluation_folder: of its scores and predictions.
        seed: of the run.
    """

    folder: Path
    evaluation_folder: Path
    seed: int

    @cached_property
    def config(self) -> dict[str, Any]:
        """The full resolved configuration."""
        return read_json(self.folder / "config.json")

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Fingerprints of what the run read, device and precision."""
        return read_json(self.folder / "inputs.json")

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return Artefact(self.folder).history()

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """Overall score, scores and metrics of the best model."""
        return read_json(self.evaluation_folder / "evaluation.json")

    def predictions(self, task: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Dev labels and predictions of a task, [rows] each in file order."""
        with np.load(self.evaluation_folder / "predictions.npz") as arrays:
            return arrays[f"{task}_labels"], arrays[f"{task}_predictions"]

    @property
    def tokens_per_second(self) -> float:
        """Real tokens, no padding, that training took in a second."""
        last = self.history[-1]
        return float(last["tokens"] / last["seconds"])

    @property
    def best_epoch(self) -> int:
        """The epoch whose model was kept."""
        return int(max(self.history, key=lambda line: line["scores"][OVERALL])["epoch"])


@dataclass(frozen=True)
class RowResult:
    """One row and its finished runs, one a seed."""

    label: str
    runs: tuple[RunResult, ...]

    def scores(self, column: str) -> list[float]:
        """The dev score of every seed; empty where the row has none."""
        if column == OVERALL:
            return [run.evaluation[OVERALL] for run in self.runs]
        return [run.evaluation["scores"][column] for run in self.runs if column in run.evaluation["scores"]]

    def curves(self, column: str) -> list[list[float]]:
        """The dev score after every epoch, a list a seed; empty where the row has none."""
        if column == OVERALL:
            return [[line["scores"][OVERALL] for line in run.history] for run in self.runs]
        return [
            [line["dev"][column][run.evaluation["measures"][column]] for line in run.history]
            for run in self.runs
            if column in run.evaluation["scores"]
        ]


@dataclass(frozen=True)
class TableResult:
    """One table: rows and columns of dev scores."""

    title: str
    note: str
    rows: tuple[RowResult, ...]

    @cached_property
    def measures(self) -> dict[str, str]:
        """The tasks that any row was scored on, and what each is scored by."""
        return {
            task: name for row in self.rows for run in row.runs for task, name in run.evaluation["measures"].items()
        }

    @property
    def columns(self) -> list[str]:
        """Overall where there are several tasks, and the tasks."""
        return [OVERALL, *self.measures] if len(self.measures) > 1 else list(self.measures)

    def heading(self, column: str) -> str:
        """A column's title."""
        return "Overall" if column == OVERALL else f"{column.capitalize()} {MEASURES[self.measures[column]]}"

    def scores(self, row: RowResult, column: str) -> list[float]:
        """A row's scores in a column. Overall is left out for rows that were not scored on every task."""
        if column == OVERALL and any(not row.scores(task) for task in self.measures):
            return []
        return row.scores(column)

    def is_best(self, row: RowResult, column: str) -> bool:
        """Whether no row has a better mean score in the column, of at least two that have one."""
        means = [fmean(scores) for other in self.rows if (scores := self.scores(other, column))]
        scores = self.scores(row, column)
        return len(means) > 1 and bool(scores) and fmean(scores) == max(means)


@dataclass(frozen=True)
class Results:
    """All that a report shows."""

    record: Record
    tables: tuple[TableResult, ...]
    runs: Path

    @classmethod
    def read(cls, runs: Path, preset: str) -> "Results":
        """Read a preset's record and results. Raises InputError when it was never run."""
        record = Record.read(runs, preset)
        return cls(record, tuple(_table(runs, table) for table in record.tables), runs)

    @cached_property
    def labelled_runs(self) -> dict[str, tuple[str, RunResult]]:
        """Every finished run once, by the name of its artefact, with the label of its first row."""
        found: dict[str, tuple[str, RunResult]] = {}
        for row in (row for table in self.tables for row in table.rows):
            for run in row.runs:
                found.setdefault(run.folder.name, (row.label, run))
        return found

    @cached_property
    def best(self) -> tuple[str, RunResult] | None:
        """Label and run of the best model of the three main tasks."""
        name = self.record.best_training(self.runs, MAIN_TASKS)
        return None if name is None else self.labelled_runs[name]


def mean_and_deviation(scores: Sequence[float]) -> str:
    """`0.783`, or `0.783 ± 0.004` (sample standard deviation) of several, or a dash of none."""
    if not scores:
        return "–"
    return f"{fmean(scores):.3f}" + (f" ± {stdev(scores):.3f}" if len(scores) > 1 else "")


def _table(runs: Path, table: RecordedTable) -> TableResult:
    return TableResult(table.title, table.note, tuple(_row(runs, row) for row in table.rows))


def _row(runs: Path, row: RecordedRow) -> RowResult:
    return RowResult(row.label, tuple(result for run in row.runs if (result := _run(runs, run))))


def _run(runs: Path, run: RecordedRun) -> RunResult | None:
    if run.training is None or run.evaluation is None:
        return None
    return RunResult(runs / run.training, runs / run.evaluation, run.seed)

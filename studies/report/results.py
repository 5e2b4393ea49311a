"""Results as a report shows them, read from the record of a preset and its artefacts; no model, no torch."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.files import read_json
from multitask.evaluation.text_tables import capitalized
from multitask.runs.artefact import Artefact
from studies.engine.record import MAIN_TASKS, Record, RecordedRow, RecordedRun, RecordedStage, RecordedTable

OVERALL = "overall"
MEASURES = {"accuracy": "accuracy", "pearson": "Pearson correlation", "spearman": "Spearman correlation"}


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Args:
        folder: of the final model: a training, or an ensemble of several.
        evaluation_folder: of its scores and predictions.
        seed: of the run.
        chain: all artefacts behind it, parents first.
    """

    folder: Path
    evaluation_folder: Path
    seed: int
    chain: tuple[RecordedStage, ...]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; none for an ensemble."""
        return history(self.folder)

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """Overall score, scores and metrics of the best model."""
        return read_json(self.evaluation_folder / "evaluation.json")

    @property
    def chosen_on_dev(self) -> bool:
        """Whether it is an ensemble that chose among several models of a task by their dev scores."""
        members = self.evaluation.get("members", {}).values()
        tasks = [task for member in members for task in member["scores"]]
        return self.evaluation.get("selected_on_dev", False) and len(set(tasks)) < len(tasks)

    def predictions(self, task: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Dev labels and predictions of a task, [rows] each in file order."""
        with np.load(self.evaluation_folder / "predictions.npz") as arrays:
            return arrays[f"{task}_labels"], arrays[f"{task}_predictions"]


@dataclass(frozen=True)
class Overlap:
    """A row's models were trained on some of the rows that a task scores; means over seeds.

    Args:
        label: of the row.
        task: the task.
        rows: that the task scores.
        seen: how many of them were trained on.
        score: on all of them.
        clean: on the others; None where too few are left.
    """

    label: str
    task: str
    rows: int
    seen: float
    score: float
    clean: float | None


@dataclass(frozen=True)
class RowResult:
    """One row: its finished runs, one a seed, and the report's scores."""

    label: str
    runs: tuple[RunResult, ...]
    published: dict[str, float | None]

    @property
    def chosen_on_dev(self) -> bool:
        """Whether any task's model was chosen among several by the very dev scores that are shown."""
        return any(run.chosen_on_dev for run in self.runs)

    def scored(self, tasks: tuple[str, ...]) -> tuple[RunResult, ...]:
        """The runs that were scored on all of these tasks."""
        return tuple(run for run in self.runs if set(tasks) <= set(run.evaluation["scores"]))

    def overlap(self, task: str) -> Overlap | None:
        """How much of a task's rows the models were trained on; None if nothing of it, or where that is not known."""
        runs = [run.evaluation for run in self.runs if task in run.evaluation.get("overlap", {})]
        parts = [evaluation["overlap"][task] for evaluation in runs]
        if not any(part["rows_seen"] for part in parts):
            return None
        clean = [part["clean"] for part in parts]
        return Overlap(
            self.label,
            task,
            parts[0]["rows"],
            fmean(part["rows_seen"] for part in parts),
            fmean(evaluation["scores"][task] for evaluation in runs),
            None if None in clean else fmean(clean),
        )

    def curves(self, column: str) -> list[list[float]]:
        """The dev score after every epoch, a list a seed; empty where training did not measure it."""
        curves = ([_score(line, column, run) for line in run.history] for run in self.runs)
        return [curve for curve in curves if curve and None not in curve]


@dataclass(frozen=True)
class TableResult:
    """One table: what was recorded of it, and its rows' results."""

    recorded: RecordedTable
    rows: tuple[RowResult, ...]
    place: int

    @property
    def name(self) -> str:
        """For files and links: `table-3`, `figure2`."""
        key = self.recorded.key or f"unnamed-{self.place}"
        return f"table-{key}" if key.isdigit() else key

    @property
    def title(self) -> str:
        """With the number that the report gives the table or figure."""
        numbered = re.fullmatch(r"(figure)?(\d+)", self.recorded.key)
        prefix = f"{(numbered[1] or 'table').capitalize()} {numbered[2]}: " if numbered else ""
        return prefix + self.recorded.title

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Means of several tasks, if only of all (overall), and the tasks."""
        tasks = self.recorded.columns
        means = tuple(self.recorded.groups) or (OVERALL,)
        return (*means, *tasks) if len(tasks) > 1 else tasks

    def tasks(self, column: str) -> tuple[str, ...]:
        """The tasks that a column's scores are the mean of."""
        groups = {OVERALL: self.recorded.columns, **self.recorded.groups}
        return groups.get(column, (column,))

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Of every row and task that it was trained on some rows of."""
        places = ((row, task) for row in self.rows for task in self.recorded.columns)
        return [overlap for row, task in places if (overlap := row.overlap(task))]

    @cached_property
    def has_published(self) -> bool:
        """Whether the report gives any number for the table."""
        return any(value is not None for row in self.rows for value in row.published.values())

    def heading(self, column: str) -> str:
        """A column's title."""
        measures = (run.evaluation["measures"].get(column) for row in self.rows for run in row.runs)
        measure = next((MEASURES[name] for name in measures if name), "")
        return f"{capitalized(column)} {measure}".rstrip()


@dataclass(frozen=True)
class Results:
    """All that a report shows."""

    record: Record
    tables: tuple[TableResult, ...]
    runs: Path

    @cached_property
    def simulation(self) -> RecordedStage | None:
        """The simulations of the gradient study, if they are there."""
        tables = (table for table in self.record.tables if table.kind == "simulations")
        return next((stage for t in tables for row in t.rows for run in row.runs for stage in run.chain), None)

    @classmethod
    def read(cls, runs: Path, preset: str) -> "Results":
        """Read a preset's record and results. Raises InputError when it was never run."""
        record = Record.read(runs, preset)
        tables = (
            TableResult(table, tuple(_row(runs, row) for row in table.rows), place)
            for place, table in enumerate(record.tables, start=1)
            if table.kind != "simulations"
        )
        return cls(record, tuple(tables), runs)

    @cached_property
    def finished(self) -> dict[str, tuple[str, RunResult]]:
        """Every finished run once, by the name of its evaluation, with the title and label of its first row."""
        found: dict[str, tuple[str, RunResult]] = {}
        for table in self.tables:
            for row in table.rows:
                for run in row.runs:
                    found.setdefault(run.evaluation_folder.name, (f"{table.title}, {row.label}", run))
        return found

    @cached_property
    def best(self) -> tuple[str, RunResult] | None:
        """Label and run of the best model of the three main tasks."""
        scored = [found for found in self.finished.values() if set(found[1].evaluation["scores"]) == set(MAIN_TASKS)]
        return max(scored, key=lambda found: found[1].evaluation[OVERALL], default=None)


def history(folder: Path) -> list[dict[str, Any]]:
    """The lines of an artefact's metrics.jsonl, one an evaluation; none where nothing was trained."""
    return Artefact(folder).history() if (folder / "metrics.jsonl").is_file() else []


def _score(line: dict[str, Any], column: str, run: RunResult) -> Any:
    if column == OVERALL:
        return line["scores"].get(OVERALL)
    return line["dev"].get(column, {}).get(run.evaluation["measures"].get(column))


def _row(runs: Path, row: RecordedRow) -> RowResult:
    published = {} if row.published is None else vars(row.published)
    return RowResult(row.label, tuple(result for run in row.runs if (result := _run(runs, run))), published)


def _run(runs: Path, run: RecordedRun) -> RunResult | None:
    if run.model is None or run.evaluation is None:
        return None
    return RunResult(runs / run.model, runs / run.evaluation, run.seed, run.chain)

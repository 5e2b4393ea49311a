"""Results of runs, tables and presets: estimates with intervals, differences to a reference row, published orders."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
import pandas

from multitask.base.runs import Run
from multitask.evaluation.statistics import (
    LEVEL,
    SAMPLES,
    SampledScores,
    Uncertain,
    Values,
    contrast,
    draws_of,
    holm,
    resampled_scores,
)
from multitask.evaluation.text_tables import capitalized
from multitask.experiments.grid_frames import GridFrames, RunResult
from multitask.experiments.table_definitions import PresetRecord, Row, StudyTable
from multitask.tasks.scores import LOWER_IS_BETTER

TABLE_MEASURES: dict[str, str] = {
    "accuracy": "accuracy",
    "accuracy_at_threshold": "accuracy at the threshold that is best on training rows",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "mae": "mean absolute error (lower is better)",
    "kappa": "quadratic kappa",
    "average_precision": "average precision",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "RMSE (lower is better)",
}
DevSet = tuple[str, str, bytes]  # task, metric, labels in file order


class Samples:
    """Scores of all runs, with different evaluations, on resampled examples. Each dev set is resampled once for all."""

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self.runs = runs
        self.computed: dict[DevSet, dict[str, Values]] = {}

    @cached_property
    def _runs(self) -> dict[DevSet, dict[str, RunResult]]:
        """The runs that were scored on a dev set, by the names of their evaluations."""
        found: dict[DevSet, dict[str, RunResult]] = {}
        for run in self.runs:
            for task in run.answers:
                found.setdefault(self.dev_set(run, task), {})[run.evaluated] = run
        return found

    def dev_set(self, run: RunResult, task: str) -> DevSet:
        """The dev set on which a run was scored, and how. It is unknown where the answers are."""
        labels = run.answers[task].labels.tobytes() if task in run.answers else b""
        return task, run.measures[task], labels

    def scores(self, runs: Sequence[RunResult], task: str) -> SampledScores:
        """The scores of a row's runs, one for each seed."""
        observed = np.array([run.scores[task] for run in runs])
        resampled = np.stack([self.resampled(run, task) for run in runs], axis=1)
        return SampledScores([run.seed for run in runs], observed, resampled)

    def resampled(self, run: RunResult, task: str) -> Values:
        """The run's scores on resampled dev examples of a task, [samples]; always its score if answers are unknown."""
        if task not in run.answers:
            return np.full(SAMPLES, run.scores[task])
        dev_set, name = self.dev_set(run, task), run.evaluated
        if dev_set not in self.computed:
            runs = self._runs[dev_set]
            predictions = np.stack([other.answers[task].predictions for other in runs.values()])
            labels, _, measure, classes, _ = run.answers[task]
            scores = resampled_scores(labels, predictions, measure, draws_of(task), classes=classes)
            self.computed[dev_set] = dict(zip(runs, scores.T.copy(), strict=True))
        return self.computed[dev_set][name]


CellKey = tuple[str, str]  # a row's key and a column


def compared(differences: Mapping[tuple[Any, ...], Uncertain]) -> pandas.DataFrame:
    """A family of tests by name: difference, 95% interval (low, high), and p corrected for their number (Holm 1979)."""
    adjusted = holm([difference.p_value() for difference in differences.values()])
    tests = [
        (difference.value, *difference.interval(), p, p < LEVEL)
        for difference, p in zip(differences.values(), adjusted, strict=True)
    ]
    index = pandas.MultiIndex.from_tuples(differences) if differences else None
    return pandas.DataFrame(tests, index, ["difference", "low", "high", "p", "significant"])


@dataclass(frozen=True)
class TableResults:
    """A table with its finished runs, and the statistics of their scores."""

    table: StudyTable
    runs: Mapping[str, tuple[RunResult, ...]]  # the runs of each row, one for each seed, by the row's key
    samples: Samples  # scores of all runs on resampled examples

    @property
    def rows(self) -> list[tuple[Row, tuple[RunResult, ...]]]:
        """The table's rows with their runs."""
        return [(row, self.runs.get(row.key, ())) for row in self.table.rows]

    @property
    def single_seed(self) -> bool:
        """Whether no finished row has more than one seed, so that nothing tells how much seeds differ."""
        return max(map(len, self.runs.values()), default=0) == 1

    @property
    def minutes(self) -> dict[str, float]:
        """How long its runs took one after the other, by machine; runs of several rows count once."""
        costs = {name: cost for runs in self.runs.values() for run in runs for name, cost in run.costs.items()}
        found: dict[str, float] = {}
        for seconds, machine in costs.values():
            found[machine] = found.get(machine, 0.0) + seconds / 60
        return found

    def scored(self, row: str, tasks: tuple[str, ...]) -> tuple[RunResult, ...]:
        """The runs of a row that were scored on all of these tasks. A model of one task has no overall score."""
        return tuple(run for run in self.runs.get(row, ()) if set(tasks) <= run.scores.keys())

    def curves(self, row: str, column: str) -> list[list[tuple[int, float]]]:
        """Steps and dev scores of the evaluations in training, a list for each seed whose training measured these.

        A mean is over the table's tasks; that of the training is over all tasks that it had.
        """
        tasks = self.tasks(column)
        by_seed = [[run.curve_by_step(task) for task in tasks] for run in self.scored(row, tasks)]
        return [
            [(points[0][0], fmean(score for _, score in points)) for points in zip(*curves, strict=True)]
            for curves in by_seed
            if all(curves)
        ]

    def heading(self, column: str) -> str:
        """A column's title, which no other one has."""
        alike = [name for name in self.table.score_columns if capitalized(name) == capitalized(column)]
        name = capitalized(column) if len(alike) < 2 else column
        return f"{name} {TABLE_MEASURES.get(self.measures.get(column, ''), '')}".rstrip()

    @cached_property
    def measures(self) -> dict[str, str]:
        """The name of each task's own score."""
        return {task: name for _, runs in self.rows for run in runs for task, name in run.measures.items()}

    def majority(self, column: str) -> float | None:
        """The accuracy of always answering a task's most frequent label; None of other scores and of means."""
        runs = (run for runs in self.runs.values() for run in runs if column in run.scores)
        return next((run.majorities.get(column) for run in runs), None)

    def left_out(self, column: str) -> float:
        """The largest share of a row's resamples on which its mean score is undefined."""
        resampled = [scores.resampled for (_, name), scores in self.scores.items() if name == column]
        return max((float(np.isnan(values).any(axis=1).mean()) for values in resampled), default=0.0)

    def tasks(self, column: str) -> tuple[str, ...]:
        """The tasks of which a column is the mean. A mean leaves out errors such as RMSE."""
        tasks = self.table.tasks(column)
        return tasks if column in tasks else tuple(t for t in tasks if self.measures.get(t) not in LOWER_IS_BETTER)

    @cached_property
    def chosen_on_dev(self) -> list[Row]:
        """Rows whose model of some task was selected among several by the dev scores that are shown."""
        return [row for row, runs in self.rows if any(run.chosen_on_dev for run in runs)]

    @cached_property
    def overlaps(self) -> pandas.DataFrame:
        """How many examples of a task a row's models were trained on, means over seeds; an index of row and task.

        Columns: `rows` that are scored, `seen` of them, the `score`, and that on the others (`clean`), unless too few
        are left. Rows and tasks without overlap are left out.
        """
        found = {}
        for row, task in product((row.key for row in self.table.rows), self.table.columns):
            runs = [run for run in self.runs.get(row, ()) if run.overlap(task)]
            parts = [run.overlap(task) for run in runs]
            if any(part["rows_seen"] for part in parts):
                found[row, task] = {
                    "rows": parts[0]["rows"],
                    "seen": fmean(part["rows_seen"] for part in parts),
                    "score": fmean(run.scores[task] for run in runs),
                    "clean": fmean(part.get("clean", np.nan) for part in parts),
                }
        return pandas.DataFrame.from_dict(found, "index")

    @cached_property
    def scores(self) -> dict[CellKey, SampledScores]:
        """The scores of every cell that has some, if they are defined for all seeds. A mean needs all its tasks."""
        found = {}
        for row, column in product((row.key for row in self.table.rows), self.table.score_columns):
            tasks = self.tasks(column)
            if (runs := self.scored(row, tasks)) and tasks:
                found[row, column] = SampledScores.mean_of([self.samples.scores(runs, task) for task in tasks])
        return {cell: scores for cell, scores in found.items() if np.isfinite(scores.observed).all()}

    def mean(self, row: str, column: str) -> float:
        """A row's mean score; NaN without scores."""
        return float(self.scores[row, column].observed.mean()) if (row, column) in self.scores else np.nan

    def _models(self, row: str, column: str) -> frozenset[tuple[str, str]]:
        """Each task of a column with the runs whose models answer it."""
        tasks = self.tasks(column)
        return frozenset((task, run.answering(task)) for run in self.scored(row, tasks) for task in tasks)

    def interval(self, row: str, column: str) -> tuple[float, float]:
        """The 95% interval of a row's mean; NaN if a seed's score is undefined, or if the variance over seeds is."""
        mean = (row, column) in self.scores and self._known([(1.0, self.scores[row, column])])
        return mean.interval() if mean else (np.nan, np.nan)

    def comparable(self, first: str, second: str, column: str) -> bool:
        """Whether both rows have scores, on the same dev examples."""
        if not {(first, column), (second, column)} <= self.scores.keys():
            return False
        tasks = self.tasks(column)
        runs = (*self.scored(first, tasks), *self.scored(second, tasks))
        return len({tuple(self.samples.dev_set(run, task) for task in tasks) for run in runs}) == 1

    @cached_property
    def _less_reference(self) -> dict[CellKey, Uncertain]:
        """Each row less the reference row, without rows that share its models or were chosen by their dev scores."""
        if (reference := self.table.reference) is None:
            return {}
        rows = [row.key for row in self.table.rows if row not in self.chosen_on_dev]
        return {
            (row, column): difference
            for row, column in product(rows, self.table.score_columns)
            if not self._models(reference, column) <= self._models(row, column)
            and (difference := self.contrast({row: 1, reference: -1}, column))
        }

    @cached_property
    def against_reference(self) -> pandas.DataFrame:
        """Each tested row less the reference row, by row and column, as `compared` tests all cells."""
        return compared(self._less_reference)

    def significant_from(self, column: str) -> tuple[float, float] | None:
        """How large a difference to the reference row must be to be significant, whatever the other tests give.

        Half of the interval's width after the correction for all tests, of the row that varies least and of the one
        that varies most. None if no row is tested, or if the variance over seeds is unknown.
        """
        tested = [difference for (_, name), difference in self._less_reference.items() if name == column]
        if not tested or self.single_seed:
            return None
        bounds = [difference.interval(LEVEL / len(self._less_reference)) for difference in tested]
        halves = [(high - low) / 2 for low, high in bounds]
        return min(halves), max(halves)

    @cached_property
    def orderings(self) -> pandas.DataFrame:
        """Every pair of finished rows with different published scores: an index of column, better and worse row.

        `compared` has the row with the higher published score less the other; further columns are the `published`
        difference, and whether our scores have the same order (`agrees`); equal scores do not. A row that was chosen by
        its dev scores is left out.
        """
        found: dict[tuple[str, str, str], Uncertain] = {}
        gaps: list[float] = []
        for column in self.table.score_columns:
            published = [row for row in self.table.rows if column in row.published and row not in self.chosen_on_dev]
            for pair in combinations(published, 2):
                worse, better = sorted(pair, key=lambda row: row.published[column])
                gap = better.published[column] - worse.published[column]
                difference = self.contrast({better.key: 1, worse.key: -1}, column)
                if gap and difference:
                    found[column, better.key, worse.key] = difference
                    gaps.append(gap)
        tests = compared(found)
        return tests.assign(published=gaps, agrees=tests.difference > 0)

    def contrast(self, weights: Mapping[str, float], column: str) -> Uncertain | None:
        """Σ weight · mean over rows, by the rows' keys. None if a row has no scores, or has scores on other examples.

        None, too, if a row has one seed and others have several.
        """
        rows = [row.key for row in self.table.rows if row.key in weights]
        if len(rows) < len(weights) or not all(self.comparable(rows[0], row, column) for row in rows):
            return None
        return self._known([(weights[row], self.scores[row, column]) for row in rows])

    def _known(self, terms: Sequence[tuple[float, SampledScores]]) -> Uncertain | None:
        """A contrast whose variance over seeds is known, unless no row of the table has a second seed."""
        found = contrast(terms)
        return found if found.degrees or self.single_seed else None


@dataclass(frozen=True)
class PresetResults:
    """All that a report shows: what the preset ran, the results of every table with scores, the folder of all runs."""

    record: PresetRecord
    tables: tuple[TableResults, ...]
    folder: Path

    @classmethod
    def read(cls, folder: Path, preset: str) -> Self:
        """From a preset's runs. Raises InputError when it was never run, or a run is damaged."""
        return cls.of(GridFrames.of_runs(folder, preset), folder)

    @classmethod
    def of(cls, frames: GridFrames, folder: Path = Path()) -> Self:
        """From frames. Figures of what is no score, such as what was pruned, need the folder of runs."""
        samples, record = Samples(frames.runs), frames.record
        tables = (table for table in record.tables if table.kind != "simulations")
        return cls(record, tuple(TableResults(table, frames.of_table(table.key), samples) for table in tables), folder)

    @cached_property
    def finished_tables(self) -> dict[str, TableResults]:
        """The tables with a finished run, by key."""
        return {results.table.key: results for results in self.tables if any(results.runs.values())}

    @property
    def runs(self) -> list[RunResult]:
        """The runs of all tables."""
        return [run for table in self.tables for runs in table.runs.values() for run in runs]

    def best_run(
        self, tasks: Collection[str], tables: Collection[str] | None = None, kept: bool = False
    ) -> RunResult | None:
        """The run with the best overall dev score on exactly these tasks, in all tables or some. None without any.

        With `kept`, of those that keep a model, which ensembles of predictions and published runs do not, if any does.
        """
        runs = [run for run in self.runs if tables is None or run.table in tables]
        scored = [run for run in runs if run.scores.keys() == set(tasks) and np.isfinite(run.overall)]
        models = [run for run in scored if kept and run.keeps_model]
        return max(models or scored, key=lambda run: run.overall, default=None)

    def row_of(self, run: RunResult) -> tuple[str, str]:
        """The label of a run's row, and the title of its table."""
        table = self.finished_tables[run.table].table
        return table.label(run.row), table.numbered_title

    def last_stage(self, table: str) -> Run | None:
        """The last complete run of a table's first run, for tables without scores. None if nothing was computed."""
        names = (run.chain[-1] for run in self.record.runs if run.table == table and run.chain)
        return next((Run(self.folder / name) for name in names), None)

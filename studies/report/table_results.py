"""The results of a table: estimates with intervals, differences to the reference row, and the published order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean

import numpy as np

from multitask.evaluation.statistics import LEVEL, SampledScores, Spread, Uncertain, contrast, holm
from multitask.evaluation.text_tables import capitalized
from studies.engine.table import Row, Table
from studies.report.run_results import RunResult, Samples

MEASURES = {"accuracy": "accuracy", "pearson": "Pearson correlation", "spearman": "Spearman correlation"}
Cell = tuple[str, str]
"""A row's key and a column."""


@dataclass(frozen=True)
class Estimate:
    """A row's score in a column.

    Args:
        mean: over seeds.
        deviation: over seeds; None of one.
        low: of a 95% interval.
        high: of the interval.
        seen: whether the row's models were trained on some of what is scored.
    """

    mean: float
    deviation: float | None
    low: float
    high: float
    seen: bool = False


@dataclass(frozen=True)
class Comparison:
    """A paired difference of two rows in a column, its 95% interval, and p adjusted for all tests of the table."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def significant(self) -> bool:
        """At the 5% level, of all tests of the table together."""
        return self.p < LEVEL


@dataclass(frozen=True)
class Ordering:
    """Two rows that the report tells apart in a column.

    Args:
        column: where.
        better: key of the row with the report's higher score.
        worse: key of the other.
        published: the report's difference, above zero.
        ours: our difference, better less worse.
    """

    column: str
    better: str
    worse: str
    published: float
    ours: Comparison

    @property
    def agrees(self) -> bool:
        """Whether our scores have the report's order; equal ones have not."""
        return self.ours.difference > 0


@dataclass(frozen=True)
class Agreement:
    """How many orderings of a column agree with the report, and how many of either kind are significant."""

    agree: int
    total: int
    significant: int
    contrary: int

    @classmethod
    def of(cls, orderings: Sequence[Ordering]) -> "Agreement":
        """Count."""
        agreeing = [ordering for ordering in orderings if ordering.agrees]
        others = [ordering for ordering in orderings if not ordering.agrees]
        return cls(
            len(agreeing),
            len(orderings),
            sum(ordering.ours.significant for ordering in agreeing),
            sum(ordering.ours.significant for ordering in others),
        )


@dataclass(frozen=True)
class Overlap:
    """A row's models were trained on some of the rows that a task scores; means over seeds.

    Args:
        row: the table's row, by key.
        task: the task.
        rows: that the task scores.
        seen: how many of them were trained on.
        score: on all of them.
        clean: on the others; None where too few are left.
    """

    row: str
    task: str
    rows: int
    seen: float
    score: float
    clean: float | None


@dataclass(frozen=True)
class TableResults:
    """A table, its finished runs, and what they say.

    Args:
        table: the table.
        runs: the finished runs of each row, one for each seed, by the row's key.
        samples: scores of all runs on resampled examples.
    """

    table: Table
    runs: Mapping[str, tuple[RunResult, ...]]
    samples: Samples

    @property
    def rows(self) -> list[tuple[Row, tuple[RunResult, ...]]]:
        """The table's rows with their runs."""
        return [(row, self.runs.get(row.key, ())) for row in self.table.rows]

    def scored(self, row: str, tasks: tuple[str, ...]) -> tuple[RunResult, ...]:
        """The runs of a row that were scored on all of these tasks."""
        return tuple(run for run in self.runs.get(row, ()) if set(tasks) <= set(run.evaluation["scores"]))

    def curves(self, row: str, column: str) -> list[list[float]]:
        """The dev score after every epoch, a list for each seed whose training measured it."""
        return [curve for run in self.runs.get(row, ()) if (curve := run.curve(column))]

    def heading(self, column: str) -> str:
        """A column's title."""
        measures = (run.evaluation["measures"].get(column) for _, runs in self.rows for run in runs)
        measure = next((MEASURES[name] for name in measures if name), "")
        return f"{capitalized(column)} {measure}".rstrip()

    @property
    def chosen_on_dev(self) -> list[str]:
        """Labels of rows of which a task's model was chosen among several by the very dev scores that are shown."""
        return [row.label for row, runs in self.rows if any(run.chosen_on_dev for run in runs)]

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Of every row and task that it was trained on some rows of."""
        places = ((row.key, task) for row in self.table.rows for task in self.table.columns)
        return [overlap for row, task in places if (overlap := self._overlap(row, task))]

    def _overlap(self, row: str, task: str) -> Overlap | None:
        """How much of a task's rows the models were trained on; None if nothing of it, or where that is not known."""
        runs = [run.evaluation for run in self.runs.get(row, ()) if task in run.evaluation.get("overlap", {})]
        parts = [evaluation["overlap"][task] for evaluation in runs]
        if not any(part["rows_seen"] for part in parts):
            return None
        clean = [part["clean"] for part in parts]
        return Overlap(
            row,
            task,
            parts[0]["rows"],
            fmean(part["rows_seen"] for part in parts),
            fmean(evaluation["scores"][task] for evaluation in runs),
            None if None in clean else fmean(clean),
        )

    @cached_property
    def scores(self) -> dict[Cell, SampledScores]:
        """The scores of every cell that has any."""
        cells = ((row.key, column) for row in self.table.rows for column in self.table.score_columns)
        return {cell: scores for cell in cells if (scores := self._scores(*cell))}

    def _scores(self, row: str, column: str) -> SampledScores | None:
        """A cell's scores, None where it has none. A mean needs scores of all its tasks."""
        tasks = self.table.tasks(column)
        runs = self.scored(row, tasks)
        if not runs:
            return None
        return SampledScores.mean_of(
            [
                SampledScores(
                    np.array([run.evaluation["scores"][task] for run in runs]),
                    np.stack([self.samples.resampled(run, task) for run in runs], axis=1),
                )
                for task in tasks
            ]
        )

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Variance over seeds in each column, pooled over the rows."""
        return {
            column: Spread.pooled([scores.observed for (_, name), scores in self.scores.items() if name == column])
            for column in self.table.score_columns
        }

    @cached_property
    def estimates(self) -> dict[Cell, Estimate]:
        """Of every cell that has scores."""
        seen = {(overlap.row, overlap.task) for overlap in self.overlaps}

        def estimate(row: str, column: str) -> Estimate:
            scores = self.scores[row, column]
            mean = scores.mean(self.spreads[column])
            touched = any((row, task) in seen for task in self.table.tasks(column))
            return Estimate(mean.value, scores.deviation, *mean.interval(), touched)

        return {cell: estimate(*cell) for cell in self.scores}

    def best(self, column: str) -> float | None:
        """The column's highest mean; None if fewer than two rows have one."""
        means = [estimate.mean for (_, name), estimate in self.estimates.items() if name == column]
        return max(means) if len(means) > 1 else None

    def comparable(self, first: str, second: str, column: str) -> bool:
        """Whether both rows have scores, on the same dev examples."""
        tasks = self.table.tasks(column)
        ours, theirs = self.scored(first, tasks), self.scored(second, tasks)
        dev_sets = {tuple(self.samples.dev_set(run, task) for task in tasks) for run in (*ours, *theirs)}
        return bool(ours) and bool(theirs) and len(dev_sets) == 1

    @cached_property
    def against_reference(self) -> dict[Cell, Comparison]:
        """Each row less the reference; p adjusted over all of them (Holm)."""
        reference = self.table.reference
        if reference is None:
            return {}
        cells = [
            (row.key, column)
            for row in self.table.rows
            for column in self.table.score_columns
            if row.key != reference and self.comparable(row.key, reference, column)
        ]
        tests = compared([self._difference(row, reference, column) for row, column in cells])
        return dict(zip(cells, tests, strict=True))

    @cached_property
    def orderings(self) -> list[Ordering]:
        """Every pair of rows that the report tells apart and we have both of; p adjusted over all of them (Holm)."""
        pairs = [
            (column, *ranked)
            for column in self.table.score_columns
            for first, second in combinations(self.table.rows, 2)
            if (ranked := _ranked(first, second, column)) and self.comparable(first.key, second.key, column)
        ]
        tests = compared([self._difference(better, worse, column) for column, better, worse, _ in pairs])
        return [Ordering(*pair, ours) for pair, ours in zip(pairs, tests, strict=True)]

    def agreement(self, column: str) -> Agreement:
        """Of a column's orderings."""
        return Agreement.of([ordering for ordering in self.orderings if ordering.column == column])

    def contrast(self, weights: Mapping[str, float], column: str, alike: bool = True) -> Uncertain | None:
        """Σ weight · mean of the row of this key; None where a row has no scores, or has them on other examples.

        Args:
            weights: by the row's key.
            column: of the scores.
            alike: whether scores vary alike over the seeds of all of the table's rows; else each row counts with its
                own variance, if all of these have two seeds.
        """
        rows = [row.key for row in self.table.rows if row.key in weights]
        if len(rows) < len(weights) or not all(self.comparable(rows[0], row, column) for row in rows):
            return None
        terms = [(weights[row], self.scores[row, column]) for row in rows]
        own = Spread.welch([(weight, scores.observed) for weight, scores in terms])
        return contrast(terms, self.spreads[column] if alike or not own.degrees else own)

    def _difference(self, row: str, other: str, column: str) -> Uncertain:
        return self.scores[row, column].minus(self.scores[other, column], self.spreads[column])


def _ranked(first: Row, second: Row, column: str) -> tuple[str, str, float] | None:
    """The report's better and worse row and their difference; None where it does not tell them apart."""
    ours, theirs = first.published.get(column), second.published.get(column)
    if ours is None or theirs is None or ours == theirs:
        return None
    return (first.key, second.key, ours - theirs) if ours > theirs else (second.key, first.key, theirs - ours)


def compared(differences: Sequence[Uncertain]) -> list[Comparison]:
    """Of a family of tests."""
    adjusted = holm([difference.p_value() for difference in differences])
    return [
        Comparison(difference.value, *difference.interval(), p)
        for difference, p in zip(differences, adjusted, strict=True)
    ]

"""What the results say: intervals, differences to the reference row, and whether rows are in the report's order."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from multitask.evaluation.statistics import (
    LEVEL,
    SampledScores,
    Spread,
    Uncertain,
    Values,
    contrast,
    holm,
    resampled_scores,
)
from multitask.runtime.random_streams import generator
from studies.report.results import OVERALL, Results, RowResult, RunResult, TableResult

DevSet = tuple[str, bytes]  # task, labels in file order


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
        better: label of the row with the report's higher score.
        worse: label of the other.
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


class Samples:
    """Scores of all runs on resampled examples; each task's set is resampled once, for all runs together."""

    def __init__(self, results: Results) -> None:
        self.runs: dict[DevSet, list[RunResult]] = defaultdict(list)
        self.dev_sets: dict[tuple[str, str], DevSet] = {}
        self.computed: dict[DevSet, dict[str, Values]] = {}
        for name, (_, run) in results.finished.items():
            for task in run.evaluation["scores"]:
                dev_set = (task, run.predictions(task)[0].tobytes())
                self.runs[dev_set].append(run)
                self.dev_sets[name, task] = dev_set

    def dev_set(self, run: RunResult, task: str) -> DevSet:
        """What the run was scored on."""
        return self.dev_sets[run.evaluation_folder.name, task]

    def resampled(self, run: RunResult, task: str) -> Values:
        """The run's scores on resampled dev examples of a task, [samples]."""
        dev_set = self.dev_set(run, task)
        if dev_set not in self.computed:
            runs = self.runs[dev_set]
            labels = run.predictions(task)[0]
            predictions = np.stack([other.predictions(task)[1] for other in runs])
            scores = resampled_scores(
                labels, predictions, run.evaluation["measures"][task], generator(0, "resampled examples", task)
            )
            names = [other.evaluation_folder.name for other in runs]
            self.computed[dev_set] = dict(zip(names, scores.T.copy(), strict=True))
        return self.computed[dev_set][run.evaluation_folder.name]


@dataclass(frozen=True)
class TableAnalysis:
    """A table's estimates, tests and orderings."""

    table: TableResult
    samples: Samples

    def _scores(self, row: RowResult, column: str) -> SampledScores | None:
        """A row's scores in a column, None where it has none. Overall needs all of the table's tasks."""
        runs = row.scored(self.table.tasks(column))
        if not runs:
            return None
        return SampledScores.mean_of(
            [
                SampledScores(
                    np.array([run.evaluation["scores"][task] for run in runs]),
                    np.stack([self.samples.resampled(run, task) for run in runs], axis=1),
                )
                for task in self.table.tasks(column)
            ]
        )

    @cached_property
    def scores(self) -> dict[tuple[str, str], SampledScores]:
        """What there is, by the row's label and the column."""
        places = ((row, column) for row in self.table.rows for column in self.table.columns)
        return {(row.label, column): scores for row, column in places if (scores := self._scores(row, column))}

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Variance over seeds in each column, pooled over the rows."""
        return {
            column: Spread.pooled([scores.observed for (_, name), scores in self.scores.items() if name == column])
            for column in self.table.columns
        }

    @cached_property
    def estimates(self) -> dict[tuple[str, str], Estimate]:
        """By the row's label and the column."""
        seen = {(overlap.label, overlap.task) for overlap in self.table.overlaps}

        def estimate(label: str, column: str) -> Estimate:
            scores = self.scores[label, column]
            mean = scores.mean(self.spreads[column])
            touched = any((label, task) in seen for task in self.table.tasks(column))
            return Estimate(mean.value, scores.deviation, *mean.interval(), touched)

        return {place: estimate(*place) for place in self.scores}

    def best(self, column: str) -> float | None:
        """The column's highest mean; None if fewer than two rows have one."""
        means = [estimate.mean for (_, name), estimate in self.estimates.items() if name == column]
        return max(means) if len(means) > 1 else None

    def comparable(self, first: RowResult, second: RowResult, column: str) -> bool:
        """Whether both have scores, on the same dev examples."""
        tasks = self.table.tasks(column)
        ours, theirs = first.scored(tasks), second.scored(tasks)
        dev_sets = {tuple(self.samples.dev_set(run, task) for task in tasks) for run in (*ours, *theirs)}
        return bool(ours) and bool(theirs) and len(dev_sets) == 1

    @cached_property
    def reference(self) -> RowResult | None:
        """The row that the others are compared with."""
        return next((row for row in self.table.rows if row.label == self.table.recorded.reference), None)

    @cached_property
    def against_reference(self) -> dict[tuple[str, str], Comparison]:
        """Each row less the reference, by label and column; p adjusted over all of them (Holm)."""
        reference = self.reference
        if reference is None:
            return {}
        places = [
            (row.label, column)
            for row in self.table.rows
            for column in self.table.columns
            if row is not reference and self.comparable(row, reference, column)
        ]
        tests = compared([self._difference(label, reference.label, column) for label, column in places])
        return dict(zip(places, tests, strict=True))

    @cached_property
    def orderings(self) -> list[Ordering]:
        """Every pair of rows that the report tells apart and we have both of; p adjusted over all of them (Holm)."""
        pairs = [
            (column, *ranked)
            for column in self.table.columns
            for first, second in combinations(self.table.rows, 2)
            if (ranked := _ranked(first, second, column)) and self.comparable(first, second, column)
        ]
        tests = compared([self._difference(better, worse, column) for column, better, worse, _ in pairs])
        return [Ordering(*pair, ours) for pair, ours in zip(pairs, tests, strict=True)]

    def agreement(self, column: str) -> Agreement:
        """Of a column's orderings."""
        return Agreement.of([ordering for ordering in self.orderings if ordering.column == column])

    def contrast(self, weights: Mapping[str, float], column: str, alike: bool = True) -> Uncertain | None:
        """Σ weight · mean of the row of this label; None where a row has no scores, or has them on other examples.

        Args:
            weights: by label.
            column: of the scores.
            alike: whether scores vary alike over the seeds of all of the table's rows; else each row counts with its
                own variance, if all of these have two seeds.
        """
        rows = [row for row in self.table.rows if row.label in weights]
        if len(rows) < len(weights) or not all(self.comparable(rows[0], row, column) for row in rows):
            return None
        terms = [(weights[row.label], self.scores[row.label, column]) for row in rows]
        own = Spread.welch([(weight, scores.observed) for weight, scores in terms])
        return contrast(terms, self.spreads[column] if alike or not own.degrees else own)

    def _difference(self, label: str, other: str, column: str) -> Uncertain:
        return self.scores[label, column].minus(self.scores[other, column], self.spreads[column])


def analyse(results: Results) -> list[TableAnalysis]:
    """All tables of a preset."""
    samples = Samples(results)
    return [TableAnalysis(table, samples) for table in results.tables]


def overall_agreement(analyses: Sequence[TableAnalysis]) -> Agreement:
    """Of all tables' overall columns."""
    return Agreement.of([o for analysis in analyses for o in analysis.orderings if o.column == OVERALL])


def _ranked(first: RowResult, second: RowResult, column: str) -> tuple[str, str, float] | None:
    """The report's better and worse row and their difference; None where it does not tell them apart."""
    ours, theirs = first.published.get(column), second.published.get(column)
    if ours is None or theirs is None or ours == theirs:
        return None
    return (first.label, second.label, ours - theirs) if ours > theirs else (second.label, first.label, theirs - ours)


def compared(differences: Sequence[Uncertain]) -> list[Comparison]:
    """Of a family of tests."""
    adjusted = holm([difference.p_value() for difference in differences])
    return [
        Comparison(difference.value, *difference.interval(), p)
        for difference, p in zip(differences, adjusted, strict=True)
    ]

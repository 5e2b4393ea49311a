"""Results of a table: estimates with intervals, differences to the reference row, agreement with published orders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import nan
from statistics import fmean

import numpy as np

from multitask.evaluation.statistics import (
    LEVEL,
    ROUNDING,
    SampledScores,
    Spread,
    Uncertain,
    Values,
    contrast,
    sides,
    vary_alike,
)
from multitask.evaluation.text_tables import capitalized
from multitask.tasks.metrics import LOWER_IS_BETTER
from studies.engine.table import Row, Table
from studies.report.comparisons import Agreement, Comparison, Ordering, compared
from studies.report.run_results import RunResult, Samples

MEASURES: dict[str, str] = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "average_precision": "average precision",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "RMSE (lower is better)",
}
Cell = tuple[str, str]
"""A row's key and a column."""


@dataclass(frozen=True)
class Estimate:
    """A row's score in a column.

    Args:
        mean: over seeds; NaN if a seed's score is undefined, and then the interval's ends are NaN, too.
        deviation: over seeds; None with one seed.
        low: lower end of a 95% interval.
        high: its upper end.
        seen: whether the row's models were trained on some of the scored examples.
    """

    mean: float
    deviation: float | None
    low: float
    high: float
    seen: bool = False


FIXED = Spread(0.0, 0)
"""Of a model that does not depend on the seed."""
UNDEFINED = Estimate(nan, None, nan, nan)


@dataclass(frozen=True)
class Overlap:
    """How many examples of a task a row's models were trained on; means over seeds.

    Args:
        row: the row's key.
        task: the task.
        rows: the number of scored examples.
        seen: how many of them the models were trained on.
        score: on all examples.
        clean: on the examples that were not seen; None if too few are left.
    """

    row: str
    task: str
    rows: int
    seen: float
    score: float
    clean: float | None


@dataclass(frozen=True)
class TableResults:
    """A table with its finished runs, and the statistics of their scores.

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

    @property
    def single_seed(self) -> bool:
        """Whether no finished row has more than one seed, so that nothing tells how much seeds differ."""
        return max(map(len, self.runs.values()), default=0) == 1

    @property
    def seeds_note(self) -> str:
        """What a sentence about a table with a single seed must add; empty with several seeds."""
        return " (one seed: intervals do not cover other seeds)" if self.single_seed else ""

    def scored(self, row: str, tasks: tuple[str, ...]) -> tuple[RunResult, ...]:
        """The runs of a row that were scored on all of these tasks. A model of one task has no overall score."""
        return tuple(run for run in self.runs.get(row, ()) if set(tasks) <= set(run.evaluation["scores"]))

    def curves(self, row: str, column: str) -> list[list[float]]:
        """The dev score after every epoch, a list for each seed whose training measured it."""
        return [curve for run in self.scored(row, self.tasks(column)) if (curve := run.curve(column))]

    def heading(self, column: str) -> str:
        """A column's title."""
        return f"{capitalized(column)} {MEASURES.get(self.measures.get(column, ''), '')}".rstrip()

    @cached_property
    def measures(self) -> dict[str, str]:
        """The name of each task's own score."""
        return {
            task: name for _, runs in self.rows for run in runs for task, name in run.evaluation["measures"].items()
        }

    def tasks(self, column: str) -> tuple[str, ...]:
        """The tasks of which a column is the mean. A mean leaves out scores of which lower ones are better."""
        tasks = self.table.tasks(column)
        return tasks if column in tasks else tuple(task for task in tasks if not self._lower_is_better(task))

    def _lower_is_better(self, column: str) -> bool:
        return self.measures.get(column) in LOWER_IS_BETTER

    @cached_property
    def chosen_on_dev(self) -> list[Row]:
        """Rows whose model of some task was selected among several by the dev scores that are shown."""
        return [row for row, runs in self.rows if any(run.chosen_on_dev for run in runs)]

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """The overlap of every row and task that has any."""
        places = ((row.key, task) for row in self.table.rows for task in self.table.columns)
        return [overlap for row, task in places if (overlap := self._overlap(row, task))]

    def _overlap(self, row: str, task: str) -> Overlap | None:
        """The overlap of a row and a task. None if there is none, or if it is not known."""
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
        """The scores of every cell that has scores, if they are defined for all seeds."""
        return {cell: scores for cell, scores in self._sampled.items() if np.isfinite(scores.observed).all()}

    @cached_property
    def _sampled(self) -> dict[Cell, SampledScores]:
        cells = ((row.key, column) for row in self.table.rows for column in self.table.score_columns)
        return {cell: scores for cell in cells if (scores := self._scores(*cell))}

    def _scores(self, row: str, column: str) -> SampledScores | None:
        """A cell's scores, if it has any. The mean of several tasks needs scores of all of them."""
        tasks = self.tasks(column)
        runs = self.scored(row, tasks)
        if not runs or not tasks:
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
        return {column: Spread.pooled(self._distinct(column)) for column in self.table.score_columns}

    @cached_property
    def alike(self) -> dict[str, bool]:
        """Whether a column's rows vary alike over seeds, so that one variance describes them."""
        return {column: vary_alike(self._distinct(column)) for column in self.table.score_columns}

    @property
    def unlike(self) -> list[str]:
        """Headings of the columns whose rows vary differently over seeds, so that each has its own variance."""
        return [self.heading(column) for column, alike in self.alike.items() if not alike]

    def _distinct(self, column: str) -> list[Values]:
        """Scores of a column's rows that may vary over seeds, [seeds] each. Rows with the same models count once."""
        cells = [(row, scores.observed) for (row, name), scores in self.scores.items() if name == column]
        varied = [(row, observed) for row, observed in cells if not self._seeds_share_a_model(row, column)]
        return list({self._models(row, column): observed for row, observed in varied}.values())

    def _seeds_share_a_model(self, row: str, column: str) -> bool:
        """Whether the same model answers for several seeds, as do start weights: no chance is left to tell of."""
        tasks = self.tasks(column)
        return len(self.scored(row, tasks)) > 1 and len(self._models(row, column)) == len(tasks)

    def _models(self, row: str, column: str) -> frozenset[tuple[str, str]]:
        """Each task of a column with the runs whose models answer it."""
        tasks = self.tasks(column)
        return frozenset((task, run.answering(task)) for run in self.scored(row, tasks) for task in tasks)

    @cached_property
    def estimates(self) -> dict[Cell, Estimate]:
        """The estimate of every cell that has scores."""
        seen = {(overlap.row, overlap.task) for overlap in self.overlaps}

        def estimate(row: str, column: str) -> Estimate:
            scores = self.scores.get((row, column))
            if scores is None:
                return UNDEFINED
            alone, fixed = [(1.0, scores)], self._seeds_share_a_model(row, column)
            mean = contrast(alone, FIXED) if fixed else self._combined(alone, column, self.alike[column])
            touched = any((row, task) in seen for task in self.tasks(column))
            return Estimate(mean.value, scores.deviation, *mean.interval(), touched)

        return {cell: estimate(*cell) for cell in self._sampled}

    def best(self, column: str) -> float | None:
        """The column's best mean; None if fewer than two rows have one."""
        means = [self.estimates[row, name].mean for row, name in self.scores if name == column]
        best = min if self._lower_is_better(column) else max
        return best(means) if len(means) > 1 else None

    def comparable(self, first: str, second: str, column: str) -> bool:
        """Whether both rows have scores, on the same dev examples."""
        if not {(first, column), (second, column)} <= self.scores.keys():
            return False
        tasks = self.tasks(column)
        runs = (*self.scored(first, tasks), *self.scored(second, tasks))
        return len({tuple(self.samples.dev_set(run, task) for task in tasks) for run in runs}) == 1

    @cached_property
    def _less_reference(self) -> dict[Cell, Uncertain]:
        """Each row less the reference row.

        A row with the reference row's models, or one that was chosen among models by their dev scores, is left out.
        """
        reference = self.table.reference
        if reference is None:
            return {}
        rows = [row.key for row in self.table.rows if row not in self.chosen_on_dev]
        return {
            (row, column): difference
            for row, column in product(rows, self.table.score_columns)
            if not self._models(reference, column) <= self._models(row, column)
            and (difference := self.contrast({row: 1, reference: -1}, column))
        }

    @cached_property
    def against_reference(self) -> dict[Cell, Comparison]:
        """Each tested row less the reference row, with p corrected over all cells (Holm 1979)."""
        return compared(self._less_reference)

    def significant_from(self, column: str) -> tuple[float, float] | None:
        """How large a difference to the reference row must be to be significant, whatever the other tests give.

        Returns:
            Half of the interval's width after the correction for all tests of the table, of the row that varies least
            and of the one that varies most. None if no row is tested, or if the variance over seeds is unknown.
        """
        tested = [difference for (_, name), difference in self._less_reference.items() if name == column]
        if not (tested and self.spreads[column].degrees):
            return None
        bounds = [difference.interval(LEVEL / len(self._less_reference)) for difference in tested]
        halves = [(high - low) / 2 for low, high in bounds]
        return min(halves), max(halves)

    @property
    def tested_rows(self) -> list[Row]:
        """The rows with a test against the reference row."""
        tested = {row for row, _ in self.against_reference}
        return [row for row in self.table.rows if row.key in tested]

    @cached_property
    def orderings(self) -> list[Ordering]:
        """Every pair of finished rows with different published scores, with p corrected over all pairs (Holm 1979).

        A row that was chosen among models by their dev scores is above them by construction, and left out.
        """
        found: dict[tuple[str, str, str, float], Uncertain] = {}
        for column in self.table.score_columns:
            published = [row for row in self.table.rows if column in row.published and row not in self.chosen_on_dev]
            for pair in combinations(published, 2):
                worse, better = sorted(pair, key=lambda row: row.published[column])
                gap = better.published[column] - worse.published[column]
                difference = self.contrast({better.key: 1, worse.key: -1}, column)
                if gap and difference:
                    found[column, better.key, worse.key, gap] = difference
        return [Ordering(*pair, ours) for pair, ours in compared(found).items()]

    def agreement(self, column: str) -> Agreement:
        """The agreement of a column's orderings."""
        return Agreement.of([ordering for ordering in self.orderings if ordering.column == column])

    def contrast(self, weights: Mapping[str, float], column: str, alike: bool | None = None) -> Uncertain | None:
        """Σ weight · mean over rows. None if a row has no scores, or has scores on other examples.

        None, too, if rows that are averaged, those with weights of the same sign, have different seeds.

        Args:
            weights: by the row's key.
            column: of the scores.
            alike: pool the variance over seeds over all rows of the table. Otherwise each row has its own variance, if
                the seeds of every row differ. Default: whether the table's rows vary alike.
        """
        rows = [row.key for row in self.table.rows if row.key in weights]
        if len(rows) < len(weights) or not all(self.comparable(rows[0], row, column) for row in rows):
            return None
        seeds = {(weights[row] > 0, *(run.seed for run in self.scored(row, self.tasks(column)))) for row in rows}
        if len(seeds) > len({weights[row] > 0 for row in rows}):
            return None
        terms = [(weights[row], self.scores[row, column]) for row in rows]
        return self._combined(terms, column, self.alike[column] if alike is None else alike)

    def _combined(self, terms: Sequence[tuple[float, SampledScores]], column: str, alike: bool) -> Uncertain:
        observed = [(weight, scores.observed) for weight, scores in terms]
        known = all(len(scores) > 1 and scores.std(ddof=1) > ROUNDING for scores in sides(observed))
        own = Spread.welch(observed)
        return contrast(terms, own if known and not alike else self.spreads[column])

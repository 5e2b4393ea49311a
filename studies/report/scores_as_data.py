"""The scores of a preset as data: what results.parquet, the pictures and the sentences under them are made from."""

from collections.abc import Sequence
from statistics import fmean

from minbert.files import read_json
from studies.engine.experiments import study_of_tables
from studies.engine.presets import SAMPLE
from studies.engine.table import Row
from studies.report.cost import spent_on
from studies.report.further_columns import FurtherColumn, further_columns
from studies.report.preset_results import PresetResults
from studies.report.table_results import TableResults
from studies.results import RANDOM_WEIGHTS, Cell, Column, Description, Results, RowScores, TableScores

MEAN = "mean"
"""The metric of a mean over tasks."""


def scores_as_data(results: PresetResults) -> Results:
    """The scores of all tables with a finished run, simulations left out."""
    studies, record = study_of_tables(SAMPLE), results.record
    return Results(
        tuple(
            TableScores(
                record.preset,
                record.data,
                studies.get(found.table.key),
                _description(found, further, results),
                tuple(_row(found, further, row, results) for row in found.table.rows),
            )
            for found in results.finished_tables.values()
            for further in [further_columns(found)]
        )
    )


def _description(found: TableResults, further: Sequence[FurtherColumn], results: PresetResults) -> Description:
    table = found.table
    columns = [_column(found, column) for column in table.score_columns]
    columns += [Column(of.task, of.metric, of.heading, of.pictured) for of in further]
    return Description(
        table.key,
        table.name,
        table.numbered_title,
        table.note,
        table.reference,
        tuple(columns),
        spent_on(found.runs, results.folder),
        results.record.start,
    )


def _column(found: TableResults, column: str) -> Column:
    counts = found.agreement(column)
    pictured = not found.table.groups or column in found.table.groups
    metric = found.measures.get(column, MEAN)
    orderings = (counts.total, counts.agree, counts.significant, counts.contrary)
    return Column(
        column, metric, found.heading(column), pictured, *orderings, found.alike[column], found.significant_from(column)
    )


def _row(found: TableResults, further: Sequence[FurtherColumn], row: Row, results: PresetResults) -> RowScores:
    cells = [_cell(found, row, column) for column in found.table.score_columns]
    cells += [_measured(of.values.get(row.key, ())) for of in further]
    masked = (stage for run in found.runs[row.key] for stage in run.chain if stage.stage == "mlm")
    configs = (read_json(results.folder / stage.artefact / "config.json", dict) for stage in masked)
    start = RANDOM_WEIGHTS if any(config.get("from_scratch") for config in configs) else results.record.start
    return RowScores(row.key, row.label, row.point, start, tuple(cells))


def _measured(values: Sequence[tuple[int, float]]) -> Cell | None:
    """A cell without an interval, from seeds and values. None without values."""
    return Cell(tuple(seed for seed, _ in values), tuple(value for _, value in values)) if values else None


def _cell(found: TableResults, row: Row, column: str) -> Cell | None:
    tasks = found.tasks(column)
    runs = found.scored(row.key, tasks) if tasks else ()
    published = row.published.get(column)
    if not runs:
        return None if published is None else Cell(published=published)
    values = tuple(fmean(run.evaluation["scores"][task] for task in tasks) for run in runs)
    estimate = found.estimates[row.key, column]
    comparison = found.against_reference.get((row.key, column))
    difference, p = (comparison.difference, comparison.p) if comparison else (None, None)
    return Cell(tuple(run.seed for run in runs), values, estimate.low, estimate.high, difference, p, published)

"""The scores of a preset as data: what results.parquet and all tables and pictures are made from; and its curves."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import pyarrow
from pyarrow import parquet

from minbert.files import atomic_file, read_json
from multitask.evaluation.text_tables import capitalized
from studies.engine.presets import SAMPLE
from studies.engine.table import Row
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.table_results import MEASURES, TableResults
from studies.results import RANDOM_WEIGHTS, STEPS, Column, Description, Results, TableScores, frame_of
from studies.study import study_of_tables

MEAN = "mean"
"""The metric of a mean over tasks."""
RANK: Final = "mrr"
FURTHER: Final = ("alignment", "uniformity", RANK)
"""Metrics of columns with neither intervals nor tests."""
TRAINING = "training"
"""The source of what was measured on training batches; other sources are tasks, measured on their dev sets."""
Line = dict[str, Any]


def scores_as_data(results: PresetResults) -> Results:
    """The scores of all tables with a finished run, simulations left out."""
    studies, record = study_of_tables(SAMPLE), results.record
    tables = []
    for key, found in results.finished_tables.items():
        table, columns, lines = found.table, tuple(_columns(found)), list[Line]()
        for row, column in product(table.rows, columns):
            of_row = {"preset": record.preset, "data": record.data, "study": studies.get(key), "table": key}
            of_row |= {"start": _start(found, row, results), "row": row.key, "label": row.label}
            of_row |= {"point": json.dumps(dict(row.point), ensure_ascii=False)}
            of_cell = {**of_row, "task": column.task, "metric": column.metric}
            lines += [{**of_cell, **line} for line in _cell(found, row, column)]
        about = (key, table.name, table.numbered_title, table.note, table.reference, columns, record.start)
        tables.append(TableScores(Description(*about), frame_of(lines)))
    return Results(tuple(tables))


def _columns(found: TableResults) -> Iterator[Column]:
    """The columns with scores, then those with further measures that a run has a value for.

    Alignment and uniformity describe the embeddings of one dev set; papers on embeddings compare them next to the means
    of SentEval's tasks. The mean reciprocal rank is a second measure of retrieval tasks, which are tested by nDCG.
    """
    table, orderings = found.table, found.orderings
    for name in table.score_columns:
        of = orderings[orderings.index.get_level_values(0) == name] if len(orderings) else orderings
        agree = of[of.agrees.astype(bool)]
        contrary = of[~of.agrees.astype(bool)]
        counts = (len(of), len(agree), int(agree.significant.sum()), int(contrary.significant.sum()))
        pictured, metric = not table.groups or name in table.groups, found.measures.get(name, MEAN)
        heading, size = found.heading(name), found.significant_from(name)
        yield Column(name, metric, heading, pictured, *counts, size, found.majority(name))
    further = [Column("embeddings", name, name.capitalize(), bool(table.groups)) for name in FURTHER if name != RANK]
    further += [Column(task, RANK, f"{task} MRR", False) for task, of in found.measures.items() if of == "ndcg"]
    for task, (_, *others) in table.metrics.items():
        further += [Column(task, name, f"{capitalized(task)} {MEASURES[name]}", False) for name in others]
    steps = Column(TRAINING, STEPS, "Steps", False)
    for column in (*further, steps):
        values = {_further(run, column) for runs in found.runs.values() for run in runs} - {None}
        if len(values) > (column is steps):
            yield column


def _further(run: RunResult, column: Column) -> float | None:
    """A further measure of a run; None without one. An ensemble has no embeddings of its own, and no steps."""
    if column.metric == STEPS:
        return run.history[-1]["step"] if run.history else None
    measured = {**run.evaluation.get("metrics", {}), "embeddings": run.evaluation.get("geometry")}.get(column.task)
    value: float | None = (measured or {}).get(column.metric)
    return value


def _cell(found: TableResults, row: Row, column: Column) -> list[Line]:
    """A line for each seed, or one with the published score alone."""
    runs = found.runs.get(row.key, ())
    if column.metric != found.measures.get(column.task, MEAN):
        values = {run.seed: value for run in runs if (value := _further(run, column)) is not None}
        return [{"seed": seed, "value": value} for seed, value in values.items()] or [Line()]
    tasks, published = found.tasks(column.task), {"published": row.published.get(column.task)}
    runs = found.scored(row.key, tasks) if tasks else ()
    if not runs:
        return [published]
    low, high = found.interval(row.key, column.task)
    defined = (row.key, column.task) in found.scores
    seen = defined and any((row.key, task) in found.overlaps.index for task in tasks)
    of_row = {**published, "low": low, "high": high, "seen": seen}
    if (row.key, column.task) in found.against_reference.index:
        test = found.against_reference.loc[row.key, column.task]
        of_row |= {"difference": test.difference, "p": test.p}
        of_row |= {"difference_low": test.low, "difference_high": test.high}
    return [
        {"seed": run.seed, "value": fmean(run.evaluation["scores"][task] for task in tasks), **of_row} for run in runs
    ]


def _start(found: TableResults, row: Row, results: PresetResults) -> str:
    """The start weights of a row's first stage."""
    masked = (stage for run in found.runs.get(row.key, ()) for stage in run.chain if stage.stage == "mlm")
    configs = (read_json(stage.folder / "config.json", dict) for stage in masked)
    return RANDOM_WEIGHTS if any(config.get("from_scratch") for config in configs) else results.record.start


def curves_as_data(results: PresetResults) -> pyarrow.Table:
    """What the trainings of all tables measured: a line for each value of each evaluation.

    Columns: keys of the table and of its row, the row's label, the seed and the step (int64), the source, the measure
    as metrics.jsonl calls it, and its value (float64). Values of training batches are means since the previous
    evaluation.
    """
    text, whole = pyarrow.string(), pyarrow.int64()
    named = [("table", text), ("row", text), ("label", text), ("seed", whole), ("step", whole)]
    schema = pyarrow.schema([*named, ("source", text), ("measure", text), ("value", pyarrow.float64())])
    lines = [
        (found.table.key, row.key, row.label, run.seed, line["step"], source, measure, value)
        for found in results.finished_tables.values()
        for row, runs in found.rows
        for run in runs
        for line in run.history
        for source, measures in {TRAINING: line["training"], **line["dev"]}.items()
        for measure, value in measures.items()
        if isinstance(value, int | float)  # not tables, such as a confusion matrix
    ]
    return pyarrow.Table.from_pylist([dict(zip(schema.names, line, strict=True)) for line in lines], schema)


def save_curves(curves: pyarrow.Table, path: Path) -> None:
    """Write the file, atomically."""
    with atomic_file(path) as temporary:
        parquet.write_table(curves, temporary, compression="zstd")

"""Results of a preset from its two files of data, without its runs: claims and figures of tables that are published.

The files have no predictions. So intervals and tests are over seeds alone, which is the paired t test.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pandas

from multitask.experiments.record import PresetRecord
from multitask.experiments.results import FURTHER, MEAN, STEPS, TRAINING, Results, TableScores
from multitask.experiments.table_results import PresetResults, RunResult, Samples, TableResults
from multitask.experiments.tables import Row, StudyTable
from multitask.stages.settings import HELD_OUT
from studies.engine.recipes import GROUPS

Training: TypeAlias = dict[int, dict[str, dict[str, float]]]
"""Values by step, source and measure."""


def read_published(folder: Path, name: str) -> PresetResults:
    """Results from `NAME.parquet` and, if it is there, `curves/NAME.parquet`. Raises InputError for a damaged file."""
    tables = Results.load(folder / f"{name}.parquet").tables
    trainings = _trainings(folder / "curves" / f"{name}.parquet")
    found = tuple(_results(table, trainings) for table in tables)
    preset, start = str(tables[0].lines.preset.iloc[0]), tables[0].description.start
    return PresetResults(PresetRecord(preset, start, name, (), tuple(of.table for of in found), ()), found, folder)


def _trainings(file: Path) -> dict[tuple[str, str, int], Training]:
    """What each row and seed of a table measured."""
    found: dict[tuple[str, str, int], Training] = {}
    for one in pandas.read_parquet(file).itertuples() if file.is_file() else ():
        of_step = found.setdefault((one.table, one.row, one.seed), {}).setdefault(one.step, {})
        of_step.setdefault(one.source, {})[one.measure] = one.value
    return found


def _results(scores: TableScores, trainings: Mapping[tuple[str, str, int], Training]) -> TableResults:
    """A table with its runs."""
    about = scores.description
    metrics: dict[str, tuple[str, ...]] = {}
    for column in about.columns:
        if column.metric not in (MEAN, STEPS, *FURTHER):
            metrics[column.task] = (*metrics.get(column.task, ()), column.metric)
    measures = {task: first for task, (first, *_) in metrics.items()}
    majorities = {column.task: column.majority for column in about.columns if column.majority is not None}
    means = [column.task for column in about.columns if column.metric == MEAN]
    published: dict[str, dict[str, float]] = {row: {} for row in scores.rows.index}
    values: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for one in scores.lines.itertuples():
        if not pandas.isna(one.published):
            published[one.row][one.task] = one.published
        if not pandas.isna(one.seed) and not pandas.isna(one.value):
            values.setdefault((one.row, one.seed), {}).setdefault(one.metric, {})[one.task] = one.value
    rows = tuple(Row(key, of.label, of.point, published[key]) for key, of in scores.rows.iterrows())
    title = re.sub(r"^(Table|Figure) \d+: ", "", about.title)
    groups = {name: tasks for name, tasks in GROUPS.items() if name in means}
    several = {task: of for task, of in metrics.items() if len(of) > 1}
    table = StudyTable(about.table, title, about.note, rows, about.reference, tuple(measures), groups, several)
    runs: dict[str, tuple[RunResult, ...]] = {row.key: () for row in rows}
    for (row, seed), of in sorted(values.items()):
        own = {task: of[metric][task] for task, metric in measures.items() if task in of.get(metric, {})}
        geometry = {name: of[name]["embeddings"] for name in FURTHER if "embeddings" in of.get(name, {})}
        all_metrics = {task: {name: of[name][task] for name in of if task in of[name]} for task in measures}
        evaluation = {"measures": measures, "scores": own, "geometry": geometry, "metrics": all_metrics}
        history, sources = _history(trainings.get((about.table, row, seed), {}))
        name = f"{about.table} {row} {seed}"
        run = RunResult(name, name, seed, evaluation, history, majorities=majorities, sources=sources)
        runs[row] += (run,)
    return TableResults(table, runs, Samples(()))


def _history(training: Training) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """A training's lines as in metrics.jsonl, and the names of its sources."""
    history: list[dict[str, Any]] = []
    for step, of in sorted(training.items()):
        dev = {source: values for source, values in of.items() if source != TRAINING}
        history.append({"step": step, "training": of.get(TRAINING, {}), "dev": dev, "scores": {}})
    names = {name.partition(" ")[0] for line in history for name in line["training"] if not name.startswith(HELD_OUT)}
    return history, tuple(sorted(names))

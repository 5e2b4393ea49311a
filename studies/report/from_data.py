"""Results of a preset from its two files of data, without its runs: claims and figures of tables that are published.

The files have no predictions. So intervals and tests are over seeds alone, which is the paired t test.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from multitask.evaluation.statistics import SAMPLES, Values
from multitask.stages.settings.pretrain import HELD_OUT
from studies.engine.experiments import GROUPS
from studies.engine.record import Record
from studies.engine.table import Row, Table
from studies.report.preset_results import PresetResults
from studies.report.run_results import DevSet, RunResult, Samples
from studies.report.scores_as_data import FURTHER, MEAN, TRAINING
from studies.report.table_results import TableResults
from studies.results import Results, TableScores


class SeedsAlone(Samples):
    """Scores that are the same on other examples."""

    def dev_set(self, run: RunResult, task: str) -> DevSet:
        """One for each task."""
        return task, b""

    def resampled(self, run: RunResult, task: str) -> Values:
        """The run's score, again and again."""
        return np.full(SAMPLES, run.evaluation["scores"][task])


def read_published(folder: Path, name: str) -> PresetResults:
    """Results from `NAME.parquet` and, if it is there, `curves/NAME.parquet`. Raises InputError for a damaged file."""
    tables, file = Results.load(folder / f"{name}.parquet").tables, folder / "curves" / f"{name}.parquet"
    curves = pandas.read_parquet(file) if file.is_file() else pandas.DataFrame(columns=["table", "row", "seed"])
    trainings = dict(list(curves.groupby(["table", "row", "seed"])))
    found = [_results(table, trainings) for table in tables]
    first = tables[0]
    record = Record(str(first.lines.preset.iloc[0]), first.start, name, (), tuple(of.table for of in found), ())
    return PresetResults(record, tuple(found), folder)


def _results(scores: TableScores, trainings: dict[Any, pandas.DataFrame]) -> TableResults:
    """A table with its runs."""
    about, lines = scores.description, scores.lines.dropna(subset=["seed", "value"])
    measures = {column.task: column.metric for column in about.columns if column.metric not in (MEAN, *FURTHER)}
    means = [column.task for column in about.columns if column.metric == MEAN]
    published = scores.lines.dropna(subset="published").groupby("row")
    rows = tuple(
        Row(key, of.label, of.point, _by_task(published.get_group(key), "published") if key in published.groups else {})
        for key, of in scores.rows.iterrows()
    )
    title = re.sub(r"^(Table|Figure) \d+: ", "", about.title)
    groups = {name: tasks for name, tasks in GROUPS.items() if name in means}
    table = Table(about.table, title, about.note, rows, about.reference, tuple(measures), groups)
    runs: dict[str, list[RunResult]] = {row.key: [] for row in rows}
    for (row, seed), of in lines.groupby(["row", "seed"], sort=True):
        run = RunResult(Path(f"{row} {seed}"), Path(f"{about.table} {row} {seed}"), int(seed), ())
        geometry = of[of.task == "embeddings"].set_index("metric").value.to_dict()
        found = {"measures": measures, "scores": _by_task(of[of.metric == of.task.map(measures)], "value")}
        known = {"evaluation": {**found, "geometry": geometry}, **_history(trainings.get((about.table, row, seed)))}
        run.__dict__.update(known)  # in place of what it would read from its folder
        runs[str(row)].append(run)
    return TableResults(table, {row: tuple(of) for row, of in runs.items()}, SeedsAlone(()))


def _by_task(lines: pandas.DataFrame, column: str) -> dict[str, float]:
    return dict(lines.groupby("task")[column].first())


def _history(curves: pandas.DataFrame | None) -> dict[str, Any]:
    """A training's lines as in metrics.jsonl, and the names of its sources."""
    history = []
    for step, of in [] if curves is None else curves.groupby("step", sort=True):
        values = {source: dict(zip(v.measure, v.value, strict=True)) for source, v in of.groupby("source")}
        history.append({"step": step, "training": values.pop(TRAINING, {}), "dev": values, "scores": {}})
    names = {name.partition(" ")[0] for line in history for name in line["training"] if not name.startswith(HELD_OUT)}
    return {"history": history, "sources": tuple(sorted(names))}

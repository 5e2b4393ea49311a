"""What stands first in a report: the rows of all tables in one picture, and the best model with what it says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minbert.errors import InputError
from multitask.evaluation.text_tables import capitalized, markdown_text
from multitask.models.estimates import written
from multitask.tasks.declarations import load_tasks
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_rows, load_training_rows
from studies.engine.table import OVERALL
from studies.report.figures import Interval, Picture, intervals
from studies.report.pictures import as_interval
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.results import TableScores

LONGEST = 120
"""Letters of an example's text."""


@dataclass(frozen=True)
class BestModel:
    """The model with the best overall dev score: its row, its table's title, the score, and a list by task."""

    label: str
    table: str
    overall: float
    tasks: str


def overview(tables: Sequence[TableScores]) -> Picture | None:
    """The overall scores of all rows of all tables in one panel. None of a single table, whose own picture has them."""
    rows: dict[str, Interval] = {}
    for table in tables:
        for place in table.pictured:
            if table.description.columns[place].task == OVERALL:
                cells, name = table.column(place), table.description.title.partition(":")[0]
                rows |= {f"{name}: {table.rows.label[row]}": as_interval(cells.loc[row]) for row in cells.index}
    title = "Overall dev score of every row"
    return Picture(intervals({title: rows}, title), title) if len(tables) > 1 and rows else None


def best_model(results: PresetResults) -> BestModel | None:
    """None if no row is scored on all tasks."""
    best = results.record.best_model(results.folder, results.record.tasks)
    for table in results.tables:
        for row, runs in table.rows:
            for run in runs:
                if run.folder.name == best:
                    overall, tasks = run.evaluation["overall"], _tasks(run, Path(results.record.data))
                    return BestModel(row.label, table.table.numbered_title, overall, tasks)
    return None


def _tasks(run: RunResult, data: Path) -> str:
    """A list of the scores, with the first dev example of each task, if the dev sets are still there and the same."""
    lines = []
    for task, score in run.evaluation["scores"].items():
        measure = run.evaluation["measures"][task].replace("_", " ")
        said = f"- **{capitalized(task)}**, {measure} {score:.3f}. {_first_example(run, task, data)}"
        lines.append(said.rstrip() + "\n")
    return "".join(lines)


def _first_example(run: RunResult, task: str, data: Path) -> str:
    """Text, label and prediction; nothing if the dev set is gone or another one, or the metric needs probabilities."""
    labels, predictions, *_ = run.answers[task]
    try:
        declared, _ = load_training_rows(load_tasks(data)[task])  # which may decide the classes
        examples = load_rows(declared, "dev")
    except (InputError, KeyError):
        return ""
    has_classes = isinstance(declared, Labelled)
    same = examples.labels is not None and np.array_equal(examples.labels, labels)
    if not same or (has_classes and predictions.dtype.kind == "f"):
        return ""
    texts = (column[0] for column in examples.sentences)
    shown = " / ".join(text if len(text) <= LONGEST else f"{text[:LONGEST]}…" for text in texts)
    gold, said = (_text(written(declared, of[:1])[0]) for of in (labels, predictions))
    return markdown_text(f"Its first dev example: “{shown}” Label {gold}, prediction {said}.")


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)

"""Where a classifier is wrong and whether its probabilities can be trusted: classes, calibration, the worst errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from minbert.files import atomic_file, write_json
from multitask.base.random_streams import generator
from multitask.data.examples import Examples
from multitask.data.markup import aligned
from multitask.data.write_tables import table_writer, without_formula
from multitask.evaluation.statistics import Uncertain
from multitask.models.estimates import written
from multitask.tasks.kinds import Classification, MultiLabel
from multitask.tasks.scores import score_text
from multitask.tasks.task import Task

CONFIDENCE_BINS = 10
F1_SAMPLES = 2000
MOST_ERRORS, SHOWN_CLASSES = 50, 20  # in a file of errors, and in a terminal's table

RightOrWrong = NDArray[np.bool_]


def calibration(
    confidence: NDArray[np.float64], right: RightOrWrong, bins: int = CONFIDENCE_BINS
) -> tuple[float, pandas.DataFrame]:
    """Compare the probability of each prediction, [rows], with whether it is right, [rows].

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, equation 3.

    Returns:
        The expected calibration error: mean distance of confidence and accuracy over the rows; and a line for each bin
        of equal width, with `from` and `to`, its edges, `rows`, the number of rows, `confidence`, their mean
        probability, and `accuracy`, their share of right predictions; NaN of no rows.
    """
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.digitize(confidence, edges[1:-1], right=True), 0, bins - 1)
    rows = np.bincount(place, minlength=bins)
    filled = np.where(rows, rows, np.nan)
    mean, share = (np.bincount(place, values, minlength=bins) / filled for values in (confidence, right.astype(float)))
    error = float(np.nansum(rows * np.abs(mean - share)) / len(confidence))
    columns = {"from": edges[:-1], "to": edges[1:], "rows": rows, "confidence": mean, "accuracy": share}
    return error, pandas.DataFrame(columns)


def confidence_of(task: Task, estimates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of each prediction: of a row's class, [rows]; of a label or its absence, [rows, labels]."""
    if isinstance(task, Classification):
        return task.probabilities(estimates).max(axis=1)
    return np.where(task.decide(estimates) > 0, estimates, 1 - estimates)


def class_scores(predicted: RightOrWrong, gold: RightOrWrong, labels: Sequence[str]) -> pandas.DataFrame:
    """Scores of every class.

    Args:
        predicted: whether a row is predicted to have a label, [rows, labels].
        gold: whether it has it, [rows, labels].
        labels: their names.

    Returns:
        A line for each label, with `class`, its name, `rows`, the number of rows that have it, `precision`, NaN if it
        is never predicted, `recall`, NaN if no row has it, `f1`, NaN if it is neither predicted nor occurs, `f1_low`
        and `f1_high`, the 95% interval of F1 from resampled rows (percentiles of the bootstrap), and `f1_left_out`, the
        number of these `F1_SAMPLES` resamples in which it is neither predicted nor occurs.
    """
    size = len(gold)
    hits, called, there = (predicted & gold).sum(axis=0), predicted.sum(axis=0), gold.sum(axis=0)
    # F1 depends on the rows only through these counts, so the counts are resampled: memory does not grow with the rows.
    cells = np.stack([hits, called - hits, there - hits, size - called - there + hits], axis=1)  # [labels, 4]
    draws = generator(0, "resampled rows of class scores", size)
    drawn = np.moveaxis(draws.multinomial(size, cells / size, (F1_SAMPLES, len(labels))), 2, 0)  # [4, samples, labels]
    f1, resampled = _f1(hits, called, there), _f1(drawn[0], drawn[0] + drawn[1], drawn[0] + drawn[2])
    numbers = [Uncertain(value, values) for value, values in zip(f1, resampled.T, strict=True)]
    low, high = zip(*(number.interval() for number in numbers), strict=True)
    scores = {
        "precision": hits / np.where(called, called, np.nan),
        "recall": hits / np.where(there, there, np.nan),
        "f1": f1,
        "f1_low": low,
        "f1_high": high,
        "f1_left_out": [number.undefined for number in numbers],
    }
    return pandas.DataFrame({"class": list(labels), "rows": there, **scores})


def _f1(hits: NDArray[Any], called: NDArray[Any], there: NDArray[Any]) -> NDArray[np.float64]:
    counts = called + there
    return np.asarray(2 * hits / np.where(counts, counts, np.nan))


def worst_errors(task: Task, estimates: NDArray[np.float64], examples: Examples, most: int) -> pandas.DataFrame:
    """The rows with the worst errors first: wrong classes by confidence, numbers by their distance from the label."""
    labels, decided = examples.gold, task.decide(estimates)
    if isinstance(task, Classification | MultiLabel):
        measure = "confidence"
        wrong = np.where(decided == labels, -np.inf, confidence_of(task, estimates))
        wrong = wrong.reshape(len(labels), -1).max(axis=1)
    else:
        measure, wrong = "error", np.abs(decided - labels)
    order = [row for row in np.argsort(-wrong, kind="stable")[:most].tolist() if wrong[row] > -np.inf]
    texts = text_headers(task.files.text, ("row", "label", "predicted", measure))
    columns = {
        "row": [row if examples.numbers is None else int(examples.numbers[row]) for row in order],
        **{name: [column[row] for row in order] for name, column in zip(texts, examples.sentences, strict=True)},
        "label": written(task, labels[order]),
        "predicted": written(task, decided[order]),
        measure: wrong[order],
    }
    return pandas.DataFrame(columns)


def text_headers(columns: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Names of a table's columns of sentences: their own, with `text_` in front if another column has that name."""
    names: list[str] = []
    for name in columns:
        while name in (*taken, *names):
            name = f"text_{name}"
        names.append(name)
    return names


def write_details(
    folder: Path,
    tasks: Mapping[str, Task],
    estimates: Mapping[str, NDArray[np.float64]],
    examples: Mapping[str, Examples],
) -> list[Path]:
    """Write for each task what its scores do not tell, as files in a folder; returns the files.

    `TASK-errors.csv` has the worst errors. Of classifications also: `TASK-classes.csv` (precision, recall and F1 of
    each class, with an interval), `TASK-confusion.csv` (rows: gold, columns: predicted), `TASK-calibration.json` and
    `TASK-reliability.png`.
    """
    paths = []
    for name, values in estimates.items():
        task, rows = tasks[name], examples[name]
        paths.append(_write_table(folder / f"{name}-errors.csv", worst_errors(task, values, rows, MOST_ERRORS)))
        if isinstance(task, Classification | MultiLabel):
            paths += _write_classes(folder, task, values, rows.gold)
    return paths


def _write_classes(
    folder: Path, task: Classification | MultiLabel, estimates: NDArray[np.float64], labels: NDArray[np.float32]
) -> list[Path]:
    names = task.names
    predicted, gold = _by_class(task, estimates, labels)
    right = task.decide(estimates) == labels
    paths = [_write_table(folder / f"{task.name}-classes.csv", class_scores(predicted, gold, names))]
    if isinstance(task, Classification):
        confusion = pandas.DataFrame(task.metrics(estimates, labels)["confusion"], columns=names)
        confusion.insert(0, "", names)  # no name is empty
        paths.append(_write_table(folder / f"{task.name}-confusion.csv", confusion))
    error, found = calibration(confidence_of(task, estimates).ravel(), right.ravel())
    bins = found.astype(object).where(found.notna(), None).to_dict("records")
    numbers, picture = folder / f"{task.name}-calibration.json", folder / f"{task.name}-reliability.png"
    write_json(numbers, {"expected_calibration_error": error, "temperature": task.temperature, "bins": bins})
    _draw_reliability(found, error, f"{task.name}: reliability of {right.size:,} predictions", picture)
    return [*paths, numbers, picture]


def _by_class(
    task: Classification | MultiLabel, estimates: NDArray[np.float64], labels: NDArray[np.float32]
) -> tuple[RightOrWrong, RightOrWrong]:
    """Whether each row is predicted to have each label, and whether it has it, both [rows, labels]."""
    decided = task.decide(estimates)
    if isinstance(task, MultiLabel):
        return decided > 0, labels > 0
    every = np.arange(len(task.names))
    return decided[:, None] == every, labels[:, None] == every


def class_table(task: Task, estimates: NDArray[np.float64], examples: Examples) -> str:
    """Rows, precision, recall and F1 of a task's classes, the most frequent ones, as text; empty of other tasks."""
    if not isinstance(task, Classification | MultiLabel):
        return ""
    found = class_scores(*_by_class(task, estimates, examples.gold), task.names)
    shown = found if len(found) <= SHOWN_CLASSES else found.nlargest(SHOWN_CLASSES, "rows")
    lines = [[task.name, "rows", "precision", "recall", "f1"]]
    lines += [[str(row[0]), f"{row[1]:,}", *map(score_text, row[2:5])] for row in shown.itertuples(index=False)]
    more = len(found) - len(shown)
    return aligned(lines) + (f"\nand {more:,} rarer classes; --details has all" if more else "")


def _write_table(path: Path, table: pandas.DataFrame) -> Path:
    """Write a file that people open with a spreadsheet: no text in it is a formula."""
    table = table.rename(columns=without_formula)
    with table_writer(path, list(table)) as write_rows:
        write_rows([{n: without_formula(cell) for n, cell in row.items()} for row in table.to_dict("records")])
    return path


def _draw_reliability(bins: pandas.DataFrame, error: float, title: str, path: Path) -> None:
    """Draw accuracy by confidence, and the number of predictions in each bin."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    bars = {"align": "edge", "edgecolor": "white"}
    width = bins["to"] - bins["from"]
    above.bar(bins["from"], bins.accuracy.fillna(0), width, label="accuracy", **bars)
    above.plot([0, 1], [0, 1], "--", color="grey", label="perfect calibration")
    above.plot(bins.confidence, bins.accuracy, "o", color="black", markersize=4, label="mean confidence")
    above.set(ylim=(0, 1), ylabel="share of right predictions", title=title)
    above.text(0.98, 0.04, f"expected calibration error {error:.3f}", ha="right", transform=above.transAxes)
    above.legend(loc="upper left")
    below.bar(bins["from"], bins.rows, width, color="grey", **bars)
    below.set(xlim=(0, 1), xlabel="probability of the prediction", ylabel="predictions")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)

"""Predictions for the rows of a file, or for the tasks' own sets."""

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from minbert.errors import InputError
from multitask.base import logger
from multitask.base.device import resolve_runtime
from multitask.base.options import Device, Precision
from multitask.base.progress import RowsDone
from multitask.base.runs import locate_model
from multitask.data.examples import LabelledData, TextCounts
from multitask.data.messages import STANDARD_INPUT, listed, repeated
from multitask.data.read_tables import open_pairs, open_table
from multitask.data.tables import (
    LABEL_SETTINGS,
    ROWS_PER_BATCH,
    SEPARATORS,
    TYPED,
    FileRow,
    Format,
    OpenTable,
    RowsFrom,
    settings_of,
    suffixes,
)
from multitask.data.texts import Template, joined, template, texts_of_rows
from multitask.data.write_tables import check_output, table_writer
from multitask.models.estimates import estimate, load_split, with_files_of, write_predictions
from multitask.models.model_folder import has_heads
from multitask.models.multitask_model import MultitaskModel, load_model, predict_columns, tasks_for
from multitask.models.predictions import added_columns, added_values, grouped
from multitask.tasks.declarations import load_tasks
from multitask.tasks.kinds import MultiLabel, Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_test_rows
from multitask.tasks.task import Split, Task


def write_prediction_files(
    model: Path,
    data: Path,
    output: Path,
    best_on: str | None = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> list[Path]:
    """Write a model's predictions on its tasks' dev and test sets, in file order; returns the files written.

    A task without a test set has no test file. Of an encoder without heads, only cosines are predictions: of its
    classes of pairs it knows no threshold. `best_on` chooses the one of a run's models that is best on this score.
    Raises InputError for no such model, one that predicts none of the tasks, a missing or malformed file, or
    predictions that are not finite.
    """
    folder = locate_model(model, best_on=best_on)
    declared = load_tasks(data)
    cosines = {name: task for name, task in declared.items() if isinstance(task, Regression)}
    loaded = load_model(folder, cosines).on(resolve_runtime(device, precision))
    if not has_heads(folder):
        lacking = listed(name for name in declared if name not in loaded.tasks)
        if not loaded.tasks:
            raise InputError(f"{model}: has no heads, so it does not predict {lacking}; fine-tune it first")
        if lacking:
            logger.warning("%s: has no heads; not predicted: %s, for which it needs fine-tuning", model, lacking)
    rows: dict[Split, dict[str, LabelledData]] = {"dev": load_split(loaded, data, "dev")}
    tasks = {name: with_files_of(task, declared[name]) for name, task in loaded.tasks.items()}
    test = {name: load_test_rows(task) for name, task in tasks.items()}
    rows["test"] = {name: loaded.tokenised(name, found) for name, found in test.items() if found is not None}
    found = [(split, estimate(loaded, sets), sets) for split, sets in rows.items()]
    return [
        path
        for split, predictions, sets in found  # all are there before the first is written
        for path in write_predictions(tasks, predictions, {name: d.examples for name, d in sets.items()}, split, output)
    ]


def predict_file(
    model: MultitaskModel,
    tasks: Sequence[str],
    source: Path,
    output: Path,
    columns: Sequence[str] = (),
    declared: Mapping[str, Task] | None = None,
    separator: str | None = None,
    form: str = ".txt",
    probabilities: bool = False,
    prefix: str = "",
) -> int:
    """Add predictions to the rows of a file. Tasks that read the same columns share one pass of the encoder.

    `tasks` are all tasks of the model whose columns the file has if none are named. A text file has a sentence a line,
    or the two of a pair with a tab between them; or it is a table: with a `separator`, or if it begins with the
    columns' names and the tasks' own files have a separator. `-` stands for standard input, whose format is the suffix
    `form`, and output. `columns` are those of the sentences. The file is written as the tasks' training rows were, or
    as those of the same tasks in `declared`; `separator` is what separates its fields, if it is another one.
    `probabilities` adds a column for each class, too; names of added columns begin with `prefix`. Returns the number of
    rows. Raises InputError for no such task, tasks that declare different settings of the file, a missing column, a
    value that is not text, or an added column that the file has.
    """
    check_output(output)
    model.encoder.counts = TextCounts()  # earlier ones are of other texts
    named = tasks_for(model, None, tasks)
    written = {name: (declared or model.tasks)[name] for name in named}
    formats = {name: task.file_format for name, task in written.items()}
    read, form = _opener(model, written, source, columns, separator, form, named=bool(tasks))
    table = read()
    columns = columns or (table.columns if form == ".txt" else ())
    named = named if tasks else _fitting(model, named, columns, table)
    added = {name: added_columns(model.tasks[name], prefix, probabilities) for name in named}
    new = [column for columns in added.values() for column in columns]
    _check_header(table, new)
    groups = grouped({name: (_contents(model.tasks[name], columns, table), formats[name].missing) for name in named})
    # Reading takes a small part of the time. It tells what is left, and finds bad rows before anything is computed.
    total = sum(1 for _ in read().rows) if str(source) != "-" and source.is_file() else None
    passes = sum(len(set(map(model.input_form, together))) for together in groups.values())
    types = _types(model, table, added) if suffixes(output)[0] == ".parquet" else {}
    count, empty = 0, set[int]()
    writer = table_writer(output, [*table.columns, *new], types, form)
    with writer as write, RowsDone(total, passes=passes) as shown:
        while block := list(islice(table.rows, ROWS_PER_BATCH)):
            rows = [_with_columns(row, new, table.place(number)) for number, row in block]
            for (contents, missing), together in groups.items():
                own = replace(table, format=replace(table.format, missing=missing))
                texts = list(texts_of_rows(own, block, contents))
                empty |= {number for (number, _), row in zip(block, texts, strict=True) if not all(row)}
                predicted = predict_columns(model, list(zip(*texts, strict=True)), together, shown.add)
                for name, answers in predicted.items():
                    for row, answer in zip(rows, answers, strict=True):
                        values = added_values(model.tasks[name], answer, probabilities)
                        row.update(zip(added[name], values, strict=True))
            write(rows)
            count += len(rows)
    table.warn("predicted", "with an empty text", sorted(empty))
    model.encoder.counts.warn(table.name)
    return count


def _opener(
    model: MultitaskModel,
    written: Mapping[str, Task],
    source: Path,
    columns: Sequence[str],
    separator: str | None,
    form: str,
    named: bool,
) -> tuple[Callable[[], OpenTable], str]:
    """What opens a file that is `written` as these tasks', and its form: `.txt` only if its lines are sentences.

    Unless the tasks are `named`, only those say how it is written whose columns it has, if it has any task's.
    """
    form = form if str(source) == "-" else suffixes(source)[0]
    needed = {name: _read(model.tasks[name], columns) for name in written}
    if form == ".txt":
        separator = _separator_of(source, written, needed) if separator is None else separator
        form = "" if separator else form
    formats = {name: _format_of(task, form, separator) for name, task in written.items()}
    if form != ".txt" and not named and source.is_file() and len({*formats.values()}) > 1:
        fit = {name: own for name, own in formats.items() if _has_columns(source, own, form, needed[name])}
        formats = fit or formats
    place = STANDARD_INPUT if str(source) == "-" else str(source)
    file_format = _common_format(place, {name: (own, written[name].form) for name, own in formats.items()}, form)
    pairs = form == ".txt" and all(model.tasks[name].pair for name in written)
    return partial(open_pairs if pairs else open_table, RowsFrom(place), file_format, form=form), form


def _separator_of(source: Path, written: Mapping[str, Task], needed: Mapping[str, Sequence[Template]]) -> str | None:
    """That of the first task for which a text file begins with its columns' names; None if it has sentences."""
    for name, task in written.items():
        own = task.file_format
        if own.separator and source.is_file() and _has_columns(source, own.of_form(""), "", needed[name]):
            return own.separator
    return None


def _has_columns(source: Path, file_format: Format, form: str, needed: Sequence[Template]) -> bool:
    """Whether a file that is written so has the columns of these texts."""
    try:
        table = open_table(RowsFrom(str(source)), file_format, form=form)
    except InputError:  # it may have another encoding, or lack a sheet
        return False
    return all(table.has(column) for made in needed for column in made.columns)


def _format_of(task: Task, form: str, separator: str | None) -> Format:
    """How a file of this form is written if as the task's, or with another separator; encodings have one name each."""
    own = task.file_format.of_form(form, task.form)
    separator = own.separator or SEPARATORS.get(form) if separator is None else separator
    return replace(own, separator=separator, encoding=codecs.lookup(own.encoding).name)


def _common_format(place: str, formats: Mapping[str, tuple[Format, str]], form: str) -> Format:
    """How a file of this form is written, by the formats of tasks and the forms of their own files.

    Only tasks with files of this form are asked, if there are any; and no task for what its own files cannot have.
    Raises InputError if two tasks differ, except in what `LABEL_SETTINGS` say.
    """
    same = {name: found for name, found in formats.items() if found[1] == (form if form in TYPED else "")}
    agreed: dict[str, Any] = {}
    for each in fields(Format):
        values: dict[Any, str] = {}
        for name, (own, own_form) in (same or formats).items():
            if (value := getattr(own, each.name)) != each.default or each.name in settings_of(own_form):
                values.setdefault(value, name)
        if len(values) == 1:
            agreed[each.name] = next(iter(values))
        elif values and each.name not in LABEL_SETTINGS:
            first, second = list(values.values())[:2]
            raise InputError(f"{place}: {first} and {second} declare different {each.name}; name one with --task")
    return Format(**agreed)


def _check_header(table: OpenTable, new: Sequence[str]) -> None:
    """Raise InputError if cells would be lost: two columns have no name, or one has the name of an added column."""
    if table.columns.count("") > 1:
        raise InputError(f"{table.name}: two columns have no name; name them")
    if twice := repeated(new):
        raise InputError(f"two predicted columns are called {twice[0]}; predict these tasks in two calls, with --task")
    if clash := sorted(set(new) & set(table.columns)):
        raise InputError(f"{table.name}: has the column {clash[0]} already; name the predictions with --prefix")


def _with_columns(row: FileRow, new: Sequence[str], place: str) -> dict[str, Any]:
    """A row with columns to fill, in their order, whichever are predicted first."""
    if clash := sorted(set(new) & row.keys()):  # rows of jsonl may have columns that the first one lacks
        raise InputError(f"{place}: has the column {clash[0]} already; use --prefix")
    return {**row, **dict.fromkeys(new)}


def _fitting(model: MultitaskModel, names: list[str], columns: Sequence[str], table: OpenTable) -> list[str]:
    """The tasks whose columns the file has; all of them if it has those of none, so that an error names columns."""
    own = [model.tasks[name] for name in names]
    read = {task.name: _read(task, columns) for task in own if len(columns) in (0, len(task.files.text))}
    fit = [name for name, made in read.items() if all(table.has(column) for each in made for column in each.columns)]
    if fit and (others := [task for task in own if task.name not in fit]):
        reasons = (f"{task.name}, which reads {listed(task.files.text)}" for task in others)
        logger.warning("%s: not predicted: %s", table.name, "; ".join(reasons))
    return fit or names


def _contents(task: Task, columns: Sequence[str], table: OpenTable) -> tuple[Template, ...]:
    """What a task's sentences are in the table's columns."""
    read = _read(task, columns)
    if len(read) != len(task.files.text):
        raise InputError(
            f"{task.name} reads {len(task.files.text)} columns of text; {table.name} gives {', '.join(columns)}"
        )
    table.require([column for made in read for column in made.columns])
    return read


def _read(task: Task, columns: Sequence[str]) -> tuple[Template, ...]:
    return tuple(map(template, columns if task.pair else (joined(columns),))) if columns else task.files.contents


def _types(model: MultitaskModel, table: OpenTable, added: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Arrow types of the file's columns, if it has types, and of the columns that tasks add."""
    import pyarrow  # takes 0.1 s

    text, number = pyarrow.string(), pyarrow.float64()
    types = {field.name: field.type for field in table.schema or ()}
    for name, (predicted, *probabilities) in added.items():
        task = model.tasks[name]
        of_labels = pyarrow.list_(text) if isinstance(task, MultiLabel) else text
        types[predicted] = of_labels if isinstance(task, Labelled) else number
        types |= dict.fromkeys(probabilities, number)
    return types

"""Read a task's rows: checked, with labels as numbers.

A training row with a blank label or sentence cannot be used. It is left out of this task, and one warning per file
counts such rows (the course's Quora files hold a few). A file read without labels keeps a row with a blank sentence,
with a warning, because every row needs a prediction. Anything else that is wrong is an error.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.base import logger
from multitask.base.random_streams import generator
from multitask.data.contamination import hash_sentences
from multitask.data.examples import Examples, RowNumbers
from multitask.data.messages import OnProblem, other_tasks, quote, refuse
from multitask.data.read_tables import open_table
from multitask.data.tables import FileRow, Format, MissingSplitError, OpenTable, RowsFrom, value_of
from multitask.tasks.kinds import Regression
from multitask.tasks.labels import NO_VALUE, number
from multitask.tasks.task import Split, Task, TaskFiles

THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
OTHER_MARK = {".": (",", "commas", "set"), ",": (".", "points", "leave out")}
"""By decimal mark, the one that a number may have instead, its name, and what to do with `decimal = ","` then."""
STRATUM = 10
"""Rows that a group needs. Numbers with fewer rows each on average form ten groups by size, rare sets of labels one."""


def load_rows(task: Task, split: Split, labelled: bool | None = None) -> Examples:
    """The rows of a split, with labels unless it is `test`. Without a development file, training rows are held out.

    The task has everything that its training rows decide, unless `split` is `train`. Raises InputError if a file is
    missing or malformed.
    """
    labelled = split != "test" if labelled is None else labelled
    if split == "test" or task.files.dev is not None:
        return read_examples(task, task.source(split), labelled)
    whole = read_examples(task, task.source("train"), labelled=True)
    training, dev = held_out(whole, task.files.dev_share)
    if split == "dev":
        logger.info("%s: %d of %d training rows are its development set", task.name, len(dev), len(whole))
    return whole.take(training) if split == "train" else held_out_part(whole, dev)


def held_out_part(examples: Examples, rows: RowNumbers) -> Examples:
    """The rows that are held out, under a name of their own."""
    return replace(examples.take(rows), source=f"held-out rows of {examples.source}")


def load_test_rows(task: Task) -> Examples | None:
    """The test rows, without labels; None if none are declared, or if the file or data set has no such split.

    `file` declares a test set, too, whether or not there is one. Raises InputError if a file is missing or malformed.
    """
    if task.files.test is None:
        return None
    try:
        return load_rows(task, "test")
    except MissingSplitError as error:
        logger.info("%s: no test set (%s)", task.name, error)
        return None


def load_training_rows(task: Task) -> tuple[Task, Examples]:
    """The training rows, and the task with everything that they decide: names of classes, their weights, the range."""
    examples = load_rows(task, "train")
    if hints := task.hints(examples):
        more = f" ({len(hints) - 1} more; `multitask data check` lists them)" if len(hints) > 1 else ""
        logger.warning("%s%s", hints[0], more)
    task = task.learned(examples)
    return task, replace(examples, classes=())


def completed(task: Task) -> Task:
    """The task with labels or a range: if it declares none, its training rows are read, which decide them."""
    return task if task.complete else load_training_rows(task)[0]


def held_out(examples: Examples, share: float) -> tuple[RowNumbers, RowNumbers]:
    """Training and development rows: a share of the rows is held out, spread evenly over the labels.

    Rows with equal texts stay together, pairs also in the other order. The only text of a class is not held out. The
    hash of a text decides whether it is held out, so the same rows are drawn every time, and tasks that read the same
    texts hold out nearly the same ones.
    """
    columns = np.sort(np.stack([hash_sentences(texts) for texts in examples.sentences], axis=1), axis=1)
    different, first, group = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    key = different.sum(axis=1)  # of a pair it may overflow: it is a hash too
    stratum = _strata(examples.gold[first], numbers=not examples.classes)
    sizes = np.bincount(stratum)
    order = np.lexsort((key, stratum))
    quantile = np.empty(len(order))
    quantile[order] = (np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 0.5) / sizes[stratum[order]]
    candidates = np.lexsort((key, quantile))
    candidates = candidates[sizes[stratum[candidates]] > 1]
    count = round(len(first) * share)
    if not 0 < count <= len(candidates) or count == len(first):
        raise InputError(
            f"{examples.source}: {len(first)} different rows are too few to hold out a share of {share:g}; declare a "
            "development file"
        )
    is_dev = np.isin(group.reshape(-1), candidates[:count])
    return np.flatnonzero(~is_dev), np.flatnonzero(is_dev)


def held_out_sentences(tasks: Mapping[str, Examples], share: float) -> dict[str, tuple[RowNumbers, RowNumbers]]:
    """Training rows of each task, and a share of them that is held out, with no sentence in rows of both parts.

    Rows that share a sentence, whatever their tasks, are a group, and so are rows that others link. The groups are
    drawn at random, always in the same order. One with more rows of a task than are still to be held out is skipped.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    columns = [hash_sentences(column) for examples in tasks.values() for column in examples.sentences]
    numbers = np.unique(np.concatenate(columns), return_inverse=True)[1]
    sentences = iter(np.split(numbers, np.cumsum([len(column) for column in columns])[:-1]))
    rows = {name: [next(sentences) for _ in examples.sentences] for name, examples in tasks.items()}
    links = [np.stack([first, other]) for first, *others in rows.values() for other in (first, *others)]
    size, ends = numbers.max() + 1, np.concatenate(links, axis=1)
    graph = coo_array((np.ones(ends.shape[1]), tuple(ends)), (size, size))
    count, group_of = connected_components(graph, directed=False)
    groups = {name: group_of[first] for name, (first, *_) in rows.items()}
    sizes = np.stack([np.bincount(group, minlength=count) for group in groups.values()], axis=1)  # [groups, tasks]
    left = np.round(share * sizes.sum(axis=0))
    held = np.zeros(count, bool)
    for group in generator(0, "held-out groups of rows").permutation(count):
        if (sizes[group] <= left).all():
            held[group] = True
            left -= sizes[group]
    parts = {name: (np.flatnonzero(~held[group]), np.flatnonzero(held[group])) for name, group in groups.items()}
    for name, (training, dev) in parts.items():
        if not len(training) or not len(dev):
            rows_of = f"{tasks[name].source}: {len(tasks[name])} rows"
            raise InputError(f"{rows_of}, too few different ones to hold out a share of {share:g}")
        logger.info("%s: %d of %d training rows are held out", name, len(dev), len(tasks[name]))
    return parts


def _strata(labels: NDArray[np.float32], numbers: bool) -> RowNumbers:
    """Numbers of groups of rows with similar labels: the same class, the same labels, or the same tenth of numbers.

    Sets of labels that few rows share are one group. Rows with a rare label stay out of it, so that some of them are
    training rows.
    """
    _, stratum, sizes = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    stratum = stratum.reshape(-1)
    if labels.ndim == 2:
        has_rare_label = labels[:, labels.sum(axis=0) < STRATUM].any(axis=1)
        stratum[(sizes[stratum] < STRATUM) & ~has_rare_label] = len(sizes)
    elif numbers and stratum.max() >= len(labels) / STRATUM:
        bounds = np.quantile(labels, np.linspace(0, 1, 11)[1:-1])
        return np.searchsorted(bounds, labels)
    return stratum


def read_examples(task: Task, source: RowsFrom, labelled: bool, on_problem: OnProblem = refuse) -> Examples:
    """Read a file or data set as rows of a task.

    Columns are found by name, so the unnamed index columns of the course's files do not matter. Without labels, no row
    is left out. `on_problem` is called with the problem of each bad row, which is then left out; by default the first
    one is raised. Raises InputError if the file is missing, empty or not UTF-8, lacks a column, or has no usable row.
    With the default `on_problem`, also for a malformed row, an empty or repeated id, text that is not text, or a label
    that is not legal.
    """
    if task.prediction_file is not None and source.path is not None and (others := other_tasks(source.path)):
        raise InputError(f"{source}: no such file{others}")
    weight = task.weight if labelled and source == task.files.train and isinstance(task.weight, str) else None
    table = open_table(source, task.files.format, on_problem)
    return examples_of(task, table, str(source), labelled, on_problem, weight)


def examples_of(
    task: Task, table: OpenTable, source: str, labelled: bool, on_problem: OnProblem = refuse, weight: str | None = None
) -> Examples:
    """The rows of an open table as rows of a task; see `read_examples`. `weight` is the column of their weights."""
    files = task.files
    needed = [column for column in (files.id, weight) if column is not None]
    table.require((*needed, *files.text_columns, *(files.label_columns if labelled else ())))
    rows, incomplete, repeated = _usable_rows(task, table, labelled, on_problem, weight)
    if not rows:
        raise InputError(f"{table.name}: no usable row; expected at least one with a text{' and a label' * labelled}")
    numbers, ids, texts, labels, weights = zip(*rows, strict=True)
    if weight is not None and not any(weights):
        raise InputError(f"{table.name}: {weight} is 0 in every row; expected some weights above 0")
    action = ("left out", "without a label or a sentence") if labelled else ("kept", "with an empty sentence")
    table.warn(*action, incomplete)
    table.warn("left out", "with the id, or the texts and label, of an earlier one", repeated)
    values, classes = task.encode_labels(list(labels)) if labelled else (None, ())
    return Examples(
        sentences=tuple(map(list, zip(*texts, strict=True))),
        labels=values,
        classes=classes,
        ids=list(ids) if files.id else None,
        source=source,
        dropped=len(incomplete) * labelled + len(repeated),
        numbers=np.array(numbers),
        weights=None if weight is None else np.array(weights, np.float32),
        words=files.words,
        long=task.long,
    )


_UsableRow = tuple[int, str, list[str], Any, float]
"""Its number in the file, id, texts, label and weight."""


def _usable_rows(
    task: Task, table: OpenTable, labelled: bool, on_problem: OnProblem, weight: str | None
) -> tuple[list[_UsableRow], list[int], list[int]]:
    """Usable rows; the numbers of those without a label or a sentence; of those that repeat an earlier one."""
    files = task.files
    contents, rows = files.contents, list[_UsableRow]()
    incomplete: list[int] = []
    repeated: list[int] = []
    first = dict[Hashable, int]()  # the first row with an id, or with texts and a label
    for row_number, row in table.rows:
        try:
            texts = [made.text_of(row, table.format) for made in contents]
            identifier = _id(value_of(row, files.id)) if files.id else ""
            label = _label(task, row, table.format) if labelled else None
            usable = all(texts) and not (labelled and label is None)
            keys: list[Hashable] = [identifier] if files.id and files.duplicates != "keep" else []
            if labelled and usable and files.duplicates in ("drop", "error"):
                keys.append((*texts, label))
            repeats = _repeats(files, keys, first, table)
            row_weight = _weight(weight, row, table.format) if weight is not None and usable else 1.0
        except ValueError as error:
            on_problem(f"{table.place(row_number)}: {error}")
            continue
        if repeats or not usable:
            (repeated if repeats else incomplete).append(row_number)
            if repeats or labelled:
                continue
        first |= dict.fromkeys(keys, row_number)
        rows.append((row_number, identifier, texts, label, row_weight))
    return rows, incomplete, repeated


def _id(value: Any) -> str:
    identifier = "" if value is None or value != value else str(value).strip()  # NaN
    if not identifier:
        raise ValueError("the id is empty; expected one that is unique in the file")
    if not identifier.isprintable() or "," in identifier:
        raise ValueError(f"id {quote(identifier)} has a comma or a control character; prediction files cannot hold it")
    return identifier


def _repeats(files: TaskFiles, keys: Sequence[Hashable], first: Mapping[Hashable, int], table: OpenTable) -> bool:
    """Whether a row is left out since an earlier one has its id, or its texts and label. ValueError if none may."""
    key = next((key for key in keys if key in first), None)
    if key is None or files.duplicates == "drop":
        return key is not None
    where = f"already {'on line' if table.by_line else 'in row'} {first[key]}"
    if isinstance(key, str):
        raise ValueError(f'id {quote(key)} is {where}; expected each id once (or set duplicates = "drop")')
    raise ValueError(f"its texts and label are {where}; expected each row once")


def _weight(column: str, row: FileRow, file_format: Format) -> float:
    found = number(file_format.label_field(value_of(row, column)))
    if found is None or not found >= 0:
        raise ValueError(
            f"{column} is {quote(value_of(row, column))}; expected the row's weight, a number of at least 0"
        )
    return found


def _label(task: Task, row: FileRow, file_format: Format) -> Any:
    read = file_format.label_field if task.numeric else file_format.field
    try:
        values = {column: read(value_of(row, column)) for column in task.files.label_columns}
        return task.labels_from(values, file_format.missing)
    except ValueError as error:
        if not isinstance(column := task.files.label, str):
            raise  # it names the column
        written, hint = value_of(row, column), ""
        if isinstance(task, Regression) and isinstance(written, str):
            mark, name, remedy = OTHER_MARK[file_format.decimal]
            if mark in written:
                with_point = str(file_format.label_field(written)).strip()
                thousands = f"without {name} between thousands; " * bool(THOUSANDS.fullmatch(with_point))
                hint = f' ({thousands}or {remedy} decimal = "," in the tasks file)'
            elif written.strip().casefold() in NO_VALUE:
                missing = ", ".join(map(quote, (*file_format.missing, written.strip())))
                hint = f" (or set missing = [{missing}] in the tasks file)"
        raise ValueError(f"{column} is {quote(written)}; {error}{hint}") from None

"""Sentences for trainings without labels, by the name of their source, and what contrastive training pairs them with.

`unlabelled` and names that end in `.txt` are text files of the folder, `nli` its triplets, `pairs` its pairs, `quora`
the training pairs of the task paraphrase; the name of a task stands for its training sentences. A row of a file with an
empty sentence is left out, and one warning per file counts such rows. Anything else that is wrong is an error.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from minbert.errors import InputError, did_you_mean
from minbert.files import file_size
from multitask.base.random_streams import generator
from multitask.data.examples import Examples, RowNumbers, drawn_rows, texts_of
from multitask.data.invisible import seen
from multitask.data.messages import LOGGER, OnProblem, listed, plain, refuse
from multitask.data.read_tables import open_table
from multitask.data.tables import FileRow, OpenTable, RowsFrom
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.kinds import Regression
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.task import Task


@dataclass(frozen=True)
class Layout:
    """How unlabelled rows are written: the file's name in a data folder, which says its format, and its columns."""

    file: str
    columns: tuple[str, ...]


TRIPLETS = Layout("nli_triplets.csv", ("sent0", "sent1", "hard_neg"))
"""A premise, a sentence that it entails, and one that contradicts it."""
PAIRS = Layout("positive_pairs.tsv", ("sentence1", "sentence2"))
"""Two sentences with the same meaning."""
SENTENCES = Layout("sentences.txt", ("text",))
"""One sentence per line; blank lines are left out."""
PAIRED = {"nli": TRIPLETS, "pairs": PAIRS}
"""Sources that are files of triplets and pairs."""

LABELS = re.compile(
    r"(?<![a-z])(labels?|y|class|targets?|gold|scores?|similarity|duplicates?|paraphrases?|equivalent|entailment|entails"
    r"|relevance|relatedness|ratings?|quality|match|same)(?![a-z])"
)
"""What a column's name in small letters has if it says something of a pair."""


def unlabelled(table: OpenTable) -> OpenTable:
    """A table of pairs that are all taken to have the same meaning; when all are read, warn if a column denies it."""
    written = {name: re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower() for name in table.columns}
    names = [name for name in table.columns if LABELS.search(written[name])]

    def rows() -> Iterator[tuple[int, FileRow]]:
        found, count = {name: Counter[str]() for name in names}, 0
        for number, row in table.rows:
            count += 1
            for name, values in found.items():
                values[str(row.get(name)).strip()] += 1
            yield number, row
        for name, values in found.items():
            others = {value: rows for value, rows in values.items() if value not in ("1", "1.0", "True", "true")}
            if others:
                LOGGER.warning(
                    "%s: the column %s is not read: %d of %d rows have %s there, and count as pairs of the same "
                    "meaning like all others; leave them out, or declare a task in a tasks file (--tasks-file)",
                    *(table.name, plain(name), sum(others.values()), count, listed(others, most=3)),
                )

    return replace(table, rows=rows())


def read_texts(path: Path, layout: Layout, limit: int | None = None, on_problem: OnProblem = refuse) -> Examples:
    """Read at most `limit` usable rows without labels; a file compressed by its suffix (.gz) too.

    Raises:
        InputError: the file is missing, has no usable row up to the limit, lacks a column, or is not UTF-8; with the
            default `on_problem` also a malformed row.
    """
    table = open_table(RowsFrom(str(path)), on_problem=on_problem, form=Path(layout.file).suffix)
    table.require(layout.columns)
    table = unlabelled(table)
    rows: list[list[str]] = []
    incomplete: list[int] = []
    for line, row in table.rows:
        if len(rows) == limit:
            break
        texts = [seen(row[column]) for column in layout.columns]
        if all(texts):
            rows.append(texts)
        else:
            incomplete.append(line)
    table.warn("left out", "without a sentence", incomplete)
    if not rows:
        raise InputError(f"{path}: no usable row; expected at least one with a sentence")
    return Examples(tuple(map(list, zip(*rows, strict=True))), None, (), None, str(path), len(incomplete))


def training_sentences(name: str, data: Path, limit: int | None = None, option: str = "--sources") -> Examples:
    """The sentences of a text file, at most `limit`, or of a task (of pairs: all first ones, then all second ones).

    They are one column, without labels.

    Raises InputError if the name is unknown, or the file is missing or malformed; errors name the `option`.
    """
    if path := text_file(name, files_folder(data)):
        if not path.exists():
            if not (there := _sources_in(data)):
                file_size(path)  # raises, and names another folder
            raise InputError(f"{path}: no such file; {option} can name {', '.join(there)}")
        return read_texts(path, SENTENCES, limit)
    tasks = load_tasks(data)
    if name not in tasks:
        raise InputError(
            f'{option}: unknown source "{name}"; expected unlabelled, a text file\'s name (.txt) or one of '
            f"{', '.join(tasks)}{did_you_mean(name, ('unlabelled', *tasks))}"
        )
    rows = load_rows(tasks[name], "train")
    columns, whole = ([*chain(*parts)] for parts in (rows.sentences, rows.texts))
    return Examples((columns,), None, (), None, name, whole=(whole,))


def paired_file(name: str) -> Layout | None:
    """How a source of triplets or pairs is written, a csv or tsv file of pairs too; None for any other source."""
    named = Path(name).suffix in (".csv", ".tsv") and Path(name).name == name
    return Layout(name, PAIRS.columns) if named else PAIRED.get(name)


def text_file(name: str, folder: Path) -> Path | None:
    """The file of a source of plain text, one sentence per line; None for any other source."""
    if name == "unlabelled":
        return folder / SENTENCES.file
    return folder / name if name.endswith(".txt") and Path(name).name == name else None


def _sources_in(data: Path) -> list[str]:
    """The tasks and text files that are there, as options name sources."""
    tasks = [name for name, task in load_tasks(data).items() if task.source("train").exists()]
    return [*tasks, *sorted(path.name for path in files_folder(data).glob("*.txt"))]


def read_paired_sentences(
    name: str,
    data: Path,
    train_limit: int | None,
    partners: int | None,
    negative_pairs: bool,
    option: str,
    scored: bool = False,
) -> tuple[Examples, RowNumbers | None]:
    """Rows of a contrastive source: columns of anchors, positives and hard negatives; one column pairs with itself.

    With `partners`, a task's sentences are paired with so many others of the same label instead of with themselves.
    With `negative_pairs`, `quora` has its pairs of label 0, too, and labels; otherwise all rows are positives. With
    `scored`, a task stands for its pairs with their scores, instead of for its sentences. Errors name the `option`.

    Returns the rows, at most `train_limit`, and the group of each: rows of one group are no negatives of each other
    (None: rows with equal texts are not).

    Raises:
        InputError: a file is missing or malformed, or the name is unknown.
    """
    tasks, folder = load_tasks(data), files_folder(data)
    if partners is not None:
        if name not in tasks:
            raise InputError(f'--partners needs sources that are tasks, not "{name}"; there are {", ".join(tasks)}')
        return pairs_of_labels(tasks[name], partners, train_limit)
    if name == "quora":
        if "paraphrase" not in tasks:
            raise InputError(f"{data}: the source quora needs the task paraphrase, which is not declared")
        found = _quora(tasks["paraphrase"], negative_pairs)
    elif layout := paired_file(name):
        found = read_texts(folder / layout.file, layout)
    elif scored and name in tasks:
        found = scored_pairs(tasks[name])
    elif name in tasks and not tasks[name].pair:
        found = replace(load_rows(tasks[name], "train"), labels=None, weights=None)
    elif name in tasks or text_file(name, folder):
        found = replace(training_sentences(name, data, train_limit, option), source=name)
    else:
        known = ("unlabelled", *PAIRED, "quora", *tasks)
        raise InputError(
            f'{option}: unknown source "{name}"; expected a text file\'s name (.txt) or one of {", ".join(known)}'
            f"{did_you_mean(name, known)}"
        )
    return found.take(drawn_rows(len(found), train_limit)), None


def _quora(task: Task, negative_pairs: bool) -> Examples:
    examples = load_rows(task, "train")
    if negative_pairs:
        return examples
    kept = np.flatnonzero(examples.labels == 1)
    if not len(kept):
        raise InputError(f"{examples.source}: no pair has label 1; nothing to learn from without negative pairs")
    return replace(examples.take(kept), labels=None)


def scored_pairs(task: Task) -> Examples:
    """The training pairs of a task with numbers; their labels are shares of the range, 0 to 1.

    Raises InputError if the task has other rows.
    """
    if not (task.pair and isinstance(task, Regression)):
        raise InputError(
            f'task "{task.name}": a {task.kind} has no pairs with scores; objectives that learn from scores need a '
            "cosine or pair_regression"
        )
    learned, examples = load_training_rows(task)
    assert isinstance(learned, Regression)
    low, high = learned.bounds
    shares = (examples.gold - low) / (high - low)
    return replace(examples, labels=shares.clip(0, 1))  # fp32 may round a score of the range's end beyond it


def pairs_of_labels(task: Task, partners: int, train_limit: int | None) -> tuple[Examples, RowNumbers]:
    """Each training sentence with some others of its label, drawn at random (SetFit, arXiv 2209.11055).

    A sentence whose label has fewer other sentences meets some of them again. The only sentence of a label is paired
    with itself. The groups are the labels. Raises InputError unless the task is a classification of sentences.
    """
    if task.kind != "classification":
        raise InputError(
            f'task "{task.name}": a {task.kind} has no sentences of one label; '
            "--partners needs a classification of sentences"
        )
    _, examples = load_training_rows(task)
    examples = examples.take(drawn_rows(len(examples), train_limit))
    labels = examples.gold.astype(np.int64)
    draws = generator(0, "partners of a label", len(labels), partners)
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        others = max(len(rows) - 1, 1)
        rounds = -(-partners // others)
        for place, row in enumerate(rows):
            # Steps from a row around its label's rows. Only a row that is alone with its label comes back to itself.
            steps = np.concatenate([1 + draws.permutation(others) for _ in range(rounds)])[:partners]
            first.append(np.full(partners, row))
            second.append(rows[(place + steps) % len(rows)])
    anchors, column = np.concatenate(first), examples.sentences[0]
    texts = texts_of(column, anchors), texts_of(column, np.concatenate(second))
    return Examples(texts, None, (), None, examples.source, words=examples.words * 2), labels[anchors]

"""Sentences for trainings without labels. `source_named` says once what the name of a source means.

A row of a file with an empty sentence is left out, and one warning per file counts such rows. Anything else that is
wrong is an error.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError, did_you_mean
from minbert.files import file_size
from multitask.base import logger
from multitask.base.random_streams import generator
from multitask.data.examples import Examples, RowNumbers, drawn_rows, texts_of
from multitask.data.messages import OnProblem, listed, plain, refuse
from multitask.data.read_tables import open_table
from multitask.data.tables import FileRow, OpenTable, RowsFrom
from multitask.data.texts import visible_text
from multitask.tasks import QUORA_TASK
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.kinds import Regression
from multitask.tasks.labels import Labelled, normal_form
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.task import Task

LABEL_WORDS = re.compile(
    r"(?<![a-z])(labels?|y|class|targets?|gold|scores?|similarity|duplicates?|paraphrases?|equivalent|entailment|entails"
    r"|relevance|relatedness|ratings?|quality|match|same)(?![a-z])"
)
"""What a column's name in small letters has if it says something of a pair."""


@dataclass(frozen=True, kw_only=True)
class SentenceSource(ABC):
    """Where sentences are read."""

    name: str  # its name in options
    data: Path  # the data folder or the tasks file
    option: str = "--sources"  # the option that names it, for errors

    @abstractmethod
    def rows(self, limit: int | None = None, negative_pairs: bool = True) -> Examples:
        """At most `limit` rows: columns of anchors, positives and hard negatives; one column pairs with itself.

        Without `negative_pairs`, only those of labelled pairs with label 1, without labels. Raises InputError if a file
        is missing or malformed, or labels of pairs are not 0 and 1.
        """

    def sentences(self, limit: int | None = None) -> Examples:
        """At most `limit` sentences, in one column: of pairs all first ones, then all second ones."""
        found = _in_one_column(self.rows(), self.name)
        return found.take(drawn_rows(len(found), limit))

    @property
    def same_meaning(self) -> bool:
        """Whether the sentences of a row have the same meaning. Of NLI, one may follow from others that differ."""
        return False


@dataclass(frozen=True, kw_only=True)
class SentenceFile(SentenceSource):
    """A file with these columns."""

    path: Path
    columns: ClassVar[tuple[str, ...]]

    def rows(self, limit: int | None = None, negative_pairs: bool = True) -> Examples:
        found = read_texts(self.path, self.columns)
        return found.take(drawn_rows(len(found), limit))


class Lines(SentenceFile):
    """One sentence a line; blank lines are left out. With a limit, the first ones are read."""

    columns = ("text",)

    def rows(self, limit: int | None = None, negative_pairs: bool = True) -> Examples:
        if not self.path.exists():
            tasks = [name for name, task in load_tasks(self.data).items() if task.source("train").exists()]
            if not (there := [*tasks, *sorted(path.name for path in self.path.parent.glob("*.txt"))]):
                file_size(self.path)  # raises, and names another folder
            raise InputError(f"{self.path}: no such file; {self.option} can name {', '.join(there)}")
        return replace(read_texts(self.path, self.columns, limit), source=self.name)

    def sentences(self, limit: int | None = None) -> Examples:
        return self.rows(limit)


class Pairs(SentenceFile):
    """Two sentences with the same meaning."""

    columns = ("sentence1", "sentence2")
    same_meaning = True


class Triplets(SentenceFile):
    """A premise, a sentence that it entails, and one that contradicts it."""

    columns = ("sent0", "sent1", "hard_neg")


@dataclass(frozen=True, kw_only=True)
class TaskTexts(SentenceSource):
    """The training sentences of a task in one column; or, of a task of pairs, its pairs with their labels."""

    task: Task
    labelled: bool = False

    def rows(self, limit: int | None = None, negative_pairs: bool = True) -> Examples:
        found = load_rows(self.task, "train")
        if not self.labelled:
            found = _in_one_column(found, self.name)
        elif [*map(normal_form, getattr(self.task, "names", ()) or found.classes)] != [0, 1] or not self.task.pair:
            raise InputError(
                f"the source {self.name} needs pairs with the labels 0 and 1, of which 1 says that both mean the same; "
                f"set labels = [0, 1] in tasks.{self.task.name}, and aliases for other names"
            )
        elif not negative_pairs:
            kept = np.flatnonzero(found.labels == 1)
            if not len(kept):
                raise InputError(f"{found.source}: no pair has label 1; nothing to learn from without negative pairs")
            found = replace(found.take(kept), labels=None)
        return found.take(drawn_rows(len(found), limit))

    def sentences(self, limit: int | None = None) -> Examples:
        return replace(self, labelled=False).rows(limit)  # whatever the labels are

    @property
    def same_meaning(self) -> bool:
        return self.labelled


SOURCE_FILES: dict[str, tuple[type[SentenceFile], str]] = {
    "unlabelled": (Lines, "sentences.txt"),
    "nli": (Triplets, "nli_triplets.csv"),
    "pairs": (Pairs, "positive_pairs.tsv"),
}
"""Sources that are files with a fixed name."""
PAIRED = ("quora", "nli", "pairs")
"""The sources whose rows are pairs, by name."""
BY_SUFFIX: dict[str, type[SentenceFile]] = {".txt": Lines, ".csv": Pairs, ".tsv": Pairs}


def source_named(name: str, data: Path, option: str = "--sources") -> SentenceFile | TaskTexts:
    """The source that a name means: a fixed name, the name of a task, or of a file next to the others.

    Raises InputError, which names the `option`, if the name is unknown or has two meanings.
    """
    tasks, folder = load_tasks(data), files_folder(data)
    known = (*SOURCE_FILES, "quora", *tasks)
    if name in tasks and (name in SOURCE_FILES or name == "quora"):
        raise InputError(f"the task {name} has the name of another source of sentences; rename it")
    if name in SOURCE_FILES:
        kind, file = SOURCE_FILES[name]
        return kind(name=name, data=data, option=option, path=folder / file)
    if name == "quora":
        if QUORA_TASK not in tasks:
            raise InputError(f"{data}: the source quora needs the task {QUORA_TASK}, which is not declared")
        return TaskTexts(name=name, data=data, option=option, task=tasks[QUORA_TASK], labelled=True)
    if name in tasks:
        return TaskTexts(name=name, data=data, option=option, task=tasks[name])
    if (found := BY_SUFFIX.get(Path(name).suffix)) and Path(name).name == name:
        return found(name=name, data=data, option=option, path=folder / name)
    raise InputError(
        f'{option}: unknown source "{name}"; expected a text file\'s name (.txt), a file of pairs (.csv, .tsv), or one '
        f"of {', '.join(known)}{did_you_mean(name, known)}"
    )


def _in_one_column(found: Examples, source: str) -> Examples:
    columns, whole = ([*chain(*parts)] for parts in (found.sentences, found.texts))
    return Examples((columns,), None, (), None, source, whole=(whole,), long=found.long)


def read_texts(
    path: Path, columns: Sequence[str], limit: int | None = None, on_problem: OnProblem = refuse
) -> Examples:
    """Read these columns of at most `limit` usable rows without labels; a file compressed by its suffix (.gz) too.

    Raises InputError if the file is missing, has no usable row up to the limit, lacks a column, or is not UTF-8; with
    the default `on_problem`, also for a malformed row.
    """
    table = open_table(RowsFrom(str(path)), on_problem=on_problem)
    table.require(columns)
    table = unlabelled(table)
    rows: list[list[str]] = []
    incomplete: list[int] = []
    for line, row in table.rows:
        if len(rows) == limit:
            break
        texts = [visible_text(row[column]) for column in columns]
        if all(texts):
            rows.append(texts)
        else:
            incomplete.append(line)
    table.warn("left out", "without a sentence", incomplete)
    if not rows:
        raise InputError(f"{path}: no usable row; expected at least one with a sentence")
    return Examples(tuple(map(list, zip(*rows, strict=True))), None, (), None, str(path), len(incomplete))


def unlabelled(table: OpenTable) -> OpenTable:
    """A table of pairs that are all taken to have the same meaning; when all are read, warn if a column denies it."""
    written = {name: re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower() for name in table.columns}
    names = [name for name in table.columns if LABEL_WORDS.search(written[name])]

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
                logger.warning(
                    "%s: the column %s is not read: %d of %d rows have %s there, and count as pairs of the same "
                    "meaning like all others; leave them out, or declare a task in a tasks file (--tasks-file)",
                    *(table.name, plain(name), sum(others.values()), count, listed(others, most=3)),
                )

    return replace(table, rows=rows())


def scored_pairs(task: Task, limit: int | None) -> Examples:
    """At most `limit` training pairs of a task with numbers; their labels are shares of the range, 0 to 1.

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
    examples = replace(examples, labels=shares.clip(0, 1))  # fp32 may round a score of the range's end beyond it
    return examples.take(drawn_rows(len(examples), limit))


def rows_of_labels(
    task: Task, partners: int, train_limit: int | None
) -> tuple[Examples, RowNumbers, RowNumbers, NDArray[np.bool_]]:
    """Each training row with some others of its label, drawn at random (SetFit, arXiv 2209.11055).

    Of several labels, one that both have is enough. A row whose label has fewer others meets some of them again. One
    that is alone with its label, as one without any is with others without any, is paired with itself.

    Returns:
        The rows; the places of a row and its partner, [pairs] each; and which labels each row has, [rows, labels].

    Raises:
        InputError: the task has no labels.
    """
    if not isinstance(task, Labelled):
        raise InputError(
            f'task "{task.name}": a {task.kind} has no rows of one label; --partners needs a classification, '
            "pair_classification or multilabel"
        )
    _, examples = load_training_rows(task)
    examples = examples.take(drawn_rows(len(examples), train_limit))
    gold, count = examples.gold, len(examples)
    has = gold > 0.5 if gold.ndim == 2 else gold[:, None] == np.unique(gold)  # [rows, labels]
    has = np.column_stack([has, ~has.any(axis=1)])
    of_label = [np.flatnonzero(column) for column in has.T]
    draws = generator(0, "partners of a label", count, partners)
    order, second = np.argsort(has.argmax(axis=1), kind="stable"), [np.empty(0, np.int64)]
    for row in order:
        alike = [of_label[label] for label in np.flatnonzero(has[row])]
        rows = alike[0] if len(alike) == 1 else np.unique(np.concatenate(alike))
        others = max(len(rows) - 1, 1)
        # Steps from a row around its label's rows. Only a row that is alone with its label comes back to itself.
        steps = np.concatenate([1 + draws.permutation(others) for _ in range(-(-partners // others))])[:partners]
        second.append(rows[(np.searchsorted(rows, row) + steps) % len(rows)])
    return examples, order.repeat(partners), np.concatenate(second), has


def pairs_of_labels(task: Task, partners: int, train_limit: int | None) -> tuple[Examples, NDArray[np.bool_]]:
    """Rows and their partners as columns, and the labels of each pair's first row; see `rows_of_labels`.

    Of a task of pairs, the columns are the two sentences of a row, then those of its partner.
    """
    examples, anchors, partner, has = rows_of_labels(task, partners, train_limit)
    texts = tuple(texts_of(column, rows) for rows in (anchors, partner) for column in examples.sentences)
    paired = Examples(texts, None, (), None, examples.source, words=examples.words * 2, long=examples.long)
    return paired, has[anchors]

"""What contrastive training pairs: sentences with themselves, with others of their label, or as a file pairs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.data.examples import Rows, texts_of
from multitask.data.read_unlabelled_files import PAIRS, TRIPLETS, read_texts
from multitask.data.shuffle_and_batch import drawn_rows
from multitask.runtime.random_streams import generator
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.read_examples import load_rows, load_training_rows
from multitask.tasks.task import Task
from multitask.tasks.training_sentences import text_file, training_sentences


@dataclass(frozen=True)
class PairedSentences:
    """Rows of sentences.

    Args:
        columns: one text for each row in each column: anchors, positives and hard negatives. A single column is paired
            with itself.
        labels: [rows] for objectives that learn from labels; None: all rows are positives.
        groups: [rows]; rows of one group are no negatives of each other. None: rows with equal texts are not.
    """

    columns: Sequence[Sequence[str]]
    labels: NDArray[np.float32] | None = None
    groups: Rows | None = None

    def limited(self, limit: int | None) -> "PairedSentences":
        """At most so many rows, always the same."""
        rows = drawn_rows(len(self.columns[0]), limit)
        labels = None if self.labels is None else self.labels[rows]
        return PairedSentences([[column[row] for row in rows] for column in self.columns], labels)


def read_paired_sentences(
    name: str, data: Path, train_limit: int | None, partners: int | None, negative_pairs: bool
) -> PairedSentences:
    """Read a contrastive source: `unlabelled`, a text file's name, `nli`, `pairs`, `quora`, or a task's sentences.

    With `partners`, a task's sentences are paired with so many others of the same label instead of with themselves.
    With `negative_pairs`, `quora` has its pairs of label 0, too, and all labels.

    Raises:
        InputError: a file is missing or malformed, or the name is unknown.
    """
    tasks, folder = load_tasks(data), files_folder(data)
    if partners is not None:
        if name not in tasks:
            raise InputError(f'--partners needs sources that are tasks, not "{name}"; there are {", ".join(tasks)}')
        return pairs_of_labels(tasks[name], partners, train_limit)
    if name not in (known := ("unlabelled", "nli", "pairs", "quora", *tasks)) and not text_file(name, folder):
        raise InputError(f'unknown source "{name}"; expected a text file\'s name (.txt) or one of {", ".join(known)}')
    if name == "quora":
        if "paraphrase" not in tasks:
            raise InputError(f"{data}: the source quora needs the task paraphrase, which is not declared")
        return _quora(tasks["paraphrase"], negative_pairs).limited(train_limit)
    if name in ("nli", "pairs"):
        layout = TRIPLETS if name == "nli" else PAIRS
        found = read_texts(folder / layout.file, layout)
        return PairedSentences(found.columns).limited(train_limit)
    return PairedSentences([training_sentences(name, data, train_limit)]).limited(train_limit)


def _quora(task: Task, negative_pairs: bool) -> PairedSentences:
    examples = load_rows(task, "train")
    first, second = examples.sentences
    assert examples.labels is not None, "labelled splits have labels"
    if negative_pairs:
        return PairedSentences([first, second], examples.labels)
    kept = np.flatnonzero(examples.labels == 1)
    if not len(kept):
        raise InputError(f"{examples.source}: no pair has label 1; nothing to learn from without negative pairs")
    return PairedSentences([texts_of(first, kept), texts_of(second, kept)])


def pairs_of_labels(task: Task, partners: int, train_limit: int | None) -> PairedSentences:
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
    assert examples.labels is not None, "training rows have labels"
    labels = examples.labels.astype(np.int64)
    draws = generator(0, "partners of a label", len(labels), partners)
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        others = max(len(rows) - 1, 1)
        rounds = -(-partners // others)
        for place, row in enumerate(rows):
            # Steps from a row around its label's rows; no step but that of a lone row leads back to it.
            steps = np.concatenate([1 + draws.permutation(others) for _ in range(rounds)])[:partners]
            first.append(np.full(partners, row))
            second.append(rows[(place + steps) % len(rows)])
    anchors, positives = np.concatenate(first), np.concatenate(second)
    column = examples.sentences[0]
    texts = [texts_of(column, anchors), texts_of(column, positives)]
    return PairedSentences(texts, groups=labels[anchors])

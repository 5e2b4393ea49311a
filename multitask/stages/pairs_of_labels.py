"""Pairs of sentences with the same label, for contrastive training on few labelled rows (SetFit, arXiv 2209.11055)."""

import numpy as np

from minbert.errors import InputError
from multitask.data.examples import Rows, texts_of
from multitask.data.shuffle_and_batch import drawn_rows
from multitask.runtime.random_streams import generator
from multitask.tasks.read_examples import load_training_rows
from multitask.tasks.task import Task


def pairs_of_labels(task: Task, partners: int, train_limit: int | None) -> tuple[list[list[str]], Rows, str]:
    """Each training sentence with some others of its label, drawn at random.

    A sentence whose label has fewer other sentences meets some of them again. The only sentence of a label is paired
    with itself.

    Args:
        task: a classification of sentences.
        partners: pairs of each sentence.
        train_limit: number of rows to use; None: all.

    Returns:
        First and second sentences, [pairs] each; the label of each pair, [pairs]; the fingerprint of the rows.

    Raises:
        InputError: another kind of task, or a missing or malformed file.
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
    return [list(texts_of(column, anchors)), list(texts_of(column, positives))], labels[anchors], examples.identity

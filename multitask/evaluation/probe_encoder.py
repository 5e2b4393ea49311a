"""The gradient that an objective would give an encoder as it is: `probe` on embeddings of a saved model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from minbert.errors import InputError
from multitask.data.read_task_files import read_examples
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective
from multitask.runtime.device import generator
from multitask.tasks.kinds import POSITIVE, TASKS


def probe_checkpoint(
    encoder: SentenceEncoder,
    texts: Sequence[Sequence[str]],
    objective: Objective,
    batch_size: int = 64,
    batches: int = 10,
    seed: int = 0,
) -> list[GradientComponents]:
    """Decompose an objective's gradient on random batches. Leaves the encoder and torch's generators as they are.

    Args:
        encoder: the model; its embeddings themselves are compared, as the projections of pre-training are not kept.
        texts: one column of sentences, compared with themselves under other dropout (SimCSE), or two columns, anchors
            and positives, embedded without dropout. A text that comes again is left out: it would be a false negative.
        objective: one that takes no labels.
        batch_size: pairs in a batch, at least 2.
        batches: at most so many; fewer when the texts run out.
        seed: of the choice of rows and of dropout.

    Returns:
        What was found in each batch.

    Raises:
        InputError: too few different texts for one batch.
    """
    rows = _without_repetitions(texts)
    if not 2 <= batch_size <= len(rows):
        raise InputError(f"batch_size is {batch_size}; expected 2 to {len(rows)}, the number of different texts")
    order = generator(seed).permutation(len(rows))
    parts = [order[start : start + batch_size] for start in range(0, len(rows) - batch_size + 1, batch_size)]
    found = []
    with _training_mode(encoder, len(texts) == 1, seed):
        for part in parts[:batches]:
            columns = [[rows[i][c] for i in part] for c in range(len(texts))]
            anchors, positives = (torch.from_numpy(encoder.encode(column)) for column in (columns[0], columns[-1]))
            found.append(probe(objective, anchors, positives))
    return found


def similar_pairs(folder: Path) -> list[list[str]]:
    """Anchors and positives for `probe_checkpoint`: the pairs of the similarity dev set with a high gold similarity.

    Raises:
        InputError: a missing or malformed file.
    """
    schema = TASKS["similarity"].schema
    examples = read_examples(schema.path(folder, "dev"), schema, labelled=True)
    kept = np.flatnonzero(np.asarray(examples.labels) >= POSITIVE)
    return [[column[i] for i in kept] for column in examples.sentences]


def _without_repetitions(texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The rows none of whose texts stands in an earlier one that was taken."""
    seen: set[str] = set()
    rows = []
    for row in zip(*texts, strict=True):
        if seen.isdisjoint(row):
            rows.append(row)
            seen.update(row)
    return rows


@contextmanager
def _training_mode(encoder: SentenceEncoder, dropout: bool, seed: int) -> Iterator[None]:
    """With or without dropout, whose random numbers come from the seed and are not missed afterwards."""
    was_training = encoder.model.training
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder.model.train(dropout)
        try:
            yield
        finally:
            encoder.model.train(was_training)

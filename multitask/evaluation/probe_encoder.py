"""Decompose the gradient that an objective gives the embeddings of a saved model, without training it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from minbert.errors import InputError
from multitask.data.examples import texts_of
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective
from multitask.runtime.random_streams import generator, torch_seed
from multitask.tasks.declarations import task_named
from multitask.tasks.kinds import POSITIVE
from multitask.tasks.read_examples import load_rows


def probe_checkpoint(
    encoder: SentenceEncoder,
    texts: Sequence[Sequence[str]],
    objective: Objective,
    batch_size: int = 64,
    batches: int = 10,
    seed: int = 0,
) -> list[GradientComponents]:
    """Decompose an objective's gradient on random batches. Does not change the encoder or torch's random generators.

    The objective compares embeddings directly, because projections are not saved. Raises InputError if there are too
    few different texts for one batch.

    Args:
        encoder: the model.
        texts: one column of sentences, each paired with itself under another dropout mask (SimCSE), or two columns,
            anchors and positives, embedded without dropout. Repeated texts are left out: they are false negatives.
        objective: an objective without labels.
        batch_size: pairs in a batch, at least 2.
        batches: the largest number of batches; there are fewer if there are too few texts.
        seed: for the choice of rows and for dropout.
    """
    rows = _without_repetitions(texts)
    if not 2 <= batch_size <= len(rows):
        raise InputError(f"batch_size is {batch_size}; expected 2 to {len(rows)}, the number of different texts")
    order = generator(seed, "probed sentences").permutation(len(rows))
    parts = [order[start : start + batch_size] for start in range(0, len(rows) - batch_size + 1, batch_size)]
    found = []
    with training_mode(encoder, len(texts) == 1, seed):
        for part in parts[:batches]:
            columns = [[rows[i][c] for i in part] for c in range(len(texts))]
            anchors, positives = (torch.from_numpy(encoder.encode(column)) for column in (columns[0], columns[-1]))
            found.append(probe(objective, anchors, positives))
    return found


def similar_pairs(folder: Path) -> list[list[str]]:
    """Anchors and positives for `probe_checkpoint`: pairs of the similarity dev set with a high gold similarity."""
    examples = load_rows(task_named(folder, "similarity"), "dev")
    kept = np.flatnonzero(np.asarray(examples.labels) >= POSITIVE)
    return [list(texts_of(column, kept)) for column in examples.sentences]


def _without_repetitions(texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    seen: set[str] = set()
    rows = []
    for row in zip(*texts, strict=True):
        if seen.isdisjoint(row):
            rows.append(row)
            seen.update(row)
    return rows


@contextmanager
def training_mode(encoder: SentenceEncoder, dropout: bool, seed: int) -> Iterator[None]:
    """Switch dropout on or off, draw it from the seed, and restore mode and random state at the end."""
    was_training = encoder.model.training
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(seed, "dropout of a probe"))
        encoder.model.train(dropout)
        try:
            yield
        finally:
            encoder.model.train(was_training)

"""Contrastive sources: they pair sentences as views, and hold the objective and the projection."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.tokenizer import Tokenizer
from multitask.data.contamination import Hashes, hash_sentences
from multitask.data.examples import Rows, texts_of
from multitask.data.read_unlabelled_files import PAIRS, TRIPLETS, read_texts
from multitask.data.shuffle_and_batch import drawn_rows, epoch_rows
from multitask.data.tokenize_and_truncate import Tokens, tokenise
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.objectives import Objective, alignment, uniformity, unit
from multitask.objectives.infonce import InfoNCE
from multitask.objectives.labelled_pairs import LabelledPairs
from multitask.runtime import distributed
from multitask.stages.contrastive_config import ContrastiveConfig, NegativesConfig
from multitask.stages.negative_sampling import excluded_negatives
from multitask.stages.pairs_of_labels import pairs_of_labels
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.kinds import labels_to_tensor
from multitask.tasks.read_examples import load_rows
from multitask.tasks.training_sentences import text_file, training_sentences
from multitask.training.source import BatchLoss, Encoded, Inputs, Source

Columns = tuple[Tokens, ...]
ALL_OTHERS = NegativesConfig()


class ContrastiveSource(Source):
    """Rows of two or three sentences: an anchor, its positive and optionally a hard negative.

    Args:
        columns: the sentences' tokens; the same column twice gives two views that differ by dropout (SimCSE).
        identities: one number per row for each column; equal sentences have equal numbers, also across columns.
        sentences: hashes [rows] of the sentences of each distinct column, to record the training data.
        objective: the loss on the projected embeddings.
        projection: maps embeddings to the vectors that the objective compares.
        labels: [rows] for objectives that learn from labels.
        mask_duplicates: exclude equal sentences within a batch from the negatives.
        sampling: which of the other sentences are negatives.
    """

    def __init__(
        self,
        columns: Columns,
        identities: tuple[Rows, ...],
        sentences: tuple[Hashes, ...],
        objective: Objective,
        projection: nn.Module,
        labels: NDArray[np.float32] | None = None,
        mask_duplicates: bool = True,
        sampling: NegativesConfig = ALL_OTHERS,
    ) -> None:
        self.columns = columns
        self.identities = identities
        self.sentences = sentences
        self.objective = objective
        self.projection = projection
        self.labels = labels
        self.mask_duplicates = mask_duplicates
        self.sampling = sampling
        # Decomposes the gradient of the last batch's anchors; only for objectives without labels.
        self.probe: Callable[[], GradientComponents] | None = None
        self.lengths = np.sum([tokens.lengths for tokens in columns], axis=0)

    def inputs(self, rows: Rows) -> Inputs:
        ids = [tokens[row] for tokens in self.columns for row in rows]
        return Inputs(ids, [np.zeros_like(sequence) for sequence in ids], None)

    def loss(self, encoded: Encoded, targets: Any, rows: Rows) -> BatchLoss:
        return BatchLoss(*self.loss_of_views(self.project(encoded.embeddings), rows))

    def project(self, embeddings: Tensor) -> Tensor:
        """[columns * rows, hidden] -> [columns, rows, dim] fp32."""
        return self.projection(embeddings).float().unflatten(0, (len(self.columns), -1))

    def loss_of_views(self, views: Tensor, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss on projected embeddings [columns, own rows, dim] of a batch's rows, and values to monitor."""
        anchors, positives, *hard = distributed.gather(views, len(rows), dim=1).unbind()
        duplicates, hard_duplicates = self._duplicates(rows, views.device)
        excluded = excluded_negatives(anchors, positives, rows, duplicates, self.sampling)
        loss = self.objective(
            anchors,
            positives,
            hard[0] if hard else None,
            None if self.labels is None else labels_to_tensor(self.labels[rows], views.device),
            excluded,
            hard_duplicates,
        )
        anchors, positives, *hard = (view.detach() for view in (anchors, positives, *hard))
        self.probe = partial(
            probe, self.objective, anchors, positives, hard[0] if hard else None, excluded, hard_duplicates
        )
        return loss, self._watched(anchors, positives, duplicates, excluded)

    def _duplicates(self, rows: Rows, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Masks [rows, rows] of false negatives among positives and among hard negatives; None for an empty mask.

        Positive j is a false negative of row i if it equals one of i's two sentences or has the same anchor.
        """
        if not self.mask_duplicates:
            return None, None
        anchor, positive, *hard = (identity[rows] for identity in self.identities)
        own = [anchor[:, None], positive[:, None]]
        among_positives = (positive == own[0]) | (positive == own[1]) | (anchor == own[0])
        np.fill_diagonal(among_positives, val=False)
        among_hard = (hard[0] == own[0]) | (hard[0] == own[1]) if hard else np.zeros((0, 0), bool)

        def mask(found: NDArray[np.bool_]) -> Tensor | None:
            return torch.from_numpy(found).to(device, non_blocking=True) if found.any() else None

        return mask(among_positives), mask(among_hard)

    @torch.no_grad()
    def _watched(
        self, anchors: Tensor, positives: Tensor, duplicates: Tensor | None, excluded: Tensor | None
    ) -> dict[str, Tensor]:
        u, v = unit(anchors), unit(positives)
        with torch.autocast(u.device.type, enabled=False):
            similarity = u @ v.T
            spread = uniformity(u)
        count = len(u)
        watched = {
            "alignment": alignment(u, v),
            "uniformity": spread,
            "positive cosine": similarity.diagonal().mean(),
            "negative cosine": (similarity.sum() - similarity.trace()) / max(count * (count - 1), 1),
            "duplicates": similarity.new_zeros(()) if duplicates is None else duplicates.any(dim=1).float().mean(),
        }
        gate = self.objective.gate_rate(anchors, positives, excluded)
        return watched if gate is None else {**watched, "gate rate": gate}


def build_projection(kind: Literal["mlp", "linear", "none"], width: int) -> nn.Module:
    """The head between embedding and objective; it is discarded after the stage (report, section 4.1, after SimCLR)."""
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(width, width)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def contrastive_batches(name: str, size: int, epoch: int, batch_size: int, quora_share: float, seed: int) -> list[Rows]:
    """A source's batches for one epoch, in random order and with mixed lengths; Quora is down-sampled.

    Args:
        name: the source's name.
        size: number of rows of the source.
        epoch: counted from 0.
        batch_size: rows in a batch.
        quora_share: share of the Quora rows that an epoch uses.
        seed: the run's seed.
    """
    share = quora_share if name in ("quora", "paraphrase") else 1.0
    rows = epoch_rows(size, max(round(share * size), 1), epoch, seed, f"{name} views")
    # A last batch of one row has no negatives, so it is dropped; other epochs use its row.
    return [rows[s : s + batch_size] for s in range(0, len(rows), batch_size) if len(rows) - s > 1]


def load_contrastive(
    name: str,
    data: Path,
    config: ContrastiveConfig,
    tokenizer: Tokenizer,
    projection: nn.Module,
    train_limit: int | None,
    max_length: int | None,
    partners: int | None = None,
) -> tuple[ContrastiveSource, str]:
    """A contrastive source by name, and the fingerprint of its file.

    Args:
        name: `unlabelled`, a text file's name, `nli`, `pairs`, `quora`, or a task. A task gives its training
            sentences without labels.
        data: the data folder, or a tasks file.
        config: objective, negative pairs, masking of duplicates.
        tokenizer: the start weights' tokenizer.
        projection: shared by all sources of the stage.
        train_limit: number of rows to use; None: all.
        max_length: maximum number of tokens of a sentence; None: the encoder's limit.
        partners: pair a task's sentences with this many others of the same label; None: with themselves.

    Raises:
        InputError: a file is missing or malformed, or the objective cannot use the source.
    """
    texts, labels, groups, fingerprint = _chosen(name, data, config, train_limit, partners)
    columns = [tokenise(column, tokenizer, max_length) for column in texts]
    numbers: dict[str, int] = {}
    identities = [np.array([numbers.setdefault(text, len(numbers)) for text in column]) for column in texts]
    if groups is not None:
        identities = [groups, groups]
    sentences = tuple(hash_sentences(column) for column in texts)
    if len(columns) == 1:  # two views of every sentence
        columns, identities = columns * 2, identities * 2
    objective = config.objective.build()
    if name == "quora" and config.negative_pairs != "left_out":
        if type(objective) is not InfoNCE:
            raise InputError(
                f"quora's negative pairs go with infonce, not {objective.name}; try --negative-pairs left_out"
            )
        objective = LabelledPairs(objective.temperature, config.negative_pairs)
    if (labels is None) != (objective.takes_labels == "none"):
        raise InputError(f"{objective.name} learns from labels, which {name} does not have; choose another objective")
    return (
        ContrastiveSource(
            tuple(columns),
            tuple(identities),
            sentences,
            objective,
            projection,
            labels,
            config.mask_duplicates,
            config.sampling,
        ),
        fingerprint,
    )


def _chosen(
    name: str, data: Path, config: ContrastiveConfig, train_limit: int | None, partners: int | None
) -> tuple[list[list[str]], NDArray[np.float32] | None, Rows | None, str]:
    """Columns of the texts that are used, labels for the objective, groups of rows, and the file's fingerprint.

    Rows of one group are no negatives of each other; without groups, rows with equal texts are not.
    """
    if partners is not None:
        tasks = load_tasks(data)
        if name not in tasks:
            raise InputError(f'--partners needs sources that are tasks, not "{name}"; there are {", ".join(tasks)}')
        texts, groups, fingerprint = pairs_of_labels(tasks[name], partners, train_limit)
        return texts, None, groups, fingerprint
    columns, labels, fingerprint = _read(name, data, config, train_limit)
    rows = drawn_rows(len(columns[0]), train_limit)
    texts = [[column[row] for row in rows] for column in columns]
    return texts, labels if labels is None else labels[rows], None, fingerprint


def _read(
    name: str, data: Path, config: ContrastiveConfig, train_limit: int | None
) -> tuple[list[Sequence[str]], NDArray[np.float32] | None, str]:
    """Columns of texts, labels if the objective uses them, and the file's fingerprint."""
    tasks, folder = load_tasks(data), files_folder(data)
    if name not in (known := ("unlabelled", "nli", "pairs", "quora", *tasks)) and not text_file(name, folder):
        raise InputError(f'unknown source "{name}"; expected a text file\'s name (.txt) or one of {", ".join(known)}')
    if name in ("nli", "pairs"):
        layout = TRIPLETS if name == "nli" else PAIRS
        found = read_texts(folder / layout.file, layout)
        return [*found.columns], None, found.fingerprint
    if name != "quora":
        sentences, fingerprint = training_sentences(name, data, train_limit)
        return [sentences], None, fingerprint
    if "paraphrase" not in tasks:
        raise InputError(f"{data}: the source quora needs the task paraphrase, which is not declared")
    examples = load_rows(tasks["paraphrase"], "train")
    first, second = examples.sentences
    assert examples.labels is not None, "labelled splits have labels"
    if config.negative_pairs != "left_out":
        return [first, second], examples.labels, examples.identity
    kept = np.flatnonzero(examples.labels == 1)
    if not len(kept):
        raise InputError(f"{examples.source}: no pair has label 1; nothing to learn from without negative pairs")
    return [texts_of(first, kept), texts_of(second, kept)], None, examples.identity

"""Momentum encoders: positives are embedded by a slow copy of the encoder that gets no gradient (MoCo, BYOL).

The copy's weights k follow the trained weights q: before each step, k ← m k + (1 − m) q. Anchors (queries) are embedded
by the trained encoder, everything else (keys) by the copy.

MoCo v2: the keys of the last batches wait in a queue, where they are further negatives of every anchor. The paper
compares an anchor with the queue alone; here the batch's other keys count, too, as if they were in the queue already.
BYOL: no negatives; a predictor on the queries, and both views are queries and keys in turn. Of the papers' heads, the
predictor alone has batch norm here: without it, all embeddings soon have one direction.

Sources: He et al. 2020, arXiv 1911.05722, section 3; Chen et al. 2020, arXiv 2003.04297; Grill et al. 2020, arXiv
2006.07733, section 3.
"""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.packing import send
from multitask.base import distributed
from multitask.data.examples import RowNumbers, sequences_of
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.training.contrastive_source import ContrastiveSource
from multitask.training.source import Inputs


class Queue(nn.Module):
    """The newest keys of one source, the latest batch first."""

    keys: Tensor  # [size, dim]
    identities: (
        Tensor  # [size, 2] numbers of the texts of each key's anchor and of its own; -1 where there is no key yet
    )

    def __init__(self, size: int, dim: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim, device=device))
        self.register_buffer("identities", torch.full((size, 2), -1, device=device))

    def add(self, keys: Tensor, identities: Tensor) -> None:
        """Add a batch's keys [rows, dim] with their identities [rows, 2]; the oldest leave."""
        size = len(self.keys)
        self.keys = torch.cat([keys, self.keys])[:size]
        self.identities = torch.cat([identities, self.identities])[:size]

    def excluded(self, identities: Tensor, mask_duplicates: bool) -> Tensor:
        """Which keys are no negatives of anchors with these identities [rows, 2]: [rows, size] bool."""
        anchor, positive = identities[:, None].unbind(-1)  # [rows, 1]
        earlier, key = self.identities.unbind(-1)  # [size]
        missing = (key < 0).expand(len(identities), -1)
        return missing | (key == anchor) | (key == positive) | (earlier == anchor) if mask_duplicates else missing


class Momentum(nn.Module):
    """The copy of encoder and projection, the queues, and the predictor, which alone is trained.

    All of it is a part of a run's saved state, and none of the model.
    """

    def __init__(self, encoder: SentenceEncoder, projection: nn.Module, momentum: float, predicts: bool) -> None:
        super().__init__()
        self.trained = encoder.model, projection  # in a tuple, so that they are no parts of this module
        model, self.projection = deepcopy(self.trained)
        self.encoder = SentenceEncoder(model, encoder.tokenizer, encoder.pooling, encoder.max_length, encoder.runtime)
        self.requires_grad_(requires_grad=False)
        width = encoder.width
        self.predictor = nn.Sequential()
        if predicts:
            norm = nn.BatchNorm1d(width, track_running_stats=False)  # it is discarded after training
            self.predictor.extend([nn.Linear(width, width), norm, nn.ReLU(), nn.Linear(width, width)])
        self.momentum = momentum
        self.queues = nn.ModuleList()

    @torch.no_grad()
    def follow(self) -> None:
        """Move the copy's weights towards the trained ones."""
        for own, trained in zip((self.encoder.model, self.projection), self.trained, strict=True):
            for mine, theirs in zip(own.parameters(), trained.parameters(), strict=True):
                mine.lerp_(theirs, 1 - self.momentum)


class MomentumSource(ContrastiveSource):
    """A contrastive source whose positives and hard negatives are keys.

    Args:
        momentum: embeds the keys, and predicts them from the queries if the objective does.
        queue: how many keys are further negatives, if the objective takes hard negatives.
        arguments: those of `ContrastiveSource`.

    Raises:
        InputError: the rows have labels that the objective learns from, or are pairs; or there is a queue, and the rows
            have several labels, or not all others are negatives.
    """

    def __init__(self, *arguments: Any, momentum: Momentum, queue: int) -> None:
        super().__init__(*arguments)
        if self.labels is not None:
            asked = self.config.objective.build()  # of infonce with labelled pairs, self.objective is quora_pairs
            remedy = "--negative-pairs left_out" if asked.takes_labels == "none" else "an objective without labels"
            raise InputError(f"momentum is for rows without labels; leave it out, or take {remedy}")
        if self.of_pairs:
            raise InputError("momentum is for single sentences, and --partners compares pairs here; leave one out")
        self.momentum = momentum
        self.queries = 2 if self.objective.predicts else 1
        size = queue if self.objective.takes_hard_negatives else 0
        if size and getattr(self.objective, "hard_negative_weight", 0):
            raise InputError(
                "hard_negative_weight is for one hard negative of each pair; leave it out, or add --queue-size 0"
            )
        if size and (negatives := self.config.sampling.negatives) != "all":
            raise InputError(
                f"negatives is {negatives}, but the keys of momentum's queue all count; add --queue-size 0"
            )
        if size and self.groups is not None and (self.groups.sum(axis=1) > 1).any():
            # The queue knows its keys by one number each, and could not tell that two have a label in common.
            raise InputError(
                "momentum's queue is for rows of one label, and --partners has several; add --queue-size 0"
            )
        width, device = momentum.encoder.width * len(self.sizes), next(momentum.parameters()).device
        self.queue = Queue(size, width, device)
        momentum.queues.append(self.queue)

    def inputs(self, rows: RowNumbers) -> Inputs:
        return Inputs(*sequences_of(self.columns[: self.queries], rows), None)

    def project(self, embeddings: Tensor) -> Tensor:
        return self._project(embeddings, self.projection, self.queries)

    @torch.no_grad()
    def keys(self, rows: RowNumbers) -> Tensor:
        """The keys of the rows' sentences: of all columns if both views are queries, else of all but the anchors."""
        columns, copy = self.columns[self.queries % 2 :], self.momentum
        return self._project(copy.encoder.embed(sequences_of(columns, rows)[0]), copy.projection, len(columns))

    def _predictions(self, view: Tensor) -> Tensor:
        """Of the whole batch [rows, sizes * dim], because the predictor's batch norm compares its rows."""
        parts = view.chunk(len(self.sizes), dim=1)
        return torch.cat([self.momentum.predictor(part).float() for part in parts], dim=1)

    def loss_of_views(self, views: Tensor, rows: RowNumbers) -> tuple[Tensor, dict[str, Tensor]]:
        self.momentum.follow()
        keys = self.keys(distributed.own(rows))
        whole = distributed.gather(torch.cat([views, keys]), len(rows), dim=1)
        if self.objective.predicts:
            *queries, key_of_first, key_of_second = whole
            first, second = (self._predictions(view) for view in queries)
            swapped, _ = self.loss_of_batch(torch.stack([second, key_of_first]), rows)
            loss, watched = self.loss_of_batch(torch.stack([first, key_of_second]), rows)
            return loss + swapped, watched
        if not len(self.queue.keys):
            return self.loss_of_batch(whole, rows)
        pairs = np.stack([identity[rows] for identity in self.identities[:2]], axis=1)
        identities = send(torch.from_numpy(pairs), views.device)
        excluded = self.queue.excluded(identities, self.config.mask_duplicates)
        found = self.loss_of_batch(whole, rows, self.queue.keys, excluded)
        self.queue.add(whole[1].detach(), identities)
        return found

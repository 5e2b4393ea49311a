"""Fusion training: train on a labelled batch, then on the same sentences with the contrastive objective.

Source: report, sections 4.2 and 5.3.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from minbert.errors import InputError
from multitask.base.runs import Weights
from multitask.data.contamination import Hashes
from multitask.data.examples import RowNumbers, drawn_rows
from multitask.stages.finetune import Finetuning
from multitask.stages.finetune import reads as reads_of_tasks
from multitask.stages.finetune import summary as summary
from multitask.stages.reads import sources_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings import FUSE, FuseConfig
from multitask.stages.training_run import StartModel, train_run
from multitask.training.contrastive_source import (
    ContrastiveSource,
    build_projection,
    check_hard_negatives,
    contrastive_batches,
    load_contrastive,
)
from multitask.training.source import Batch, Losses, Update, losses_of

fuse = partial(run_stage, FUSE)
"""Alternate fine-tuning and contrastive training; keep the models that score best on the dev sets."""


def reads(config: FuseConfig, data: Path) -> dict[str, Any]:
    """What fine-tuning reads, and the sources that are trained contrastively."""
    found = reads_of_tasks(config.finetune, data)
    views = sources_of((*found["training"], *config.unlabelled), data, "--unlabelled")
    return {**found, "views": views["training"], "tasks": [*found["tasks"], *views["tasks"]]}


def compute(models: Sequence[Weights], data: Path, config: FuseConfig, run: OpenRun) -> None:
    """Fuse into a run's folder."""
    supervised = config.finetune
    begin = StartModel.load(models[0], supervised, run.runtime, supervised.matryoshka)
    problem = Fusing.load(begin, data, supervised)
    problem.add_views(data, config)
    train_run(run, begin, problem, supervised, supervised.conflicts_every, FuseConfig().finetune)


class Fusing(Finetuning):
    """Supervised and contrastive training of a `MultitaskModel`, as the loop's `Trainable`."""

    fusion: FuseConfig
    views: dict[str, ContrastiveSource]
    """Each task's sentences, and the sources that are used only for contrastive training; by `_views` of their name."""

    def add_views(self, data: Path, fusion: FuseConfig) -> None:
        """Add the contrastive sources and their projection, which is discarded after training."""
        self.fusion, config = fusion, self.config
        if (objective := fusion.contrastive.objective).build().takes_labels != "none":
            raise InputError(f"{objective.name} learns from labels, which views of sentences do not have")
        projection = build_projection(fusion.contrastive.projection, self.encoder.width)
        projection.to(self.runtime.device)
        self.module = nn.ModuleDict({**dict(self.module.named_children()), "projection": projection})
        self.views = {}
        for name in dict.fromkeys((*config.tasks, *fusion.unlabelled)):
            # Load all rows of a trained task: `_sentences` finds a batch's sentences by their index in the full set.
            limit = None if name in config.tasks else config.train_limit
            self.views[_views(name)] = load_contrastive(
                name,
                data,
                fusion.contrastive,
                self.encoder,
                projection,
                limit,
                sizes=config.matryoshka,
                option="--unlabelled",
            )
        check_hard_negatives(fusion.contrastive, self.views.values())

    @property
    def sentences(self) -> Mapping[str, Sequence[Hashes]]:
        return {**super().sentences, **{name: source.sentences for name, source in self.views.items()}}

    def plan(self, epoch: int) -> Sequence[Update]:
        """Each supervised update and its sentences' views, as one update or two; then the unlabelled sources."""
        fusion, config = self.fusion, self.config
        updates: list[Update] = []
        for update in super().plan(epoch):
            # A single sentence has no negatives, so its views would give an empty step.
            parts = [(batch.source, self._sentences(batch)) for batch in update]
            views = tuple(Batch(_views(name), rows) for name, rows in parts if len(rows) > 1)
            updates += [(*update, *views)] if fusion.steps == "one" or not views else [update, views]
        for name in fusion.unlabelled:
            rows = drawn_rows(len(self.views[_views(name)]), config.train_limit)  # a trained task's source has all rows
            share = self.views[_views(name)].share
            batches = contrastive_batches(name, len(rows), epoch, config.batch_size, share, config.seed)
            updates += [(Batch(_views(name), rows[batch]),) for batch in batches]
        return updates

    def backward(self, update: Update) -> Losses:
        """Add the scheduler's gradient of the labelled batches and the gradient of the views' weighted loss."""
        labelled = tuple(batch for batch in update if batch.source in self.training)
        views = tuple(batch for batch in update if batch.source in self.views)
        parts = [super().backward(labelled)] if labelled else []
        if views:
            losses = losses_of(self.encoder, self.views, views)
            (self.fusion.contrastive_weight * torch.stack([*losses.terms.values()]).mean()).backward()
            parts.append(losses.detached())
        return parts[0].plus(parts[1]) if len(parts) == 2 else parts[0]

    def _sentences(self, batch: Batch) -> RowNumbers:
        """Row numbers of a batch's sentences in its views' source, which lists all first, then all second sentences."""
        columns, size = len(self.training[batch.source].examples.sentences), len(self.training[batch.source])
        return np.concatenate([batch.rows + column * size for column in range(columns)])


def _views(name: str) -> str:
    return f"{name} views"

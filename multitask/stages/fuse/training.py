"""Fusion training: a batch against its labels, then the same sentences against the contrastive objective.

Source: report, sections 4.2 and 5.3.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from multitask.data.shuffle_and_batch import Rows, drawn_rows
from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from multitask.stages.common import train_once, trained_on
from multitask.stages.dropout_views_and_pairs import (
    ContrastiveSource,
    build_projection,
    contrastive_batches,
    load_contrastive,
)
from multitask.stages.finetune.training import Finetuning, Prepared, prepare
from multitask.stages.fuse import FuseConfig
from multitask.training.loop import Batch, LoopConfig, Losses, Trainable, Update
from multitask.training.source import Source, losses_of


def fuse(
    start_weights: str, data: Path, config: FuseConfig, options: RunOptions, revision: str | None = None
) -> Artefact:
    """Fine-tune an encoder with fresh heads and train it contrastively in turn; keeps the best models on the dev sets.

    Args:
        start_weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: folder with the tasks' and sources' files.
        config: what to train and how.
        options: where to compute and to write.
        revision: of a hub id.

    Raises:
        InputError: a bad checkpoint, file or setting.
        TrainingError: training diverged.
        Interrupted: stopped by a signal, to be resumed.
    """
    found = prepare(start_weights, data, config, options, revision)
    projection = build_projection(config.projection, found.begin.encoder.config.hidden_size).to(found.runtime.device)
    tokenizer = found.begin.tokenizer
    whole = replace(config, train_limit=None)  # a batch's sentences are found by their place in the whole set
    views = {name: load_contrastive(name, data, whole, tokenizer, projection) for name in config.tasks}
    views |= {
        name: load_contrastive(name, data, config, tokenizer, projection)
        for name in config.unlabelled
        if name not in views
    }
    problem = Fusing(found, {name: source for name, (source, _) in views.items()}, projection)
    inputs = {**found.inputs, "views": {name: fingerprint for name, (_, fingerprint) in views.items()}}
    loop = LoopConfig(config.epochs, config.optimizer, config.patience, watch_every=config.conflicts_every)
    labels = found.begin.labels(data)
    sentences = {**found.sentences, **{_views(name): source.sentences for name, (source, _) in views.items()}}
    seen = found.begin.trained_on | trained_on(problem, config.epochs, sentences)
    return train_once(
        "fuse", problem, problem.backward, loop, found.config, inputs, labels, seen, options, found.runtime
    )


class Fusing(Finetuning):
    """Supervised and contrastive training of a `MultitaskBert`, as the loop's `Trainable`.

    Args:
        found: model, data and configuration.
        views: a contrastive source of each task's sentences, and of what is only trained contrastively.
        projection: the views' projection, thrown away afterwards.
    """

    def __init__(self, found: Prepared[FuseConfig], views: dict[str, ContrastiveSource], projection: nn.Module) -> None:
        super().__init__(found.model, found.begin.tokenizer, found.training, found.dev, found.config, found.runtime)
        self.fusion = found.config
        self.views = views
        self.module = nn.ModuleDict({**dict(self.module.named_children()), "projection": projection})
        self.view_sources: dict[str, Source] = {_views(name): source for name, source in views.items()}

    def plan(self, epoch: int) -> Sequence[Update]:
        """Each supervised update with its sentences' views, as two updates or one; then the unlabelled sources."""
        config = self.fusion
        updates: list[Update] = []
        for update in super().plan(epoch):
            # One sentence alone has no negatives: its views would make an empty step.
            parts = [(batch.source, self._sentences(batch)) for batch in update]
            views = tuple(Batch(_views(name), rows) for name, rows in parts if len(rows) > 1)
            updates += [(*update, *views)] if config.steps == "one" or not views else [update, views]
        for number, name in enumerate(config.unlabelled, start=len(config.tasks) + 1):
            rows = drawn_rows(len(self.views[name]), config.train_limit)  # a trained task's source is whole
            batches = contrastive_batches(name, len(rows), epoch, config.batch_size, config, (config.seed, number))
            updates += [(Batch(_views(name), rows[batch]),) for batch in batches]
        return updates

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        """The scheduler's gradient of the labelled batches, plus that of the views."""
        labelled = tuple(batch for batch in update if batch.source in self.training)
        views = tuple(batch for batch in update if batch.source in self.view_sources)
        parts = [self.scheduler.backward(trainable, labelled)] if labelled else []
        if views:
            model = self.model
            losses = losses_of(model.encoder, model.pooling, self.view_sources, views, self.runtime)
            (self.fusion.contrastive_weight * torch.stack([*losses.terms.values()]).mean()).backward()
            parts.append(losses.detached())
        return parts[0].plus(parts[1], 1.0) if len(parts) == 2 else parts[0]

    def _sentences(self, batch: Batch) -> Rows:
        """Rows of the views of a batch's sentences: the source has all first sentences, then all second ones."""
        columns, size = len(self.training[batch.source].examples.sentences), len(self.training[batch.source])
        return np.concatenate([batch.rows + column * size for column in range(columns)])


def _views(name: str) -> str:
    return f"{name} views"

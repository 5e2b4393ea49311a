"""Contrastive pre-training: dropout SimCSE, Quora and NLI pairs, under any objective (report, section 4.1)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from minbert.checkpoint import save_encoder
from minbert.files import atomic_folder, write_json
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.tokenizer import Tokenizer
from multitask.artefacts import Artefact
from multitask.config import PretrainConfig, RunOptions
from multitask.contrastive import ContrastiveSource, build_projection, load_contrastive
from multitask.datasets.batching import Rows, epoch_rows
from multitask.datasets.labelled import LabelledData
from multitask.gradient_cache import backward_in_chunks
from multitask.inference import for_all_rows
from multitask.metrics import correlation_metrics
from multitask.pooling import pool
from multitask.runtime import Runtime, make_deterministic, start
from multitask.sources import losses_of
from multitask.stages.common import Start, train_once
from multitask.tasks import TASKS
from multitask.training import Batch, Evaluation, LoopConfig, Losses, Trainable, Update


def pretrain(
    start_weights: str, data: Path, config: PretrainConfig, options: RunOptions, revision: str | None = None
) -> Artefact:
    """Pre-train an encoder on its sources; the artefact keeps the encoder, without the projection.

    Args:
        start_weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: folder with the sources' files, and the similarity dev set when the best state is selected on it.
        config: what to train and how.
        options: where to compute and to write.
        revision: of a hub id.

    Raises:
        InputError: a bad checkpoint, file or setting.
        TrainingError: training diverged.
        Interrupted: stopped by a signal, to be resumed.
    """
    runtime = start(options.device, options.precision)
    make_deterministic(runtime)
    begin = Start.load(start_weights, revision, config.pooling, config.seed)
    config = replace(config, pooling=begin.pooling)
    projection = build_projection(config.projection, begin.encoder.config.hidden_size)
    module = nn.ModuleDict({"encoder": begin.encoder, "projection": projection}).to(runtime.device)
    loaded = {name: load_contrastive(name, data, config, begin.tokenizer, projection) for name in config.sources}
    dev = None
    if config.select == "similarity":
        schema = TASKS["similarity"].schema
        dev = LabelledData.load(data, schema, "dev", begin.tokenizer, config.max_length, joint=False)
    inputs = {
        **begin.identity(),
        "training": {name: fingerprint for name, (_, fingerprint) in loaded.items()},
        "dev": {} if dev is None else {"similarity": dev.examples.fingerprint},
    }
    sources = {name: source for name, (source, _) in loaded.items()}
    problem = Pretraining(module, begin.pooling, begin.tokenizer, sources, dev, config, runtime)
    loop = LoopConfig(config.epochs, config.optimizer, evaluate_every=config.evaluate_every)
    labels = {"start": begin.name, "data": str(data)}
    return train_once("pretrain", problem, problem.backward, loop, config, inputs, labels, options, runtime)


class Pretraining:
    """Contrastive training of an encoder and a projection, as the loop's `Trainable`."""

    def __init__(
        self,
        module: nn.ModuleDict,
        pooling: Literal["cls", "mean"],
        tokenizer: Tokenizer,
        sources: dict[str, ContrastiveSource],
        dev: LabelledData | None,
        config: PretrainConfig,
        runtime: Runtime,
    ) -> None:
        encoder = module["encoder"]
        assert isinstance(encoder, BertModel)
        self.module: nn.Module = module
        self.encoder = encoder
        self.pooling = pooling
        self.tokenizer = tokenizer
        self.sources = sources
        self.dev = dev
        self.config = config
        self.runtime = runtime

    def plan(self, epoch: int) -> Sequence[Update]:
        """The sources one after the other, each in random order: hard negatives must not share a length by design."""
        updates: list[Update] = []
        for number, (name, source) in enumerate(self.sources.items()):
            share = self.config.quora_share if name in ("quora", "paraphrase") else 1.0
            rows = epoch_rows(len(source), max(round(share * len(source)), 1), epoch, (self.config.seed, number))
            size = self.config.batch_size
            # A last batch of one row has no negatives; its row comes again in another epoch.
            starts = [s for s in range(0, len(rows), size) if len(rows) - s > 1]
            updates += [(Batch(name, rows[s : s + size]),) for s in starts]
        return updates

    def losses(self, update: Update) -> Losses:
        return losses_of(self.encoder, self.pooling, self.sources, update, self.runtime)

    def backward(self, trainable: Trainable, update: Update) -> Losses:
        """The update's gradient, through gradient caching where a chunk size is set."""
        (batch,) = update
        if self.config.chunk is None or len(batch.rows) <= self.config.chunk:
            losses = trainable.losses(update)
            losses.terms[batch.source].backward()
            return losses.detached()
        source = self.sources[batch.source]
        tokens = int(source.lengths[batch.rows].sum())

        def encode(positions: Rows) -> Tensor:
            part = PackedBatch.from_sequences(source.inputs(batch.rows[positions]).ids).to(self.runtime.device)
            with self.runtime.autocast():
                return source.project(pool(self.encoder.forward_packed(part), part, self.pooling))

        cuts = range(self.config.chunk, len(batch.rows), self.config.chunk)
        chunks = np.split(np.arange(len(batch.rows)), cuts)
        loss, watched = backward_in_chunks(
            chunks, encode, lambda views: source.loss_of_views(views, batch.rows), self.runtime.device
        )
        seen = {f"{batch.source} {name}": value for name, value in watched.items()}
        return Losses({batch.source: loss}, tokens, seen)

    def evaluate(self) -> Evaluation:
        if self.dev is None:
            return Evaluation({}, {})
        metrics = zero_shot_similarity(self.encoder, self.pooling, self.dev, self.runtime)
        return Evaluation({"similarity": metrics}, {"similarity": metrics["spearman"]})

    def save(self, folder: Path) -> None:
        """The encoder as a checkpoint folder that remembers its pooling the way sentence-transformers does."""
        with atomic_folder(folder) as temporary:
            save_encoder(self.encoder, temporary)
            self.tokenizer.save(temporary)
            write_json(
                temporary / "1_Pooling" / "config.json",
                {
                    "word_embedding_dimension": self.encoder.config.hidden_size,
                    "pooling_mode_cls_token": self.pooling == "cls",
                    "pooling_mode_mean_tokens": self.pooling == "mean",
                },
            )


def zero_shot_similarity(
    encoder: BertModel, pooling: Literal["cls", "mean"], data: LabelledData, runtime: Runtime
) -> dict[str, Any]:
    """Pearson and Spearman correlation of cosine and gold similarity, without any trained head."""

    def cosine(rows: Rows) -> Tensor:
        ids, types = data.sequences(rows)
        batch = PackedBatch.from_sequences(ids, types).to(runtime.device)
        first, second = pool(encoder.forward_packed(batch), batch, pooling).chunk(2)
        return nn.functional.cosine_similarity(first, second)

    assert data.examples.labels is not None, "dev sets have labels"
    return correlation_metrics(for_all_rows(data.lengths, cosine, runtime), data.examples.labels)

"""Fine-tuning on labelled tasks, together or alone (report, section 4.2)."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from minbert.checkpoint import weights_file
from minbert.files import sha256_of_file
from minbert.model import BertModel
from minbert.tokenizer import Tokenizer, load_tokenizer
from multitask.artefacts import Artefact, locate_model
from multitask.config import FinetuneConfig, RunOptions
from multitask.datasets.batching import batches_of_similar_length, epoch_rows
from multitask.datasets.labelled import LabelledData
from multitask.evaluation.multitask import evaluate, load_split
from multitask.model import MultitaskBert, resolve_pooling
from multitask.runtime import Runtime, generator, seed_everything, start
from multitask.schedulers import AverageLoss, Scheduler
from multitask.sources import TaskSource, losses_of
from multitask.tensorboard import tensorboard_log
from multitask.training import Evaluation, LoopConfig, Losses, Update, train

logger = logging.getLogger("multitask")


def finetune(
    start_weights: str, data: Path, config: FinetuneConfig, options: RunOptions, revision: str | None = None
) -> Artefact:
    """Fine-tune an encoder with fresh heads; the artefact keeps the best models on the dev sets.

    Args:
        start_weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: folder with the tasks' files.
        config: what to train and how.
        options: where to compute and to write.
        revision: of a hub id.

    Raises:
        InputError: a bad checkpoint, file or setting.
        TrainingError: training diverged.
        Interrupted: stopped by a signal, to be resumed.
    """
    runtime = start(options.device, options.precision)
    checkpoint = locate_model(start_weights, revision)
    tokenizer = load_tokenizer(str(checkpoint))
    pooling = resolve_pooling(config.pooling, checkpoint)
    seed_everything(config.seed)
    encoder = BertModel.from_pretrained(str(checkpoint))
    tasks = (*config.tasks, *config.untrained)
    model = MultitaskBert(encoder, tasks, pooling, config.heads, config.max_length).to(runtime.device)
    training = load_split(model, tokenizer, data, "train", config.tasks)
    dev = load_split(model, tokenizer, data, "dev")
    inputs: dict[str, Any] = {
        "start": {"sha256": sha256_of_file(weights_file(checkpoint)), "config": asdict(encoder.config)},
        "pooling": pooling,
        "tokenizer": tokenizer.fingerprint(),
        "training": {name: split.examples.fingerprint for name, split in training.items()},
        "dev": {name: split.examples.fingerprint for name, split in dev.items()},
        **runtime.describe(),
    }
    labels = {"start": start_weights if revision is None else f"{start_weights}@{revision}", "data": str(data)}
    artefact = Artefact.place(options.runs, "finetune", options.name, asdict(config), inputs, labels)
    with artefact.locked():
        if artefact.done:
            logger.info("already computed")
            return artefact
        problem = Finetuning(model, tokenizer, training, dev, config, runtime)
        with tensorboard_log(artefact.folder if options.tensorboard else None) as on_evaluation:
            train(
                problem,
                problem.scheduler.backward,
                LoopConfig(config.epochs, config.optimizer, config.patience),
                artefact.folder,
                runtime,
                options.save_every,
                on_evaluation,
            )
        artefact.finish()
    return artefact


class Finetuning:
    """Supervised training of a `MultitaskBert`, as the loop's `Trainable`."""

    def __init__(
        self,
        model: MultitaskBert,
        tokenizer: Tokenizer,
        training: dict[str, LabelledData],
        dev: dict[str, LabelledData],
        config: FinetuneConfig,
        runtime: Runtime,
    ) -> None:
        self.module: nn.Module = model
        self.model = model
        self.tokenizer = tokenizer
        self.training = training
        self.dev = dev
        self.config = config
        self.runtime = runtime
        self.scheduler: Scheduler = AverageLoss(
            dict(zip(config.tasks, config.weights or [1.0] * len(config.tasks), strict=True))
        )
        self.sources = {name: TaskSource(model, name, split) for name, split in training.items()}

    def plan(self, epoch: int) -> Sequence[Update]:
        config = self.config
        sizes = {name: min(len(data), config.train_limit or len(data)) for name, data in self.training.items()}
        batches = {}
        for number, (name, take) in enumerate(self.scheduler.epoch_sizes(sizes, config.epoch_size).items()):
            rows = epoch_rows(sizes[name], take, epoch, (config.seed, number))
            order = generator(config.seed, number, epoch)
            batches[name] = batches_of_similar_length(rows, self.training[name].lengths, config.batch_size, order)
        return self.scheduler.arrange(batches, generator(config.seed, len(sizes), epoch))

    def losses(self, update: Update) -> Losses:
        return losses_of(self.model.encoder, self.model.pooling, self.sources, update, self.runtime)

    def evaluate(self) -> Evaluation:
        scores = evaluate(self.model, self.dev, self.runtime)
        kept = scores.tasks if self.config.keep_task_bests else {}
        return Evaluation(scores.metrics, {"overall": scores.overall, **kept})

    def save(self, folder: Path) -> None:
        self.model.save(folder, self.tokenizer)

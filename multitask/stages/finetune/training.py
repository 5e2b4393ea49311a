"""Fine-tuning on labelled tasks, together or alone (report, section 4.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from minbert.tokenizer import Tokenizer
from multitask.data.contamination import Hashes, hash_sentences
from multitask.data.labelled_data import LabelledData
from multitask.data.shuffle_and_batch import batches_of_similar_length, drawn_rows, rows_from
from multitask.evaluation.task_predictions import load_split
from multitask.evaluation.task_scores import evaluate
from multitask.models.multitask_model import MultitaskModel
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.device import Runtime
from multitask.runtime.options import RunOptions
from multitask.runtime.random_streams import generator
from multitask.schedulers import build_scheduler
from multitask.stages.common import Start, begin_stage, train_once
from multitask.stages.finetune import STAGE, FinetuneConfig
from multitask.training.loop import LoopConfig
from multitask.training.source import TaskSource, losses_of
from multitask.training.trainable import Batch, Evaluation, Losses, Update


def finetune(start_weights: str | Weights, data: Path, config: FinetuneConfig, options: RunOptions) -> Artefact:
    """Fine-tune an encoder with new heads; the artefact keeps the models that score best on the dev sets.

    Args:
        start_weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: folder with the tasks' files.
        config: what to train and how.
        options: device, precision, and where to write.

    Raises:
        InputError: a bad checkpoint, file or setting.
        TrainingError: training diverged.
        Interrupted: a signal stopped the run; it can be resumed.
    """
    found = prepare(start_weights, data, config, options)
    problem = Finetuning(found.model, found.begin.tokenizer, found.training, found.dev, found.config, found.runtime)
    loop = LoopConfig(config.epochs, config.optimizer, config.patience, watch_every=config.conflicts_every)
    key = STAGE.key(found.config, found.inputs)
    labels = found.begin.labels(data)
    seen = found.begin.trained_on, found.sentences
    backward = problem.scheduler.backward
    return train_once(key, problem, backward, loop, config.seed, labels, *seen, options, found.runtime)


@dataclass(frozen=True)
class Prepared:
    """The loaded model, data and settings for training on tasks."""

    config: FinetuneConfig  # its pooling is resolved from the start weights
    begin: Start
    model: MultitaskModel
    training: dict[str, LabelledData]
    dev: dict[str, LabelledData]
    runtime: Runtime

    @property
    def inputs(self) -> dict[str, Any]:
        """Hashes of all inputs, plus device and precision."""
        return {
            **self.begin.identity(),
            **self.runtime.describe(),
            "training": {name: split.examples.fingerprint for name, split in self.training.items()},
            "dev": {name: split.examples.fingerprint for name, split in self.dev.items()},
        }

    @property
    def sentences(self) -> dict[str, list[Hashes]]:
        """Hashes [rows] of each task's columns of training sentences."""
        return {name: [hash_sentences(c) for c in split.examples.sentences] for name, split in self.training.items()}


def prepare(start_weights: str | Weights, data: Path, config: FinetuneConfig, options: RunOptions) -> Prepared:
    """Load start weights and data, and add new heads to the encoder; the arguments are those of `finetune`."""
    begin, runtime = begin_stage(start_weights, config.pooling, config.seed, options)
    config = replace(config, pooling=begin.pooling)
    if config.encoder_dropout is not None:
        begin.encoder.set_dropout(config.encoder_dropout)
    tasks = (*config.tasks, *config.untrained)
    model = MultitaskModel(begin.encoder, tasks, begin.pooling, config.heads, config.max_length).to(runtime.device)
    training = load_split(model, begin.tokenizer, data, "train", config.tasks)
    dev = load_split(model, begin.tokenizer, data, "dev")
    return Prepared(config, begin, model, training, dev, runtime)


class Finetuning:
    """Supervised training of a `MultitaskModel`, as the loop's `Trainable`."""

    def __init__(
        self,
        model: MultitaskModel,
        tokenizer: Tokenizer,
        training: dict[str, LabelledData],
        dev: dict[str, LabelledData],
        config: FinetuneConfig,
        runtime: Runtime,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.training = training
        self.dev = dev
        self.config = config
        self.runtime = runtime
        self.scheduler = build_scheduler(config, runtime.device)
        self.module: nn.Module = nn.ModuleDict(
            {"encoder": model.encoder, "heads": model.heads, "scheduler": self.scheduler}
        )
        self.sources = {name: TaskSource(model, name, split) for name, split in training.items()}
        self.rows = {name: drawn_rows(len(split), config.train_limit) for name, split in training.items()}

    def plan(self, epoch: int) -> Sequence[Update]:
        config = self.config
        sizes = self.sizes
        *before, takes = (self.scheduler.epoch_sizes(sizes, config, number) for number in range(epoch + 1))
        batches = {}
        for name, size in sizes.items():
            rows = rows_from(size, sum(taken[name] for taken in before), takes[name], config.seed, name)
            rows = self.rows[name][rows]
            order = generator(config.seed, "batch order", name, epoch)
            batches[name] = batches_of_similar_length(rows, self.training[name].lengths, config.batch_size, order)
        return self.scheduler.arrange(batches, generator(config.seed, "update order", epoch))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of training rows of each task."""
        return {name: len(rows) for name, rows in self.rows.items()}

    def losses(self, update: Update) -> Losses:
        return losses_of(self.model.encoder, self.model.pooling, self.sources, update, self.runtime)

    def watch(self, update: Update, step: int) -> dict[str, Tensor]:
        """Conflicts between the tasks' gradients on the update, or on random batches if the update lacks a task."""
        if {batch.source for batch in update} != set(self.sizes):
            draws = generator(self.config.seed, "watched rows", step)
            update = tuple(
                Batch(name, draws.choice(rows, min(len(rows), self.config.batch_size), replace=False))
                for name, rows in self.rows.items()
            )
        return self.scheduler.conflicts(self, update)

    def evaluate(self) -> Evaluation:
        scores = evaluate(self.model, self.dev, self.runtime)
        kept = scores.tasks if self.config.keep_task_bests else {}
        return Evaluation(scores.metrics, {"overall": scores.overall, **kept})

    def save(self, folder: Path) -> None:
        self.model.save(folder, self.tokenizer)

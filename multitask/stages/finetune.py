"""Fine-tuning on labelled tasks, together or alone (report, section 4.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from minbert.tokenizer import Tokenizer
from multitask.artefacts import Artefact
from multitask.config import FinetuneConfig, RunOptions
from multitask.datasets.batching import batches_of_similar_length, epoch_rows
from multitask.datasets.labelled import LabelledData
from multitask.evaluation.multitask import evaluate, load_split
from multitask.model import MultitaskBert
from multitask.runtime import Runtime, generator, make_deterministic, start
from multitask.schedulers import AverageLoss, Scheduler
from multitask.sources import TaskSource, losses_of
from multitask.stages.common import Start, train_once
from multitask.training import Evaluation, LoopConfig, Losses, Update


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
    found = prepare(start_weights, data, config, options, revision)
    problem = Finetuning(found.model, found.begin.tokenizer, found.training, found.dev, found.config, found.runtime)
    loop = LoopConfig(config.epochs, config.optimizer, config.patience)
    backward = problem.scheduler.backward
    return train_once(
        "finetune", problem, backward, loop, found.config, found.inputs, found.labels, options, found.runtime
    )


Config = TypeVar("Config", bound=FinetuneConfig)


@dataclass(frozen=True)
class Prepared(Generic[Config]):
    """All that training on tasks begins with."""

    config: Config  # resolved
    begin: Start
    model: MultitaskBert
    training: dict[str, LabelledData]
    dev: dict[str, LabelledData]
    runtime: Runtime
    data: Path

    @property
    def inputs(self) -> dict[str, Any]:
        """Hashes of what is read."""
        return {
            **self.begin.identity(),
            "training": {name: split.examples.fingerprint for name, split in self.training.items()},
            "dev": {name: split.examples.fingerprint for name, split in self.dev.items()},
        }

    @property
    def labels(self) -> dict[str, str]:
        """What people call the inputs."""
        return {"start": self.begin.name, "data": str(self.data)}


def prepare(
    start_weights: str, data: Path, config: Config, options: RunOptions, revision: str | None
) -> Prepared[Config]:
    """Load start weights and data, and put fresh heads on the encoder; the arguments are those of `finetune`."""
    runtime = start(options.device, options.precision)
    make_deterministic(runtime)
    begin = Start.load(start_weights, revision, config.pooling, config.seed)
    config = replace(config, pooling=begin.pooling)
    if config.encoder_dropout is not None:
        begin.encoder.set_dropout(config.encoder_dropout)
    tasks = (*config.tasks, *config.untrained)
    model = MultitaskBert(begin.encoder, tasks, begin.pooling, config.heads, config.max_length).to(runtime.device)
    training = load_split(model, begin.tokenizer, data, "train", config.tasks)
    dev = load_split(model, begin.tokenizer, data, "dev")
    return Prepared(config, begin, model, training, dev, runtime, data)


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

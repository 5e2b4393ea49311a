"""Fine-tuning on labelled tasks, together or alone (report, section 4.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.base import logger
from multitask.base.device import PROCESSOR
from multitask.base.options import RunOptions
from multitask.base.random_streams import generator
from multitask.base.runs import Run, Weights
from multitask.data.contamination import Hashes, TrainedOn, hash_sentences
from multitask.data.examples import Examples, LabelledData, RowNumbers, batches_of_similar_length, drawn_rows, rows_from
from multitask.data.messages import listed, quote
from multitask.evaluation.task_scores import score_tasks
from multitask.evaluation.text_tables import metrics_table, scores_table
from multitask.models.estimates import choose_thresholds, embeddings_of, estimate
from multitask.models.heads_of_start import take_heads
from multitask.models.multitask_model import MultitaskModel
from multitask.models.prediction_heads import CosineHead, pair_input
from multitask.models.settings import HeadsConfig
from multitask.stages.reads import declared, rows_of
from multitask.stages.run_stage import HERE, OpenRun, run_stage
from multitask.stages.settings import FINETUNE, FinetuneConfig
from multitask.stages.training_run import StartModel, train_run
from multitask.tasks.check import gaps, undefined_on, warn_of_gaps
from multitask.tasks.declarations import chosen_tasks, default_tasks
from multitask.tasks.kinds import Classification, Cosine
from multitask.tasks.labels import Labelled, rows_by_label
from multitask.tasks.read_examples import held_out_part, held_out_sentences, load_rows, load_training_rows
from multitask.tasks.task import Task
from multitask.training.regularisation import Compute, build_regularisers
from multitask.training.schedulers import SCHEDULERS, Scheduler, build_scheduler
from multitask.training.source import Batch, Evaluation, Losses, SourceTraining, TaskSource, Update

MOST_KEPT = 2**30
"""Bytes of the embeddings that a training keeps."""


def finetune(
    start_weights: str | Weights, data: str | Path, config: FinetuneConfig | None = None, options: RunOptions = HERE
) -> Run:
    """Fine-tune an encoder and its heads; the artefact keeps the models that score best on the dev sets.

    Heads of a fine-tuned start go on if their tasks mean the same (`FinetuneConfig.new_heads`).

    Args:
        start_weights: a run's folder, or a checkpoint as `BertModel.from_pretrained` takes it.
        data: a tasks file, or the folder of the course's files.
        config: what to train and how; None: the defaults.
        options: device, precision, and where to write.

    Raises:
        InputError: a bad checkpoint, file or setting.
        TrainingError: training diverged.
        Interrupted: a signal stopped the run; it can be resumed.
    """
    return run_stage(FINETUNE, start_weights, data, config, options)


def reads(config: FinetuneConfig, data: Path) -> dict[str, Any]:
    """Training and dev rows of the tasks; without dev rows where training rows are held out."""
    if config.held_out is not None and config.untrained:  # FuseConfig refuses held_out itself
        raise InputError("held_out is for trained tasks; leave out untrained")
    tasks = chosen_tasks(data, (*(config.tasks or default_tasks(data)), *config.untrained))
    trained = [task for name, task in tasks.items() if name not in config.untrained]
    return {
        "tasks": declared(tasks.values()),
        "training": rows_of(trained, "train"),
        "dev": rows_of(tasks.values(), "dev") if config.held_out is None else {},
    }


def compute(models: Sequence[Weights], data: Path, config: FinetuneConfig, run: OpenRun) -> None:
    """Fine-tune into a run's folder."""
    begin = StartModel.load(models[0], config, run.runtime, config.matryoshka)
    problem = Finetuning.load(begin, data, config)
    problem.check_sizes()
    problem.keep_embeddings()
    train_run(run, begin, problem, config, config.conflicts_every)


def summary(run: Run) -> str:
    """What a command prints of a finished run: dev scores after each epoch; if no score selects, the last metrics."""
    history = run.history()
    return scores_table(history) if history[-1]["scores"] else metrics_table(history[-1]["dev"])


def freeze(model: MultitaskModel, layers: str | None, trained: Sequence[str], one_a_step: bool) -> None:
    """Freeze the encoder's lowest layers. Warns of tasks that then have nothing to train.

    Raises InputError if there are fewer, or if a step would have nothing to train: `one_a_step` says that each step
    trains one task.
    """
    there = len(model.encoder.model.layers)
    if layers is not None:
        number = there if layers == "encoder" else int(layers)
        if number > there:
            raise InputError(f"freeze is {number}; the encoder has {there} layers")
        model.encoder.model.freeze(number)
    idle = [name for name in trained if not (trains(model.encoder.model) or trains(model.heads[name]))]
    if idle and (one_a_step or len(idle) == len(trained)):
        raise InputError(f"freeze is {layers}, which leaves nothing to train for {idle[0]}: its head has no weights")
    if idle:
        scored = "name such tasks in --untrained, which scores them, or leave them out (with held-out rows, only this)"
        more = f"the loss counts all the same: {scored}"
        logger.warning("freeze is %s, which leaves nothing to train for %s; %s", layers, listed(idle), more)


def trains(module: nn.Module) -> bool:
    """Whether a weight of it is trained."""
    return any(parameter.requires_grad for parameter in module.parameters())


def rows_of_epoch(scheduler: Scheduler, rows: Mapping[str, RowNumbers], seed: int, epoch: int) -> dict[str, RowNumbers]:
    """The rows of each task that an epoch trains, in random order, drawn from those that may be trained."""
    sizes = {name: len(own) for name, own in rows.items()}
    *before, takes = (scheduler.epoch_sizes(sizes, number) for number in range(epoch + 1))
    return {
        name: own[rows_from(len(own), sum(taken[name] for taken in before), takes[name], seed, name)]
        for name, own in rows.items()
    }


def planned_rows(examples: Mapping[str, Examples], config: FinetuneConfig) -> dict[str, RowNumbers]:
    """The rows of each task that the training reads, in order: of large sets, few are trained."""
    rows = {name: drawn_rows(len(split), config.train_limit) for name, split in examples.items()}
    with torch.random.fork_rng([]):  # a scheduler may draw, and this one is not trained with
        scheduler = build_scheduler(config, PROCESSOR.device)
    found = {name: own[:0] for name, own in rows.items()}
    for epoch in range(config.epochs):
        drawn = rows_of_epoch(scheduler, rows, config.seed, epoch)
        found = {name: np.union1d(own, drawn[name]) for name, own in found.items()}
        if all(len(own) == len(rows[name]) for name, own in found.items()):
            break
    return found


def warn_of_idle_tasks(read: Mapping[str, RowNumbers], config: FinetuneConfig) -> None:
    """Warn of tasks of which no step reads a row; `read` are the rows of `planned_rows`."""
    if idle := [name for name, own in read.items() if not len(own)]:
        more = "take more epochs, or a larger epoch_size"
        logger.warning("no step trains %s, as %s draws none of its rows; %s", listed(idle), config.scheduler, more)


def _warn_of_seen(held_out: Mapping[str, Examples], trained_on: TrainedOn) -> None:
    """Warn of held-out rows that the start was trained on."""
    for name, rows in held_out.items():
        if seen := int(trained_on.rows_seen(rows.sentences).sum()):
            logger.warning(
                "%s: the start was trained on %d of %d held-out rows, so scores on them say little about other rows",
                *(name, seen, len(rows)),
            )


def _warn_of_labels_without_rows(
    tasks: Mapping[str, Task], training: Mapping[str, Examples], trained: Mapping[str, RowNumbers]
) -> None:
    """Warn of labels that the training file has, but no trained row; `warn_of_idle_tasks` names tasks without rows."""
    for name, examples in training.items():
        task = tasks[name]
        if isinstance(task, Labelled) and len(trained[name]):
            counts = rows_by_label(examples.gold[trained[name]], len(task.names))
            if lacking := [quote(label) for label, count in zip(task.names, counts, strict=True) if not count]:
                remedy = "hold out fewer rows, or raise train_limit, epoch_size or epochs"
                logger.warning("%s: no trained row has these labels: %s; %s", name, listed(lacking), remedy)


class Finetuning(SourceTraining):
    """Supervised training of a `MultitaskModel`, as the loop's `Trainable`."""

    adds_rows: ClassVar[bool] = False
    """Whether rows without labels come to those of the tasks' files."""

    def __init__(
        self,
        model: MultitaskModel,
        training: dict[str, LabelledData],
        dev: dict[str, LabelledData],
        config: FinetuneConfig,
    ) -> None:
        self.model = model
        self.training = training
        self.dev = dev
        self.config = config
        device = model.encoder.runtime.device
        self.scheduler = build_scheduler(config, device)
        if self.scheduler.ignores_weights and len({*self.scheduler.weights.values()}) > 1:
            name = config.scheduler.name
            logger.warning("the direction of the encoder's update does not depend on the tasks' weights with %s", name)
        layers = (layer for name in training for layer in model.heads[name].modules())
        drops = any(isinstance(layer, nn.Dropout) and layer.p for layer in layers)
        drops = drops or (model.encoder.model.has_dropout and trains(model.encoder.model))
        if config.regularisation.r_drop_weight and not drops:
            logger.warning("r_drop_weight has no effect without dropout, in the heads or within the encoder")
        if config.conflicts_every is not None and not trains(model.encoder.model):
            logger.warning("conflicts_every records nothing if freeze is encoder")
        module = nn.ModuleDict({"encoder": model.encoder.model, "heads": model.heads, "scheduler": self.scheduler})
        sources = {name: TaskSource(model, name, split, config.matryoshka) for name, split in training.items()}
        super().__init__(module, model.encoder, sources)
        self.regularisers = build_regularisers(config.regularisation, model, device)
        self.rows = {name: drawn_rows(len(split), config.train_limit) for name, split in training.items()}

    @classmethod
    def load(cls, begin: StartModel, data: Path, config: FinetuneConfig) -> Self:
        """Read the data, and add heads to the encoder; `config.tasks` are resolved from the data."""
        tasks = dict(chosen_tasks(data, (*(config.tasks or default_tasks(data)), *config.untrained)))
        names = tuple(name for name in tasks if name not in config.untrained)
        if config.encoder_dropout is not None:
            begin.encoder.model.set_dropout(config.encoder_dropout)
        for name in config.ordinal:
            task = tasks.get(name)
            if not isinstance(task, Classification):
                found = f"is a {task.kind}" if task else f"is no task of this training ({', '.join(tasks)})"
                raise InputError(f"ordinal: {name} {found}; expected classifications")
            tasks[name] = replace(task, ordinal=True)
        _check(config, tasks)
        logger.info("reading %s", data)
        rows = {}
        for name in names:
            tasks[name], rows[name] = load_training_rows(tasks[name])
        if config.held_out is None:
            dev_rows = {name: load_rows(task, "dev") for name, task in tasks.items()}
        else:
            parts = held_out_sentences(rows, config.held_out)
            dev_rows = {name: held_out_part(rows[name], dev) for name, (_, dev) in parts.items()}
            _warn_of_seen(dev_rows, begin.trained_on)
            rows = {name: rows[name].take(training) for name, (training, _) in parts.items()}
        for name, task in tasks.items():
            if config.held_out is not None and task.metric in undefined_on(task, dev_rows[name].gold):
                raise InputError(f"{gaps(task, dev_rows[name])[0]}; expected held-out rows with different labels")
            warn_of_gaps(task, dev_rows[name])
        weights = config.task_weights or tuple(tasks[name].loss_weight for name in names)
        config = replace(config, tasks=names, task_weights=weights)
        if config.accumulate > 1 and (comparing := [name for name in names if tasks[name].compares_rows]):
            raise InputError(
                f"accumulate is {config.accumulate}; expected 1 with the task {comparing[0]}, whose loss compares the "
                "rows of a batch"
            )
        model = MultitaskModel(begin.encoder, tasks, config.heads)
        take_heads(model, begin.folder, config.new_heads)
        freeze(model, config.freeze, names, SCHEDULERS[config.scheduler.name].one_a_step)
        model.on(begin.encoder.runtime)
        read = planned_rows(rows, config)
        if not cls.adds_rows:
            warn_of_idle_tasks(read, config)
            _warn_of_labels_without_rows(tasks, rows, read)
        if config.conflicts_every is not None:  # conflicts are of rows that no epoch may have
            read = {name: drawn_rows(len(examples), config.train_limit) for name, examples in rows.items()}
        logger.info("tokenising %s rows", f"{sum(map(len, read.values())) + sum(map(len, dev_rows.values())):,}")
        training = {name: model.tokenised(name, examples, read[name]) for name, examples in rows.items()}
        dev = {name: model.tokenised(name, examples) for name, examples in dev_rows.items()}
        return cls(model, training, dev, config)

    @property
    def sentences(self) -> Mapping[str, Sequence[Hashes]]:
        return {name: [hash_sentences(c) for c in split.examples.sentences] for name, split in self.training.items()}

    def plan(self, epoch: int) -> Sequence[Update]:
        config, batches = self.config, {}
        for name, rows in rows_of_epoch(self.scheduler, self.rows, config.seed, epoch).items():
            order = generator(config.seed, "batch order", name, epoch)
            batches[name] = batches_of_similar_length(rows, self.training[name].lengths, config.step_size, order)
        return self.scheduler.arrange(batches, generator(config.seed, "update order", epoch))

    def keep_embeddings(self) -> None:
        """Compute embeddings once if the encoder is not trained, and if they fit."""
        encoder, sets = self.encoder.model, (self.training, self.dev)
        numbers = sum(np.count_nonzero(rows.lengths) * len(rows.columns) for found in sets for rows in found.values())
        fits = numbers * encoder.config.hidden_size * 4 <= MOST_KEPT
        if fits and not trains(encoder) and not self.config.regularisation.smart_weight:
            logger.info("embedding all rows, once")
            self.model.eval()
            for found in sets:
                for name, rows in [*found.items()]:
                    if rows.lengths.any():  # a scheduler that draws tasks may draw none of a small one
                        found[name] = replace(rows, embeddings=embeddings_of(self.encoder, rows))
            sizes = self.config.matryoshka
            self.sources |= {name: TaskSource(self.model, name, rows, sizes) for name, rows in self.training.items()}

    def check_sizes(self) -> None:
        """Raise InputError if smaller sizes are asked for, but no head compares embeddings by cosine."""
        if self.config.matryoshka and not any(isinstance(self.model.heads[name], CosineHead) for name in self.training):
            raise InputError(
                "matryoshka is for tasks whose heads compare embeddings by cosine; none of these is trained"
            )

    def parts(self, update: Update) -> Sequence[Update]:
        """The update as parts of at most `batch_size` rows of each task, if gradients are accumulated."""
        if self.config.accumulate == 1:
            return [update]
        return [tuple(filter(None, part)) for part in zip_longest(*map(self._cut, update))]

    def _cut(self, batch: Batch) -> list[Batch]:
        divisor, size = self.sources[batch.source].divisor, self.config.batch_size
        whole = divisor(batch.rows) or 1.0  # rows that all have weight 0
        parts = np.split(batch.rows, range(size, len(batch.rows), size))
        return [Batch(batch.source, rows, batch.share * divisor(rows) / whole) for rows in parts]

    def losses(self, update: Update) -> Losses:
        compute: Compute = partial(super().losses, update)
        for regulariser in self.regularisers:
            compute = partial(regulariser, compute)
        return compute()

    def backward(self, update: Update) -> Losses:
        return self.scheduler.backward(self, update)

    def watch(self, update: Update, step: int) -> dict[str, Tensor]:
        """Conflicts between the tasks' gradients on the update, or on random batches if the update lacks a task.

        None if the encoder, which the tasks share, is not trained.
        """
        if not trains(self.encoder.model):
            return {}
        update = tuple(batch for batch in update if batch.source in self.rows)
        if {batch.source for batch in update} != self.rows.keys():
            draws = generator(self.config.seed, "watched rows", step)
            update = tuple(
                Batch(name, draws.choice(rows, min(len(rows), self.config.step_size), replace=False))
                for name, rows in self.rows.items()
            )
        return self.scheduler.conflicts(self, update)

    def metrics_of_start(self) -> dict[str, dict[str, float]]:
        """The tasks' cosines of the encoder's embeddings, without the heads' layers."""
        model = self.model
        pairs = {n: task for n, task in model.tasks.items() if isinstance(task, Cosine) and not model.reads_jointly(n)}
        if pairs:
            logger.info("evaluating the start weights on %s", ", ".join(pairs))
        heads = HeadsConfig(sharing="none")
        with torch.random.fork_rng([]):  # new layers draw their weights, although none of them is used
            bare = MultitaskModel(model.encoder, pairs, heads).eval()
        dev = {name: self.dev[name] for name in pairs}
        scores = score_tasks(pairs, estimate(bare, dev), {name: dev[name].examples for name in pairs})
        return {name: {pairs[name].metric: value} for name, value in scores.selecting.items()}

    def evaluate(self) -> Evaluation:
        examples = {name: rows.examples for name, rows in self.dev.items()}
        estimates = choose_thresholds(self.model, self.dev, self.config.calibrate)
        scores = score_tasks(self.model.tasks, estimates, examples)
        kept = scores.selecting if self.config.keep_task_bests else {}
        return Evaluation(scores.metrics, {"overall": scores.overall, **kept} if scores.selecting else {})

    def save(self, folder: Path) -> None:
        self.model.save(folder)


def _check(config: FinetuneConfig, tasks: Mapping[str, Task]) -> None:
    """Raise InputError for settings that do not fit the tasks."""
    for task in filter(lambda task: task.pair, tasks.values()):
        pair_input(task, config.heads)
    if config.patience is not None and not any(task.selects for task in tasks.values()):
        raise InputError(
            f"patience is {config.patience}; expected a task with a metric where higher is better; declare one, or "
            "leave patience out"
        )
    if config.calibrate and not any(isinstance(task, Labelled) for task in tasks.values()):
        raise InputError(f"calibrate is for classes; all tasks predict numbers ({', '.join(tasks)}); leave it out")
    for name in config.untrained:
        needed = "labels" if isinstance(tasks[name], Labelled) else "range"
        if not getattr(tasks[name], needed):
            raise tasks[name].problem(f"untrained, so its {needed} cannot be learned; declare {needed}")

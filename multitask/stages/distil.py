"""Distillation: teachers label a student's training rows and unlabelled ones, and the student is fine-tuned on both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, compress
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from multitask.base import distributed, logger
from multitask.base.runs import Weights, locate_model
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.data.examples import Examples, LabelledData, RowNumbers
from multitask.data.messages import listed
from multitask.models.estimates import embeddings_of, raw_outputs, with_files_of
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.finetune import Finetuning, planned_rows, trains, warn_of_idle_tasks
from multitask.stages.finetune import reads as reads_of_tasks
from multitask.stages.finetune import summary as summary
from multitask.stages.reads import rows_of, sources_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings import DISTIL, DistilConfig, TeachingConfig
from multitask.stages.training_run import StartModel, train_run
from multitask.tasks.declarations import chosen_tasks
from multitask.tasks.kinds import Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_test_rows
from multitask.tasks.sources import source_named
from multitask.tasks.task import Task
from multitask.training.source import BatchLoss, TaskSource, labels_to_tensor

COSINE_ROWS = 256  # sentences whose cosines with all others are in memory

distil = partial(run_stage, DISTIL)
"""Train a student on its teachers' estimates; the models are the student's start weights and then the teachers."""


def reads(config: DistilConfig, data: Path) -> dict[str, Any]:
    """What fine-tuning reads, and the sentences and pairs without labels, which leave out rows of test sets."""
    found, further = reads_of_tasks(config, data), sources_of(config.teaching.unlabelled, data, "--unlabelled")
    extended = config.teaching.unlabelled or config.teaching.mine_pairs is not None
    tests = {"test": rows_of(chosen_tasks(data, tuple(found["training"])).values(), "test")} if extended else {}
    return {**found, **tests, "unlabelled": further["training"], "tasks": [*found["tasks"], *further["tasks"]]}


def compute(models: Sequence[Weights], data: Path, config: DistilConfig, run: OpenRun) -> None:
    """Distil into a run's folder."""
    first, *teachers = models
    if not teachers:
        raise InputError("distillation without a teacher; name one or more fine-tuned runs with --teacher")
    begin = StartModel.load(first, config, run.runtime, config.matryoshka)
    known = [TrainedOn.of_folder(locate_model(teacher.name), teacher.name) for teacher in teachers]
    begin = replace(begin, trained_on=reduce(or_, known, begin.trained_on))
    problem = Distilling.load(begin, data, config)
    problem.check_sizes()
    problem.learn_from(teachers, data, config.teaching)
    train_run(run, begin, problem, config, config.conflicts_every)


class SoftSource(TaskSource):
    """g · gold loss + (1 - g) · soft loss + w · distance of the embeddings.

    The soft loss is that of `Task.soft_loss`. The gold loss is the task's own, times the share of a batch's rows that
    have a gold label: a row without one, whose label is NaN, counts as a loss of 0. g is `gold_share`, and w is
    `embedding_weight`.
    """

    estimates: NDArray[np.float32] | None = None
    """Of the teachers at the temperature of `config`, [rows, outputs] or [rows]; None if gold labels count alone."""
    embeddings: NDArray[np.float16] | None = None  # of a teacher, [rows, sequences, width]
    projection: nn.Module  # maps the student's embeddings to this width

    def __init__(
        self, model: MultitaskModel, task: str, data: LabelledData, sizes: tuple[int, ...], config: TeachingConfig
    ) -> None:
        super().__init__(model, task, data, sizes)
        self.config = config

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        found = super().loss(hidden, embeddings, targets, rows)
        if self.embeddings is None:
            return found
        theirs = self.embeddings[rows].astype(np.float32)
        views = self.projection(embeddings).float().unflatten(0, (theirs.shape[1], -1))
        own = distributed.gather(views, len(rows), dim=1)  # [sequences, rows, width]
        target = labels_to_tensor(theirs, own.device).transpose(0, 1)
        by_cosine = self.config.embedding_loss == "cosine"
        apart = (1 - F.cosine_similarity(own, target, dim=2)).mean() if by_cosine else F.mse_loss(own, target)
        return replace(found, loss=found.loss + self.config.embedding_weight * apart)

    def loss_of(self, outputs: Tensor, rows: RowNumbers) -> Tensor:
        share, loss = self.config.gold_share, outputs.sum() * 0  # a batch may have no gold label
        if self.estimates is not None:
            estimates = labels_to_tensor(self.estimates[rows], outputs.device)
            loss = (1 - share) * self.model.tasks[self.task].soft_loss(outputs, estimates, self.config.temperature)
        known = np.flatnonzero(~np.isnan(self.labels[rows].reshape(len(rows), -1)).any(axis=1))
        if len(known):
            loss = loss + share * len(known) / len(rows) * super().loss_of(outputs[known.tolist()], rows[known])
        return loss


class Distilling(Finetuning):
    """Fine-tuning of a student on gold and soft labels, as the loop's `Trainable`."""

    adds_rows = True

    def learn_from(self, teachers: Sequence[Weights], data: Path, config: TeachingConfig) -> None:
        """Put unlabelled rows and the teachers' estimates of all rows into the tasks' sources."""
        if config.embedding_loss != "none" and not trains(self.encoder.model):
            raise InputError("embedding_loss has no effect on a frozen encoder; leave it out")
        soft, sources = config.gold_share < 1, self._with_further_rows(data, config)
        every = replace(self.config, train_limit=None)  # it is of labelled rows
        read = planned_rows({name: rows.examples for name, rows in self.training.items()}, every)
        warn_of_idle_tasks(read, every)
        estimates: dict[str, list[NDArray[np.float64]]] = {name: [] for name in sources}
        used = teachers if soft else teachers[: config.embedding_loss != "none"]
        for number, teacher in enumerate(used):  # one of them in memory at a time
            model = MultitaskModel.load(locate_model(teacher.name), keep_layers=True).on(self.runtime)
            if shared := shared_tasks(teacher.name, model.tasks, self.model.tasks, sources, soft):
                logger.info("%s of %s", "predictions" if soft else "embeddings", teacher)
            else:
                none_of = "%s: has none of the tasks trained here (%s); it teaches nothing"
                logger.warning(none_of, teacher, listed(sources))
            for name in shared:
                task, rows = model.tasks[name], model.tokenised(name, self.training[name].examples)
                if soft:
                    raw = raw_outputs(model, name, rows)
                    tempered = raw / config.temperature if isinstance(task, Labelled) else raw
                    estimates[name].append(task.estimate(tempered))
                alike = model.reads_jointly(name) == self.model.reads_jointly(name)
                if number == 0 and alike and config.embedding_loss != "none":
                    sources[name].embeddings = embeddings_of(model.encoder, rows).astype(np.float16)
        if soft and (missing := [name for name, answers in estimates.items() if not answers]):
            raise InputError(f"no teacher has the task {missing[0]}; leave it out with --tasks, or add a teacher")
        widths = {source.embeddings.shape[2] for source in sources.values() if source.embeddings is not None}
        if config.embedding_loss != "none" and not widths:
            raise InputError("embedding_loss: student and first teacher read no task in the same way; leave it out")
        if left_out := [name for name, source in sources.items() if widths and source.embeddings is None]:
            logger.info("embedding_loss: not of %s, which the first teacher lacks or reads otherwise", listed(left_out))
        projection: nn.Module = nn.Identity()
        if others := widths - {self.encoder.width}:
            projection = nn.Linear(self.encoder.width, others.pop(), device=self.runtime.device)
        self.module = nn.ModuleDict({**dict(self.module.named_children()), "projection": projection})
        for name, source in sources.items():
            source.projection = projection
            source.estimates = np.mean(estimates[name], axis=0).astype(np.float32) if soft else None
        self.sources |= sources

    def _with_further_rows(self, data: Path, config: TeachingConfig) -> dict[str, SoftSource]:
        """The tasks' sources, with unlabelled rows, before the teachers have predicted anything."""
        unlabelled: list[tuple[list[str], ...]] = []
        read = {len(split.examples.sentences) for split in self.training.values()}
        if config.mine_pairs is not None and 2 not in read:
            raise InputError("mine_pairs: no trained task reads pairs")
        for name in config.unlabelled:
            found = source_named(name, data, "--unlabelled").rows(config.unlabelled_limit)
            columns = found.sentences[:2]
            if len(columns) not in read:
                what = "pairs" if len(columns) == 2 else "sentences"
                raise InputError(f"unlabelled: {name} has {what}, but no trained task reads {what}")
            unlabelled.append(columns)
        sources = {}
        for name, split in self.training.items():
            examples = split.examples.take(self.rows[name])
            further = [columns for columns in unlabelled if len(columns) == len(examples.sentences)]
            if config.mine_pairs is not None and len(examples.sentences) == 2:
                self.encoder.eval()
                further.append(mined_pairs(self.encoder, examples, config.mine_pairs))
            new = without_evaluated(further, self.model.tasks[name], self.dev[name].examples) if further else []
            self.training[name] = self.model.tokenised(name, extended(examples, new))
            self.rows[name] = np.arange(len(self.training[name]))
            sources[name] = SoftSource(self.model, name, self.training[name], self.config.matryoshka, config)
        return sources


def shared_tasks(
    teacher: str, theirs: Mapping[str, Task], own: Mapping[str, Task], trained: Iterable[str], soft: bool
) -> list[str]:
    """The trained tasks that a teacher has.

    Their outputs must be the student's if its answers count (`soft`); its embeddings are those of texts of any task.
    """
    shared = [name for name in trained if name in theirs]
    if not soft:
        return [name for name in shared if theirs[name].pair == own[name].pair]
    for name in shared:
        check_same_task(teacher, theirs[name], own[name])
    return shared


def check_same_task(teacher: str, task: Any, own: Any) -> None:
    """Raise InputError if a teacher's task has other outputs than the student's task of this name."""
    try:
        with_files_of(task, own)
    except InputError as error:
        raise InputError(f"{teacher}: {error}") from None
    if task.compares_rows != own.compares_rows:
        raise InputError(
            f"{teacher}: {task.name} learns only order with cosent; teacher and student need one objective"
        )
    if isinstance(task, Regression) and task.bounds != own.bounds:
        raise InputError(f"{teacher}: {task.name} has the range {list(task.bounds)}; expected {list(own.bounds)}")


def extended(examples: Examples, parts: Sequence[tuple[list[str], ...]]) -> Examples:
    """Labelled rows and then unlabelled ones, whose labels are NaN."""
    columns = tuple([*chain(*column)] for column in zip(examples.sentences, *parts, strict=True))
    missing, weights = len(columns[0]) - len(examples), examples.weights
    labels = np.concatenate([examples.gold, np.full((missing, *examples.gold.shape[1:]), np.nan, np.float32)])
    if weights is not None:
        weights = np.concatenate([weights, np.zeros(missing, np.float32)])
    return replace(examples, sentences=columns, labels=labels, weights=weights, ids=None, numbers=None)


def mined_pairs(encoder: SentenceEncoder, examples: Examples, neighbours: int) -> tuple[list[str], list[str]]:
    """Each different sentence of pairs with its nearest others by cosine, without pairs of the examples; each once."""
    texts = [*dict.fromkeys(chain(*examples.sentences))]
    single = Examples((texts,), None, (), None, examples.source, words=examples.words[:1], long=examples.long)
    embeddings = embeddings_of(encoder, encoder.tokenised(single))[:, 0]
    units = F.normalize(torch.from_numpy(embeddings).to(encoder.runtime.device))
    nearest: list[list[int]] = []
    for start in range(0, len(texts), COSINE_ROWS):
        cosines = units[start : start + COSINE_ROWS] @ units.T  # [COSINE_ROWS, texts]
        cosines.diagonal(start).fill_(-torch.inf)
        nearest += cosines.topk(min(neighbours, len(texts) - 1)).indices.tolist()
    gold = {frozenset(pair) for pair in zip(*examples.sentences, strict=True)}
    pairs = dict.fromkeys((min(row, other), max(row, other)) for row, near in enumerate(nearest) for other in near)
    found = [pair for pair in pairs if frozenset((texts[pair[0]], texts[pair[1]])) not in gold]
    return [texts[first] for first, _ in found], [texts[second] for _, second in found]


def without_evaluated(parts: Sequence[tuple[list[str], ...]], task: Task, dev: Examples) -> list[tuple[list[str], ...]]:
    """The sentences or pairs that neither the dev set nor the test set of their task has, pairs in either order."""
    test = load_test_rows(task) if (source := task.files.test) is not None and source.exists() else None
    evaluated = [dev] if test is None else [dev, test]
    known = reduce(
        or_, [TrainedOn.of_rows([hash_sentences(column) for column in examples.sentences]) for examples in evaluated]
    )
    found = []
    for columns in parts:
        new = ~known.rows_seen(columns)
        if left_out := len(new) - new.sum():
            logger.info("%s: left out %d of %d rows that its dev or test set has", task.name, left_out, len(new))
        found.append(tuple([*compress(column, new)] for column in columns))
    return found

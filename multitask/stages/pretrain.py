"""Contrastive pre-training on dropout views (SimCSE), Quora and NLI, with any objective (report, section 4.1)."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.masked_language_head import MaskedLanguageHead
from multitask.base import distributed
from multitask.base.device import generator_states, restore_generators
from multitask.base.keys import hash_of_file
from multitask.base.random_streams import generator, torch_seed
from multitask.base.runs import Weights
from multitask.data.contamination import Hashes
from multitask.data.examples import LabelledData, RowNumbers, tokenise, warn_of_tokens
from multitask.data.messages import other_tasks
from multitask.evaluation.embeddings import (
    DIGITS,
    EmbeddingTable,
    alignment_of_positives,
    uniformity_in_chunks,
    unit_vectors,
)
from multitask.evaluation.gradient_probe import probe
from multitask.evaluation.retrieval import (
    RetrievalData,
    is_retrieval_set,
    query_scores,
    read_retrieval,
    retrieval_files,
)
from multitask.models.compute_in_batches import compute_in_batches
from multitask.models.model_folder import heads_files, stored_max_length
from multitask.models.multitask_model import warn_of_alike_label
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import Objective, alignment, uniformity, unit
from multitask.stages.reads import declared, rows_of, sources_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings_of_pretraining import HELD_OUT, PRETRAIN, PretrainConfig
from multitask.stages.training_run import StartModel, train_run
from multitask.tasks.check import warn_of_gaps
from multitask.tasks.declarations import files_folder, load_tasks
from multitask.tasks.kinds import Cosine
from multitask.tasks.read_examples import completed, load_rows
from multitask.tasks.scores import correlation_metrics
from multitask.tasks.task import Task
from multitask.training.contrastive_source import (
    ContrastiveSource,
    backward_in_chunks,
    build_projection,
    check_hard_negatives,
    contrastive_batches,
    load_contrastive,
)
from multitask.training.masked_words import MaskedSource
from multitask.training.momentum import Momentum, MomentumSource
from multitask.training.source import Batch, Evaluation, Losses, SourceTraining, Update

RETRIEVAL_SCORE = "retrieval"
"""The name of the score by which a retrieval set selects."""

pretrain = partial(run_stage, PRETRAIN)
"""Pre-train an encoder on its sources; the artefact keeps the encoder, without the projection."""


def reads(config: PretrainConfig, data: Path) -> dict[str, Any]:
    """The sources, the dev set that selects or is probed, and the training rows that decide its labels."""
    tasks = load_tasks(data)
    chosen = _selecting(config, data)
    selecting = [task for name, task in tasks.items() if name == chosen]
    found = sources_of(config.sources, data)
    dev = rows_of(selecting, "dev")
    if (folder := _retrieval_folder(config, data)) is not None:
        dev |= {str(path.relative_to(folder)): hash_of_file(path) for path in retrieval_files(folder, "dev")}
    training = found["training"] | rows_of([task for task in selecting if not task.outputs], "train")
    return {"tasks": [*found["tasks"], *declared(selecting)], "training": training, "dev": dev}


def compute(models: Sequence[Weights], data: Path, config: PretrainConfig, run: OpenRun) -> None:
    """Pre-train into a run's folder."""
    task = _task_of_pairs(config, data)
    begin = StartModel.load(models[0], config, run.runtime, config.matryoshka)
    encoder = begin.encoder
    if config.encoder_dropout is not None:
        encoder.model.set_dropout(config.encoder_dropout)
    projection = build_projection(config.projection, encoder.width)
    module = nn.ModuleDict({"encoder": encoder.model, "projection": projection})
    if config.mlm_weight:
        module["mlm"] = MaskedLanguageHead.of_checkpoint(begin.folder, encoder.bert.config)
    make: Callable[..., ContrastiveSource] = ContrastiveSource
    if config.momentum is not None:
        objective = config.objective.build()
        if config.queue_size != PretrainConfig.queue_size and not objective.takes_hard_negatives:
            raise InputError(f"queue_size has no effect on {objective.name}, which takes no hard negatives")
        module["momentum"] = momentum = Momentum(encoder, projection, config.momentum, objective.predicts)
        make = partial(MomentumSource, momentum=momentum, queue=config.queue_size)
    module.to(run.runtime.device)
    if config.freeze_embeddings:
        encoder.bert.embeddings.requires_grad_(False)
    more = config.train_limit, config.partners, config.matryoshka
    sources = {
        name: load_contrastive(name, data, config, encoder, projection, *more, make=make) for name in config.sources
    }
    check_hard_negatives(config, sources.values())
    # Trainings cut texts to `max_length`; the saved model does not, and its scores are those that select.
    stored = stored_max_length(begin.folder) if heads_files(begin.folder, encoder.pooling) else None
    saved = SentenceEncoder(encoder.model, encoder.tokenizer, encoder.pooling, stored, run.runtime)
    dev = None
    if task is not None:
        examples = load_rows(task, "dev")
        if len(examples.classes) > 2:
            raise InputError(f"{examples.source}: {len(examples.classes)} classes cannot select; expected two")
        if config.select == task.name:
            warn_of_alike_label(task.name, task)
        warn_of_gaps(task, examples)
        dev = saved.tokenised(examples)
    folder = _retrieval_folder(config, data)
    retrieval = None if folder is None else read_retrieval(folder, "dev")
    problem = Pretraining(module, begin, saved, sources, dev, config, task, retrieval)
    train_run(run, begin, problem, config, config.probe_every)


def _retrieval_folder(config: PretrainConfig, data: Path) -> Path | None:
    """The folder of the retrieval set that selects; None if none does."""
    folder = files_folder(data) / (config.select or "")
    return folder if config.select and config.select not in load_tasks(data) and is_retrieval_set(folder) else None


def _selecting(config: PretrainConfig, data: Path) -> str | None:
    """Name of the task whose dev set selects or is probed: None if none is; empty if there is none of the default."""
    tasks, retrieval = load_tasks(data), _retrieval_folder(config, data)
    if (config.select == "last" or retrieval) and config.probe_held_out is None:
        return None
    if config.select not in (None, "last") and retrieval is None:
        return config.select
    return next((name for name, task in tasks.items() if isinstance(task, Cosine)), "")


def _task_of_pairs(config: PretrainConfig, data: Path) -> Task | None:
    """The task whose dev set selects or is probed, with its labels; None if none is.

    Raises InputError if there is no such set.
    """
    tasks = load_tasks(data)
    if (name := _selecting(config, data)) is None:
        return None
    remedies = ["add --select last, which keeps the last state"] if config.select != "last" else []
    remedies += ["leave out --probe-held-out"] if config.probe_held_out is not None else []
    # Undeclared classes, with no outputs yet, may be two, but are not offered.
    pairs = {name: task for name, task in tasks.items() if task.pair and task.outputs <= 1}
    dev = {name: task.files.dev or task.source("train") for name, task in pairs.items()}
    if others := [other for other, source in dev.items() if other != name and pairs[other].outputs and source.exists()]:
        remedies = [f"name another task of pairs ({', '.join(others)})", *remedies]
    needed = f"which the best state is chosen on; {' or '.join(remedies)}"
    if (task := tasks.get(name)) is None:
        looked_for = f"{name}, nor a folder {name} with a retrieval set" if name else "of the kind cosine"
        raise InputError(f"{data}: has no task {looked_for}, {needed}")
    if name not in dev:
        raise InputError(f"{data}: {name} has no pairs with numbers or two classes, {needed}")
    if not dev[name].exists():
        raise InputError(f"{dev[name]}: no such file, {needed}{other_tasks(Path(dev[name].file))}")
    return task if task.outputs else completed(task)


class HeldOut:
    """Different first sentences of the dev set, always the same, and the gradient that they would get.

    Training batches are probed as the objective sees them: projected, and after the encoder has been fitted to them.
    The sentences are held out, and embedded without the projection, as a user embeds them.

    Raises:
        InputError: the set has fewer sentences than `count`, or the objective learns from labels.
    """

    def __init__(self, dev: LabelledData, objective: Objective, count: int) -> None:
        if objective.takes_labels != "none":
            raise InputError(f"{objective.name} learns from labels; leave out --probe-held-out")
        rows = list({text: row for row, text in enumerate(dev.examples.sentences[0])}.values())
        if len(rows) < count:
            raise InputError(
                f"{dev.examples.source}: has {len(rows)} different sentences; --probe-held-out {count} needs more"
            )
        chosen = np.sort(generator(0, "probed dev sentences").permutation(rows)[:count])
        self.tokens = [dev.columns[0][row] for row in chosen]
        self.objective = objective

    def probe(self, encoder: SentenceEncoder, seed: int) -> dict[str, float]:
        """Scalars of two dropout views, by name. Each call draws the same dropout, and no other random numbers."""
        runtime = encoder.runtime
        before = generator_states(runtime.device)
        try:
            with torch.no_grad(), runtime.autocast():
                torch.manual_seed(torch_seed(seed, "dropout of held-out sentences"))
                views = encoder.embed([*self.tokens, *self.tokens])
        finally:
            restore_generators(before)
        first, second = views.float().chunk(2)
        u, v = unit(first), unit(second)
        return {
            **probe(self.objective, first, second).summary(),
            "alignment": alignment(u, v).item(),
            "uniformity": uniformity(u).item(),
        }


class Pretraining(SourceTraining):
    """Contrastive training of an encoder and a projection, as the loop's `Trainable`.

    The module has `encoder` (that of the start), `projection`, and `mlm` if there is an auxiliary masked-language-model
    loss. `saved` is the same encoder, to score and probe, with the longest sentence of the saved model. `dev` are pairs
    of `task`, to select the best state on and to probe. If there is a retrieval set, it selects.
    """

    def __init__(
        self,
        module: nn.ModuleDict,
        begin: StartModel,
        saved: SentenceEncoder,
        sources: dict[str, ContrastiveSource],
        dev: LabelledData | None,
        config: PretrainConfig,
        task: Task | None = None,
        retrieval: RetrievalData | None = None,
    ) -> None:
        super().__init__(module, begin.encoder, sources)
        self.begin = begin
        self.saved = saved
        self.dev = dev
        self.config = config
        self.task = task
        self.contrastive = sources
        self.retrieval = retrieval
        if retrieval is not None:
            self.searched = list(dict.fromkeys(retrieval.sentences))
            self.tokens = tokenise(self.searched, saved.tokenizer, saved.max_length)
            warn_of_tokens(str(config.select), [self.tokens], saved.tokenizer, saved.max_length)
        self.held_out = None
        if dev is not None and config.probe_held_out is not None:
            self.held_out = HeldOut(dev, config.objective.build(), config.probe_held_out)
        if config.mlm_weight:
            head, words = module["mlm"], begin.encoder.bert.embeddings.word
            assert isinstance(head, MaskedLanguageHead)
            for name, source in sources.items():
                # Two dropout views of a sentence have the same tokens, so one of them suffices here.
                columns = tuple({id(column): column for column in source.columns}.values())
                masked = MaskedSource(columns, begin.encoder.tokenizer, config.masking.mask_share, head, words)
                self.sources[_masked(name)] = masked
                self.weights[_masked(name)] = config.mlm_weight

    @property
    def sentences(self) -> Mapping[str, Sequence[Hashes]]:
        return {name: source.sentences for name, source in self.contrastive.items()}

    def plan(self, epoch: int) -> Sequence[Update]:
        """One source after another, each in random order."""
        updates: list[Update] = []
        for name, source in self.contrastive.items():
            size, share = self.config.batch_size, source.share
            for rows in contrastive_batches(name, len(source), epoch, size, share, self.config.seed):
                batch = Batch(name, rows)
                updates.append((batch, Batch(_masked(name), rows)) if self.config.mlm_weight else (batch,))
        return updates

    def backward(self, update: Update) -> Losses:
        """Compute the update's gradient, with gradient caching if a chunk size is set."""
        first, *masked = update
        chunk, ranks = self.config.chunk, distributed.ranks()
        if chunk is None or len(first.rows) <= chunk * ranks:
            return super().backward(update)
        losses = Losses({}, 0)
        for batch in masked:  # first, as it divides what is in the parameters
            losses = losses.plus(self._masked_in_chunks(batch, chunk * ranks))
        return self._backward_in_chunks(first, chunk).plus(losses)

    def _masked_in_chunks(self, batch: Batch, chunk: int) -> Losses:
        """The auxiliary loss is a mean over masked words, whose number is known when all parts have drawn their masks.

        So the parts' sums are added up with their gradients, and divided at the end.
        """
        sums, words = Losses({}, 0), torch.zeros((), device=self.runtime.device)
        for rows in np.split(batch.rows, range(chunk, len(batch.rows), chunk)):
            part = self.losses((Batch(batch.source, rows),))
            count = part.watched[f"{batch.source} words"]
            (count * self.total(part)).backward()
            part = part.detached()
            of_part = {name: count * value for name, value in (part.terms | part.watched).items()}
            sums, words = sums.plus(Losses(of_part, part.tokens)), words + count
        parts = words.clamp(min=1)
        torch._foreach_div_([p.grad for p in self.module.parameters() if p.grad is not None], parts)
        means = {name: value / parts for name, value in sums.terms.items()} | {f"{batch.source} words": words}
        return Losses({batch.source: means.pop(batch.source)}, sums.tokens, means)

    def _backward_in_chunks(self, batch: Batch, chunk: int) -> Losses:
        source = self.contrastive[batch.source]
        own = distributed.own(batch.rows)
        chunks = np.split(own, range(chunk, len(own), chunk))

        def encode(rows: RowNumbers) -> Tensor:
            ids = source.inputs(rows).ids
            with self.runtime.autocast():
                return source.project(self.encoder.embed(ids, recompute=self.runtime.recompute))

        loss, watched = backward_in_chunks(
            chunks, encode, lambda views: source.loss_of_views(views, batch.rows), self.runtime.device
        )
        seen = {f"{batch.source} {name}": value for name, value in watched.items()}
        return Losses({batch.source: loss}, int(source.lengths[batch.rows].sum()), seen)

    def watch(self, update: Update, step: int) -> dict[str, Tensor]:
        """Dissipation, weights and ratio of the gradient of the update's anchors, from the loss just computed.

        Of a source with labels, only those of held-out sentences.
        """
        name = update[0].source
        source = self.contrastive[name]
        found: dict[str, float] = {}
        if source.objective.takes_labels == "none":
            assert source.compared is not None, "the step has computed the loss"
            found = {f"{name} {key}": v for key, v in probe(source.objective, *source.compared).summary().items()}
        if self.held_out is not None:
            probed = self.held_out.probe(self.saved, self.config.seed)
            found |= {f"{HELD_OUT} {key}": value for key, value in probed.items()}
        device = self.runtime.device
        # The ratio is undefined if every anchor of the batch is dissipated.
        return {key: torch.tensor(v, device=device) for key, v in found.items() if math.isfinite(v)}

    def evaluate(self) -> Evaluation:
        if self.retrieval is not None:
            vectors = compute_in_batches(self.tokens.lengths, self._embed_searched, self.saved.runtime)
            table = EmbeddingTable({text: row for row, text in enumerate(self.searched)}, vectors)
            found = {name: float(values.mean()) for name, values in query_scores(self.retrieval, table).items()}
            return Evaluation({RETRIEVAL_SCORE: found}, {RETRIEVAL_SCORE: found["ndcg"]})
        if self.dev is None or self.task is None or self.config.select == "last":
            return Evaluation({}, {})
        positive = self.task.mean_the_same(self.dev.examples.gold) if isinstance(self.task, Cosine) else None
        metrics = metrics_of_embeddings(self.saved, self.dev, positive)
        return Evaluation({self.task.name: metrics}, {self.task.name: metrics["spearman"]})

    def _embed_searched(self, rows: RowNumbers) -> Tensor:
        return self.saved.embed([self.tokens[row] for row in rows])

    def metrics_of_start(self) -> dict[str, dict[str, float]]:
        """The start weights' value of the score that selects models."""
        self.module.eval()
        with torch.no_grad():
            scores = self.evaluate().scores
        measure = "spearman" if self.retrieval is None else "ndcg"
        return {name: {measure: score} for name, score in scores.items()}

    def save(self, folder: Path) -> None:
        """Save the encoder and any heads of the start, so that the tasks can be scored before and after."""
        self.saved.save(folder, keep=heads_files(self.begin.folder, self.saved.pooling))


def _masked(source: str) -> str:
    return f"{source} mlm"


def metrics_of_embeddings(
    encoder: SentenceEncoder, data: LabelledData, positive: NDArray[np.bool_] | None
) -> dict[str, float]:
    """Pearson and Spearman correlation between cosine and gold similarity, without any trained head.

    If it is known which pairs are positive, [pairs], alignment (of at least one positive pair) and uniformity (of at
    least two different sentences), too.
    """

    def embed(rows: RowNumbers) -> Tensor:
        first, second = encoder.embed(*data.sequences(rows)).chunk(2)
        cosine = nn.functional.cosine_similarity(first, second)
        return torch.cat([first, second, cosine[:, None]], 1)  # [rows, 2 * hidden + 1]

    computed = compute_in_batches(data.lengths, embed, encoder.runtime)
    metrics = correlation_metrics(computed[:, -1], data.examples.gold, unit=1)
    if positive is None:
        return metrics
    first, second = map(unit_vectors, np.split(computed[:, :-1], 2, axis=1))  # [pairs, hidden] each
    if (aligned := alignment_of_positives(first, second, positive)) is not None:
        metrics["alignment"] = round(aligned, DIGITS)
    sentences = dict(zip(chain(*data.examples.texts), [*first, *second], strict=True))
    if len(sentences) > 1:
        metrics["uniformity"] = round(uniformity_in_chunks(np.stack(list(sentences.values()))), DIGITS)
    return metrics

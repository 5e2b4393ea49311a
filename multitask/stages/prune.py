"""Pruning: an encoder's units, attention heads and feed-forward neurons, are scored, and the lowest removed.

A factor m = 1 multiplies a unit's output. The gradient of a loss with respect to m predicts, to first order, how much
removing the unit changes the loss: ΔL = −∂L/∂m.

Sources: Michel et al. 2019, arXiv 1905.10650, section 4.1; SparseCSE, arXiv 2311.03881 (the loss).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from minbert.config import BertConfig
from minbert.download_checkpoint import weights_files
from minbert.errors import InputError
from minbert.files import atomic_file, read_arrays, read_json, write_json
from minbert.masked_language_head import MaskedLanguageHead
from minbert.model import BertModel, Layer
from minbert.packing import send
from minbert.remove_heads_and_neurons import Units, masked, without_units
from multitask.base import logger
from multitask.base.random_streams import generator, torch_seed
from multitask.base.runs import Run, Weights
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.data.examples import Examples, LabelledData, RowNumbers, drawn_rows
from multitask.evaluation.text_tables import pruning_table
from multitask.models.estimates import load_split
from multitask.models.model_folder import has_heads, heads_files
from multitask.models.multitask_model import load_model
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import alignment, uniformity, unit
from multitask.stages.reads import declared, rows_of
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings_without_training import PRUNE, PruneConfig
from multitask.stages.training_run import StartModel
from multitask.tasks.declarations import load_tasks, similarity_task, task_named
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Task
from multitask.training.source import Batch, BatchLoss, Inputs, TaskSource, TrainingSource, losses_of

SCORED_ROWS = "scoring"
PRUNED_CHECKPOINT = "pruned"
ONLY_REMOVE = ("share", "what", "order", "scope", "normalize_scores")
"""Settings that decide what is removed by its scores, but not the scores."""

UnitScore = Callable[[Units], Units]
"""From factors (1: present, 0: removed) to scores."""
Scored = tuple[SentenceEncoder, TrainingSource, Examples]
"""An encoder, the source whose loss scores its units, and what it reads."""


class AlignUniformSource(TrainingSource):
    """(1 − λ)·alignment of the pairs with the same meaning + λ·uniformity of a batch's distinct sentences.

    `data` are pairs, of which those of `positive` [pairs] mean the same, and λ is `uniformity_weight`.
    """

    def __init__(self, data: LabelledData, positive: NDArray[np.bool_], uniformity_weight: float) -> None:
        self.data = data
        self.positive = positive
        self.uniformity_weight = uniformity_weight
        self.lengths = data.lengths
        numbers: dict[str, int] = {}
        self.identities = np.array([[numbers.setdefault(t, len(numbers)) for t in c] for c in data.examples.texts])

    def inputs(self, rows: RowNumbers) -> Inputs:
        """Each distinct sentence once; targets are the indices [2, pairs] of the sentences of the pairs to align."""
        ids, types = self.data.sequences(rows)
        pairs = self.identities[:, rows]  # [2, rows]
        _, first, places = np.unique(pairs, return_index=True, return_inverse=True)
        aligned = places.reshape(pairs.shape)[:, self.positive[rows]]
        return Inputs([ids[i] for i in first], [types[i] for i in first], aligned)

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        directions = unit(embeddings)
        loss = self.uniformity_weight * uniformity(directions)
        if targets.size:
            first, second = directions[send(torch.from_numpy(targets), directions.device)]
            loss = loss + (1 - self.uniformity_weight) * alignment(first, second)
        return BatchLoss(loss)


def scored_batches(rows: RowNumbers, batch_size: int, seed: int) -> list[RowNumbers]:
    """The rows in random batches of about equal size."""
    order = generator(seed, "scored rows").permutation(rows)
    return np.array_split(order, -(-len(order) // batch_size))


def sensitivity(
    encoder: SentenceEncoder, source: TrainingSource, batches: Sequence[RowNumbers], factors: Units, signed: bool
) -> Units:
    """Mean over batches of |∂L/∂m|, or of −∂L/∂m if signed: the first-order change of the loss if the unit is removed.

    Without the sign, harmful units score as high as equally helpful ones. `factors` are the m at which the gradient is
    taken: 1, or 0 for masked units. The encoder must be in eval mode on the runtime's device; scores are on the CPU.
    """
    factors = factors.map(lambda factor: send(factor, encoder.runtime.device).requires_grad_())
    totals = [torch.zeros_like(factor) for factor in factors.tensors]
    with masked(encoder.bert, factors):
        for rows in batches:
            losses = losses_of(encoder, {SCORED_ROWS: source}, (Batch(SCORED_ROWS, rows),))
            gradients = torch.autograd.grad(losses.terms[SCORED_ROWS], factors.tensors)
            for total, gradient in zip(totals, gradients, strict=True):
                total += -gradient if signed else gradient.abs()
    means = [(total / len(batches)).detach().cpu() for total in totals]
    layers = len(factors.heads)
    return Units(tuple(means[:layers]), tuple(means[layers:]))


@torch.no_grad()
def magnitude(encoder: BertModel) -> Units:
    """L2 norm of all weights and biases that are removed with the unit."""
    heads, neurons = [], []
    for layer in encoder.layers:
        assert isinstance(layer, Layer)
        attention, size = layer.attention, encoder.config.head_size
        rows = attention.query_key_value.weight.square().sum(1) + attention.query_key_value.bias.square()  # [3 * width]
        rows = rows.view(3, -1).sum(0) + attention.output.weight.square().sum(0)  # [width]
        heads.append(rows.view(-1, size).sum(1).sqrt().cpu())
        inner = layer.intermediate.weight.square().sum(1) + layer.intermediate.bias.square()  # [neurons]
        neurons.append((inner + layer.output.weight.square().sum(0)).sqrt().cpu())
    return Units(tuple(heads), tuple(neurons))


def random_scores(shape: BertConfig, seed: int) -> Units:
    """Scores of an encoder's units, drawn uniformly from 0 to 1."""
    generator = torch.Generator().manual_seed(torch_seed(seed, "random scores"))
    return Units.full(shape, 0.0).map(lambda values: torch.rand(len(values), generator=generator))


prune = partial(run_stage, PRUNE)
"""Remove the attention heads and neurons of an encoder that score lowest.

A second model, of the start's shape and vocabulary, provides the weights of the remaining units (rewinding).

The artefact keeps the smaller encoder, with the task heads and the masked-language-model head of the model that
provides its weights; scores.npz
(`head_scores`, `neuron_scores` and bool `heads_kept`, `neurons_kept`, each [layers, units of the start]; NaN and False
pad the layers in which the start already lacks units); and pruning.json (units of each layer, parameters and bytes,
before and after). Scores are always computed in fp32. Magnitude and random scores do not read the data.
"""


def reads(config: PruneConfig, data: Path) -> dict[str, Any]:
    """The training rows that scores are computed on."""
    tasks: list[Task] = []  # other scores read no data
    if config.score == "align_uniform":
        tasks = [similarity_task(data)]
    elif config.score == "task":
        tasks = [_scored_task(data, config)]
    learned = {"learned": True} if any(not task.complete and task.pair for task in tasks) else {}
    return {"tasks": declared(tasks), "training": rows_of(tasks, "train"), **learned}


def compute(models: Sequence[Weights], data: Path, config: PruneConfig, run: OpenRun) -> None:
    """Prune into a run's folder."""
    begin = StartModel.load(models[0], config, run.runtime)
    if not begin.encoder.bert.layers:
        raise InputError(f"{begin.name}: the encoder has no layers, so there is nothing to remove")
    source = begin if len(models) == 1 else _rewound(models[1], begin, config)
    score, seen = _scoring(begin, data, config, run)
    # Rewound weights were not trained on the start's data, but the start decided which of them remain.
    (source.trained_on | begin.trained_on | seen).keep(run.folder)
    kept, scores = choose_units(begin.encoder.bert.config, score, config)
    folder = run.folder / "checkpoints" / PRUNED_CHECKPOINT
    smaller = without_units(source.encoder.bert, kept)
    encoder = SentenceEncoder(smaller, source.encoder.tokenizer, source.encoder.pooling)
    head = MaskedLanguageHead(smaller.config)
    words = head.tensors(smaller.config) if head.take(source.folder) else None
    encoder.save(folder, words, heads_files(source.folder, encoder.pooling))
    _write_scores(run.folder / "scores.npz", scores, kept)
    write_json(run.folder / "pruning.json", _summary(begin, kept, smaller, folder))
    write_json(run.folder / "best.json", {"last": PRUNED_CHECKPOINT})


def _rewound(weights: Weights, begin: StartModel, config: PruneConfig) -> StartModel:
    """Load the weights to rewind to. Raises InputError if they differ from the start in shapes or tokenizer."""
    source = StartModel.load(weights, replace(config, pooling=begin.encoder.pooling), begin.encoder.runtime)

    def kind(start: StartModel) -> tuple[object, ...]:
        shapes = {name: tensor.shape for name, tensor in start.encoder.model.state_dict().items()}
        shape = start.encoder.bert.config
        return shapes, shape.model_type, shape.num_attention_heads, start.encoder.tokenizer.fingerprint()

    if kind(source) != kind(begin):
        raise InputError(
            f"{source.name}: has another shape or vocabulary than {begin.name}; rewind to an earlier state of that"
        )
    return source


def _scoring(begin: StartModel, data: Path, config: PruneConfig, run: OpenRun) -> tuple[UnitScore, TrainedOn]:
    """How units are scored, and the rows that are read for it."""
    shape = begin.encoder.bert.config
    if config.score == "random":
        return lambda factors: random_scores(shape, config.seed), TrainedOn()
    if config.score == "magnitude":
        return lambda factors: magnitude(begin.encoder.bert), TrainedOn()
    encoder, source, read = (_task_loss if config.score == "task" else _geometry)(begin, data, config)
    rows = drawn_rows(len(source), config.train_limit)
    batches = scored_batches(rows, config.batch_size, config.seed)
    seen = TrainedOn.of_rows([hash_sentences(column[row] for row in rows) for column in read.sentences])
    if (earlier := _earlier_scores(run.artefact, shape)) is not None:
        return lambda factors: earlier, seen
    return lambda factors: sensitivity(encoder, source, batches, factors, config.signed), seen


def _earlier_scores(run: Run, shape: BertConfig) -> Units | None:
    """The scores that a complete run beside this one computed from the same start and rows, e.g. for another share."""
    wanted = _inputs_of_scores(run)
    if wanted["config"]["rounds"] > 1:  # later rounds score what the earlier ones have left
        return None
    for folder in sorted(run.folder.parent.glob(f"{PRUNE.name}-*")):
        other = Run(folder)
        with suppress(InputError, OSError):  # damaged, being removed, or another user's
            if other.done and _inputs_of_scores(other) == wanted:
                other.check()
                found = _read_scores(folder / "scores.npz", shape)
                logger.info("scores: those of %s", folder)
                return found
    return None


def _inputs_of_scores(run: Run) -> dict[str, Any]:
    """What the scores of a run with one round depend on: its inputs without the model to rewind to, its settings."""
    inputs, config = (read_json(run.folder / f"{name}.json", dict) for name in ("inputs", "config"))
    return {
        "inputs": {name: value for name, value in inputs.items() if name not in ("key", "labels", "parents")},
        "start": inputs.get("parents", [])[:1],
        "torch": inputs.get("labels", {}).get("torch"),
        "config": {name: value for name, value in config.items() if name not in ONLY_REMOVE},
    }


def _geometry(begin: StartModel, data: Path, config: PruneConfig) -> Scored:
    """Alignment and uniformity of the similarity pairs."""
    task = similarity_task(data)
    examples = load_rows(task, "train")
    positive = task.mean_the_same(examples.gold)
    source = AlignUniformSource(begin.encoder.tokenised(examples), positive, config.uniformity_weight)
    if config.uniformity_weight < 1 and not positive[drawn_rows(len(source), config.train_limit)].any():
        raise InputError(
            f"{examples.source}: of the scored pairs none has a similarity in the top fifth of {task.name}'s range, "
            "to be aligned; declare a narrower range, or set uniformity_weight to 1"
        )
    return begin.encoder, source, examples


def _scored_task(data: Path, config: PruneConfig) -> Task:
    """The task of `--score task`."""
    return similarity_task(data) if config.task is None else task_named(data, config.task)


def _task_loss(begin: StartModel, data: Path, config: PruneConfig) -> Scored:
    """The fine-tuning loss with the start's own head; an encoder without heads uses the pairs' cosine."""
    declared = _scored_task(data, config)
    name = declared.name
    model = load_model(begin.folder, load_tasks(data)).on(begin.encoder.runtime)
    if name not in model.tasks:
        raise InputError(
            f"{begin.name}: no head for {name!r}, only for {', '.join(model.tasks)}; score by one of these, or "
            "start from a run of finetune"
        )
    encoder, pooling = model.encoder, begin.encoder.pooling
    if has_heads(begin.folder) and encoder.pooling != pooling:
        was = encoder.pooling
        raise InputError(f"pooling is {pooling}; expected auto or {was}, with which {begin.name} was trained")
    encoder.pooling = pooling
    encoder.max_length = config.max_length or (encoder if has_heads(begin.folder) else begin.encoder).max_length
    model.tasks[name] = replace(model.tasks[name], weight=declared.weight)  # a model does not store the rows' weights
    rows = load_split(model, data, "train", [name])[name]
    return encoder, TaskSource(model, name, rows), rows.examples


def choose_units(shape: BertConfig, score: UnitScore, config: PruneConfig) -> tuple[Units, Units]:
    """Score an encoder's units and remove the lowest or the highest, in several rounds; removed ones are masked.

    Returns:
        The units to keep (bool), and each unit's score in the round that removed it, or in the last round.
    """
    kept, scores = Units.full(shape, 1, torch.bool), Units.full(shape, 0.0)
    for number in range(1, config.rounds + 1):
        fresh = score(kept.map(Tensor.float))
        if not all(values.isfinite().all() for values in fresh.tensors):
            raise InputError("the units' scores are not finite; the start weights are damaged")
        scores = kept.map(torch.where, fresh, scores)
        ranked = scores.map(_normalized, kept) if config.normalize_scores else scores
        if config.order == "highest":
            ranked = ranked.map(torch.neg)
        share = config.share * (number / config.rounds)  # in the last round exactly the share
        pooled = config.scope == "global"
        if config.what != "neurons":
            kept = replace(kept, heads=drop_lowest(ranked.heads, kept.heads, share, pooled, spare_last=True))
        if config.what != "heads":
            kept = replace(kept, neurons=drop_lowest(ranked.neurons, kept.neurons, share, pooled, spare_last=False))
    return kept, scores


def drop_lowest(
    scores: Sequence[Tensor], kept: Sequence[Tensor], share: float, pooled: bool, spare_last: bool
) -> tuple[Tensor, ...]:
    """Drop the lowest-scoring units until the given share of all is gone in total, or no other unit may go.

    Scores and what is kept (bool), before and after, are layers x [units]. Units are ranked over all layers if
    `pooled`, otherwise within each. With `spare_last`, the highest-scoring unit of each layer stays.
    """
    if not pooled:
        layers = zip(scores, kept, strict=True)
        return tuple(drop_lowest([rank], [left], share, True, spare_last)[0] for rank, left in layers)
    values, left = torch.cat(list(scores)), torch.cat(list(kept))
    free, sizes = left.clone(), [len(layer) for layer in kept]
    if spare_last:
        for part, rank in zip(free.split(sizes), scores, strict=True):
            part[rank.masked_fill(~part, -torch.inf).argmax()] = False
    candidates = free.nonzero().flatten()
    order = candidates[values[candidates].argsort(stable=True)]
    left[order[: max(round(share * len(left)) - int((~left).sum()), 0)]] = False
    return left.split(sizes)


def _normalized(scores: Tensor, left: Tensor) -> Tensor:
    """A layer's scores divided by the norm of the remaining units' scores (Michel et al. 2019, section 4.1)."""
    norm = scores[left].norm()
    return scores / norm if norm > 0 else scores


def _read_scores(path: Path, shape: BertConfig) -> Units:
    arrays = read_arrays(path, "head_scores", "neuron_scores")
    sizes = zip(*shape.layer_sizes, strict=True)
    return Units(
        *(
            tuple(torch.from_numpy(row[:size]) for row, size in zip(rows, layer_sizes, strict=True))
            for rows, layer_sizes in zip(arrays.values(), sizes, strict=True)
        )
    )


def _write_scores(path: Path, scores: Units, kept: Units) -> None:
    def rows(layers: Sequence[Tensor], padding: float) -> NDArray[Any]:
        return pad_sequence(list(layers), batch_first=True, padding_value=padding).numpy()

    arrays: dict[str, Any] = {"head_scores": rows(scores.heads, np.nan), "neuron_scores": rows(scores.neurons, np.nan)}
    arrays |= {"heads_kept": rows(kept.heads, False), "neurons_kept": rows(kept.neurons, False)}
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _summary(begin: StartModel, kept: Units, smaller: BertModel, folder: Path) -> dict[str, Any]:
    """pruning.json: units of each layer, parameters, and bytes of the weights file, each before and after."""

    def parameters(encoder: BertModel) -> int:
        return sum(parameter.numel() for parameter in encoder.parameters())

    layers = [
        {"heads": [len(heads), int(heads.sum())], "neurons": [len(neurons), int(neurons.sum())]}
        for heads, neurons in zip(kept.heads, kept.neurons, strict=True)
    ]
    return {
        "layers": layers,
        "parameters": [parameters(begin.encoder.bert), parameters(smaller)],
        "bytes": [sum(path.stat().st_size for path in weights_files(place)) for place in (begin.folder, folder)],
    }


def summary(run: Run) -> str:
    """What the command prints of a finished run: what is left of each layer."""
    return pruning_table(read_json(run.folder / "pruning.json"))

"""What a stage hands to the training loop, and the batches, losses and evaluations that the two exchange."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.packing import send
from minbert.tokenizer import Ids
from multitask.base import distributed
from multitask.data.contamination import Hashes
from multitask.data.examples import LabelledData, RowNumbers
from multitask.models.compute_in_batches import leading, pool
from multitask.models.estimates import kept_embeddings
from multitask.models.multitask_model import MultitaskModel
from multitask.models.prediction_heads import CosineHead
from multitask.models.sentence_encoder import SentenceEncoder, merged
from multitask.objectives import unit
from multitask.tasks.scores import constant


@dataclass(frozen=True)
class Batch:
    """Rows of one of the stage's data sets."""

    source: str
    rows: RowNumbers
    share: float = 1.0  # factor of the loss; of a part of a batch below 1


Update = tuple[Batch, ...]
"""The batches that one optimizer step trains on."""


@dataclass(frozen=True)
class Losses:
    """The losses of one update."""

    terms: dict[str, Tensor]  # scalar losses by name
    tokens: int  # number of real tokens that the losses were computed from
    watched: dict[str, Tensor] = field(default_factory=dict)  # further scalars to record, by name
    # of the heads, [rows, ...] by the name of their loss, with graph; those of sources that have heads
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def detached(self) -> "Losses":
        """The same losses without their graph and without outputs."""
        return replace(self, terms={name: term.detach() for name, term in self.terms.items()}, outputs={})

    def plus(self, other: "Losses") -> "Losses":
        """Add another part's losses; for a batch that is computed in parts."""

        def added(own: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
            return own | {name: own.get(name, 0.0) + value for name, value in more.items()}

        return Losses(added(self.terms, other.terms), self.tokens + other.tokens, added(self.watched, other.watched))


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on the dev sets."""

    metrics: dict[str, Any]  # everything that was measured, for metrics.jsonl
    # higher is better. The best checkpoint of each score is kept; the first score decides early stopping.
    scores: dict[str, float]


class Trainable(ABC):
    """A module with its training plan, losses and evaluation.

    Parameters named `encoder.*` are trained with the encoder's learning rate, all others with the heads'. The first
    rank alone evaluates and saves; neither draws random numbers.
    """

    module: nn.Module

    @property
    @abstractmethod
    def sentences(self) -> Mapping[str, Sequence[Hashes]]:
        """For each source, hashes [rows] of every column of sentences, to record what is trained on.

        A source may be left out if it reads the rows of another source.
        """

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Update]:
        """The epoch's updates; a pure function of the configuration and the epoch."""

    def parts(self, update: Update) -> Sequence[Update]:
        """Parts of an update that are computed one after the other; their losses add up to its own."""
        return [update]

    @abstractmethod
    def losses(self, update: Update) -> Losses:
        """The losses of an update's batches, with graph; the same on every rank."""

    @abstractmethod
    def backward(self, update: Update) -> Losses:
        """Put the update's gradient into the parameters; return the losses, detached.

        The mean over ranks is the whole update's gradient.
        """

    def watch(self, update: Update, step: int) -> dict[str, Tensor]:
        """More scalars by name, for metrics.jsonl. Called when the gradient is in place, before the step (from 0).

        Must not change parameters, gradients or random generators. Equal arguments and state give equal values.
        """
        return {}

    def metrics_of_start(self) -> dict[str, dict[str, float]]:
        """Those metrics of an evaluation that the start weights' embeddings have, too, without any training."""
        return {}

    def fault(self) -> str:
        """After the last step, what is wrong with what the module has learned; empty if nothing is known to be."""
        return ""

    @abstractmethod
    def evaluate(self) -> Evaluation:
        """Evaluate the module as it is."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model as it is into a new folder, atomically."""


COMPARED_AT_END = 8, 4
"""Batches, and rows of each, whose embeddings are compared at the end."""


@dataclass(frozen=True)
class Inputs:
    """What a source makes of some rows."""

    ids: list[Ids]  # token sequences for the encoder
    types: list[Ids]
    targets: Any  # passed on to the source's loss


@dataclass(frozen=True)
class BatchLoss:
    """What a source makes of a batch."""

    loss: Tensor  # scalar fp32
    watched: dict[str, Tensor] = field(default_factory=dict)  # scalars, without gradient
    outputs: Tensor | None = None  # of the head, [rows, ...] fp32 of all rows of the batch; None without a head


class TrainingSource(ABC):
    """Rows that can be trained on."""

    lengths: NDArray[np.int64]  # [rows] number of tokens in all sequences of a row
    reads_tokens: ClassVar[bool] = False
    """Whether the loss reads the states of all tokens, and not only embeddings."""

    def __len__(self) -> int:
        return len(self.lengths)

    @abstractmethod
    def inputs(self, rows: RowNumbers) -> Inputs:
        """Token sequences of the rows."""

    def known(self, rows: RowNumbers, device: torch.device) -> Tensor | None:
        """Embeddings of the rows' sequences, if the encoder is not trained and they were kept."""
        return None

    def divisor(self, rows: RowNumbers) -> float:
        """What the loss of these rows divides the sum over them by. For losses that do not compare rows."""
        return float(len(rows))

    @abstractmethod
    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        """A batch's loss, the same on every rank. Called under autocast.

        `rows` are all rows of the batch. The other arguments are of this rank's rows, those of `distributed.own`: the
        states [tokens, hidden] of all sequences end to end if it `reads_tokens`, their embeddings [sequences, hidden]
        fp32, and the targets.
        """


def labels_to_tensor(labels: NDArray[np.float32], device: torch.device) -> Tensor:
    """Labels as an fp32 tensor on the device; the host does not wait for the copy."""
    tensor = torch.from_numpy(labels)
    return send(tensor.pin_memory() if device.type == "cuda" else tensor, device)


class TaskSource(TrainingSource):
    """Supervised training of one task's head on its labelled data.

    If the head compares embeddings by cosine and there are sizes, the loss is the mean of those of each embedding's
    first so many numbers, and the outputs are those of the largest size.
    """

    def __init__(self, model: MultitaskModel, task: str, data: LabelledData, sizes: tuple[int, ...] = ()) -> None:
        self.model = model
        self.task = task
        self.data = data
        self.sizes: tuple[int | None, ...] = (sizes if isinstance(model.heads[task], CosineHead) else ()) or (None,)
        self.labels, self.weights = data.examples.gold, data.examples.weights
        self.lengths = data.lengths

    def inputs(self, rows: RowNumbers) -> Inputs:
        ids, types = self.data.sequences(rows)
        return Inputs(ids, types, None)

    def known(self, rows: RowNumbers, device: torch.device) -> Tensor | None:
        return None if self.data.embeddings is None else kept_embeddings(self.data, device, rows)

    def divisor(self, rows: RowNumbers) -> float:
        weights = None if self.weights is None else self.weights[rows]
        return self.model.tasks[self.task].divisor(self.labels[rows], weights)

    def loss(self, hidden: Tensor, embeddings: Tensor, targets: Any, rows: RowNumbers) -> BatchLoss:
        parts = [self.model.head(self.task, leading(embeddings, size)) for size in self.sizes]
        outputs = [distributed.gather(part, len(rows)) for part in parts]
        return BatchLoss(torch.stack([self.loss_of(part, rows) for part in outputs]).mean(), outputs=outputs[0])

    def loss_of(self, outputs: Tensor, rows: RowNumbers) -> Tensor:
        """The loss of these rows, given the head's outputs for them."""
        labels = labels_to_tensor(self.labels[rows], outputs.device)
        weights = None if self.weights is None else labels_to_tensor(self.weights[rows], outputs.device)
        return self.model.tasks[self.task].loss(outputs, labels, weights)


def losses_of(encoder: SentenceEncoder, sources: Mapping[str, TrainingSource], update: Update) -> Losses:
    """The losses of an update's batches by the names of their sources, from one packed call of the encoder per rank."""
    own = [(sources[batch.source], distributed.own(batch.rows)) for batch in update]
    parts = [source.inputs(rows) for source, rows in own]
    runtime = encoder.runtime
    known = [kept for source, rows in own if (kept := source.known(rows, runtime.device)) is not None]
    found: dict[str, BatchLoss] = {}
    with runtime.autocast():
        tokens = embeddings = known
        if len(known) < len(own):
            ids, types = [i for part in parts for i in part.ids], [t for part in parts for t in part.types]
            sequences = [len(part.ids) for part in parts]
            if any(source.reads_tokens for source, _ in own):
                batch, windows = encoder.packed(ids, types)
                hidden = encoder.model.forward_packed(batch, runtime.recompute)
                tokens = [*hidden.split([sum(map(len, part.ids)) for part in parts])]
                embeddings = [*merged(pool(hidden, batch, encoder.pooling), batch, windows).split(sequences)]
            else:
                tokens = embeddings = [*encoder.embed(ids, types, recompute=runtime.recompute).split(sequences)]
        for item, part, states, pooled in zip(update, parts, tokens, embeddings, strict=True):
            found[item.source] = sources[item.source].loss(states, pooled, part.targets, item.rows)
    return Losses(
        terms={item.source: item.share * found[item.source].loss for item in update},
        tokens=sum(int(sources[item.source].lengths[item.rows].sum()) for item in update),
        watched={
            f"{name} {key}": value for name, batch_loss in found.items() for key, value in batch_loss.watched.items()
        },
        outputs={name: batch_loss.outputs for name, batch_loss in found.items() if batch_loss.outputs is not None},
    )


class SourceTraining(Trainable):
    """Sources that train one encoder: a `Trainable` but for the plan, the evaluation and how the model is saved.

    `module` has the encoder and whatever the sources train beside it. Every loss has weight 1, unless `weights` says
    otherwise.
    """

    def __init__(self, module: nn.Module, encoder: SentenceEncoder, sources: Mapping[str, TrainingSource]) -> None:
        self.module = module
        self.encoder = encoder
        self.sources = dict(sources)
        self.weights = dict.fromkeys(sources, 1.0)
        self.runtime = encoder.runtime

    def losses(self, update: Update) -> Losses:
        return losses_of(self.encoder, self.sources, update)

    def fault(self) -> str:
        """Whether the encoder gives different training texts the same direction."""
        texts: dict[bytes, tuple[Ids, Ids]] = {}
        batches = (batch for update in self.plan(0) for batch in update if batch.source in self.sources)
        for batch in islice(batches, COMPARED_AT_END[0]):
            found = self.sources[batch.source].inputs(batch.rows[: COMPARED_AT_END[1]])
            texts |= {pair[0].tobytes(): pair for pair in zip(found.ids, found.types, strict=True)}
        ids, types = zip(*texts.values(), strict=True)
        with self.runtime.autocast():
            units = unit(self.encoder.embed(ids, types)).cpu()
        if len(units) < 2 or not constant((units @ units.T).flatten().numpy(), unit=1):
            return ""
        return (
            f"the encoder has collapsed: its embeddings of {len(units)} different training texts have one direction, "
            "up to rounding; try a lower learning rate"
        )

    def total(self, losses: Losses) -> Tensor:
        """The weighted sum of an update's losses."""
        return torch.stack([self.weights[name] * term for name, term in losses.terms.items()]).sum()

    def backward(self, update: Update) -> Losses:
        losses = self.losses(update)
        self.total(losses).backward()
        return losses.detached()

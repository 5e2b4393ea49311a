"""What a stage hands to the training loop, and the batches, losses and evaluations that the two exchange."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from multitask.data.contamination import Hashes
from multitask.data.examples import Rows


@dataclass(frozen=True)
class Batch:
    """Rows of one of the stage's data sets."""

    source: str
    rows: Rows
    share: float = 1.0  # factor of the loss; of a part of a batch below 1


Update = tuple[Batch, ...]
"""The batches that one optimizer step trains on."""


@dataclass(frozen=True)
class Losses:
    """The losses of one update.

    Args:
        terms: scalar losses by name.
        tokens: number of real tokens that the losses were computed from.
        watched: further scalars to record, by name.
        outputs: of the heads, [rows, ...] by the name of their loss, with graph; those of sources that have heads.
    """

    terms: dict[str, Tensor]
    tokens: int
    watched: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def detached(self) -> "Losses":
        """The same losses without their graph and without outputs."""
        return replace(self, terms={name: term.detach() for name, term in self.terms.items()}, outputs={})

    def plus(self, other: "Losses", share: float) -> "Losses":
        """Add `share` times another part's losses; for a batch that is computed in parts."""

        def added(own: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
            return own | {name: own.get(name, 0.0) + share * value for name, value in more.items()}

        return Losses(added(self.terms, other.terms), self.tokens + other.tokens, added(self.watched, other.watched))


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on the dev sets.

    Args:
        metrics: everything that was measured, for metrics.jsonl.
        scores: higher is better. The best checkpoint of each score is kept; the first score decides early stopping.
    """

    metrics: dict[str, Any]
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

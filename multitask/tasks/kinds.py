"""The tasks: their files, and how a head's outputs become a loss, predictions and scores.

A new task is one entry of `TASKS`.

Example rows: sentiment "Effective but too-tepid biopic" -> 2; paraphrase ("How old is he?", "What is his age?") -> 1;
similarity ("A man is playing a guitar.", "A man plays a flute.") -> 2.4.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from multitask.data.read_task_files import Schema
from multitask.tasks.accuracy_and_correlation import classification_metrics, correlation_metrics

# Pairs with at least this gold similarity (0 to 5) count as having the same meaning: they are the positive pairs of
# alignment. SimCSE takes the pairs above it (arXiv 2104.08821, section 3).
POSITIVE = 4.0


class Kind(ABC):
    """What a head's raw outputs mean."""

    outputs: int  # width of a head's output; 1 for one number per row
    pair: bool  # whether rows are pairs of sentences
    metric: str  # name of the task's own score in `metrics`

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss, scalar. Outputs [rows, outputs], or [rows] for one number per row; labels [rows] fp32."""

    @abstractmethod
    def estimate(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Outputs as values that can be averaged over models: probabilities, or shares of a maximum. Same shape."""

    @abstractmethod
    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        """Predictions [rows] in the labels' units, from estimates or averages of estimates."""

    def predict(self, outputs: NDArray[np.float32]) -> NDArray[Any]:
        """Predictions [rows] in the labels' units."""
        return self.decide(self.estimate(outputs))

    @abstractmethod
    def metrics(self, predictions: NDArray[Any], labels: NDArray[np.float32]) -> dict[str, Any]:
        """All scores of predictions [rows] by name."""


@dataclass(frozen=True)
class Classification(Kind):
    """A sentence belongs to one of `outputs` classes: cross-entropy loss, accuracy."""

    outputs: int
    pair = False
    metric = "accuracy"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels.long())

    def estimate(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return torch.from_numpy(outputs).double().softmax(dim=1).numpy()

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        return estimates.argmax(axis=1)

    def metrics(self, predictions: NDArray[Any], labels: NDArray[np.float32]) -> dict[str, Any]:
        return classification_metrics(predictions, labels.astype(int), self.outputs)


@dataclass(frozen=True)
class PairClassification(Kind):
    """A pair is a paraphrase or not: one logit, binary cross-entropy loss, accuracy with the threshold at logit 0."""

    outputs = 1
    pair = True
    metric = "accuracy"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, labels)

    def estimate(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return torch.from_numpy(outputs).double().sigmoid().numpy()

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        return (estimates > 0.5).astype(int)

    def metrics(self, predictions: NDArray[Any], labels: NDArray[np.float32]) -> dict[str, Any]:
        return classification_metrics(predictions, labels.astype(int), classes=2)


@dataclass(frozen=True)
class PairRegression(Kind):
    """A pair's similarity from 0 to `maximum`: outputs are shares of it; squared error loss, Pearson correlation.

    Source of the loss: Reimers & Gurevych 2019 (Sentence-BERT), section 3, regression objective.
    """

    maximum: float
    outputs = 1
    pair = True
    metric = "pearson"

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.mse_loss(outputs, labels / self.maximum)

    def estimate(self, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.clip(outputs, 0, 1).astype(np.float64)

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        return estimates.astype(np.float32) * self.maximum  # fp32 like the outputs of one model

    def metrics(self, predictions: NDArray[Any], labels: NDArray[np.float32]) -> dict[str, Any]:
        return correlation_metrics(predictions, labels)


@dataclass(frozen=True)
class Task:
    """One task.

    Args:
        name: the task's name in options and tables.
        schema: files, columns and legal labels.
        kind: loss, predictions and scores.
        prediction_stem: prediction files are `{prediction_stem}-{dev,test}-output.csv`.
        prediction_header: title of the second column of these files, with the course's spelling.
    """

    name: str
    schema: Schema
    kind: Kind
    prediction_stem: str
    prediction_header: str


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "sentiment",
            Schema("ids-sst", ("sentence",), "sentiment", 0, 4, integral=True),
            Classification(5),
            "sst",
            "Predicted_Sentiment",
        ),
        Task(
            "paraphrase",
            Schema("quora", ("sentence1", "sentence2"), "is_duplicate", 0, 1, integral=True),
            PairClassification(),
            "para",
            "Predicted_Is_Paraphrase",
        ),
        Task(
            "similarity",
            Schema("sts", ("sentence1", "sentence2"), "similarity", 0, 5, integral=False),
            PairRegression(5.0),
            "sts",
            "Predicted_Similiary",
        ),
        Task(
            "reviews",
            Schema("ids-cfimdb", ("sentence",), "sentiment", 0, 1, integral=True),
            Classification(2),
            "cfimdb",
            "Predicted_Sentiment",
        ),
    )
}


def task_named(name: str) -> Task:
    """The task with this name. Raises InputError, which lists the known names, if there is none."""
    if name not in TASKS:
        raise InputError(f'unknown task "{name}"; expected one of: {", ".join(TASKS)}')
    return TASKS[name]


def labels_to_tensor(labels: NDArray[np.float32], device: torch.device) -> Tensor:
    """Labels [rows] as an fp32 tensor on the device; the host does not wait for the copy."""
    tensor = torch.from_numpy(labels)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)

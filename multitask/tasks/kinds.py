"""What a prediction head's output means: how it becomes a loss, a prediction and scores."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

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


def labels_to_tensor(labels: NDArray[np.float32], device: torch.device) -> Tensor:
    """Labels [rows] as an fp32 tensor on the device; the host does not wait for the copy."""
    tensor = torch.from_numpy(labels)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)

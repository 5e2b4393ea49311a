"""The kinds of tasks: how a head's output becomes a loss, a prediction and scores. A new kind is one class.

Example rows: classification "Effective but too-tepid biopic" -> 2; pair classification ("How old is he?", "What is his
age?") -> 1; several labels "Cheap, and it broke." -> price, quality; regression "A gem." -> 4.5; cosine ("A man is
playing a guitar.", "A man plays a flute.") -> 2.4.
"""

import math
import sys
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import AtLeastZero
from multitask.base import logger
from multitask.data.examples import Examples
from multitask.data.messages import listed, plain, quote
from multitask.data.tables import FileRow
from multitask.objectives.labelled_pairs import CoSENT
from multitask.tasks.labels import LARGEST_NUMBER, NUMBER, Labelled, class_order, flag, label_name, number, parts
from multitask.tasks.scores import (
    ORDINAL,
    best_threshold,
    classification_metrics,
    constant,
    distance_loss,
    focus,
    multilabel_metrics,
    ordinal_metrics,
    regression_metrics,
    same_number,
    weighted_mean,
)
from multitask.tasks.task import TUNED, Finite, Task

# Pairs with a similarity in the range's top fifth, 4 and more of 0 to 5, count as having the same meaning: they are the
# positive pairs of alignment. SimCSE takes the pairs above 4 (arXiv 2104.08821, section 3).
POSITIVE_FROM = 0.8
SMALL_PART = 0.25
"""A range is pointed out if all labels are within its lowest part of this size."""
MOST_LOST = 2.0**-8
"""Labels are pointed out if fp32 changes one by more than this part of their spread."""


@dataclass(frozen=True, kw_only=True)
class Classification(Labelled):
    """A sentence belongs to one of several classes: cross-entropy loss. Two classes of pairs share one logit."""

    kind: ClassVar[str] = "classification"

    metric: Literal["accuracy", "macro_f1", "matthews", "mae", "kappa"] = "accuracy"
    # whether the order of the labels means something, as of stars: predictions far from the label cost more
    ordinal: bool = False
    # factor of what the distance costs, which is added to the cross-entropy; 0: only scores differ
    ordinal_weight: AtLeastZero = 1.0
    ordinal_alpha: Annotated[float, Field(gt=0, le=4)] = 1.5  # the power of the distance

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric in ORDINAL and not self.ordinal:
            raise InputError(f"metric is {self.metric}, which needs ordinal = true")

    def learned(self, training: Examples) -> Self:
        if self.ordinal and not self.labels and not all(map(NUMBER.fullmatch, training.classes)):
            shown = listed(map(plain, training.classes[:5]))
            raise self.problem(f"the ordinal classes are no numbers ({shown}); expected labels, which say their order")
        return super().learned(training)

    def with_cross_entropy(self) -> Self:
        return replace(super().with_cross_entropy(), ordinal_weight=0.0)

    @property
    def numeric(self) -> bool:
        return self.ordinal or super().numeric

    def labels_from(self, row: FileRow, missing: Collection[str] = ()) -> str | None:
        name = label_name(row.get(self.files.label_columns[0]))
        return None if name is None else sys.intern(self._label_of(name))  # one object a class, not one a row

    def encode_labels(self, labels: list[Any]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        names = self.names or class_order(labels)
        numbers = {name: index for index, name in enumerate(names)}
        return np.array([numbers[name] for name in labels], np.float32), names

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        gold, of_class = labels.long(), None if self.class_weights is None else outputs.new_tensor(self.class_weights)
        if self.focal or (self.ordinal and self.ordinal_weight) or weights is not None:
            if of_class is not None:
                weights = of_class[gold] if weights is None else weights * of_class[gold]
            return weighted_mean(self._losses(outputs, gold), weights)
        if not self.log_odds:
            return F.cross_entropy(outputs, gold, of_class)
        if of_class is None:
            return F.binary_cross_entropy_with_logits(outputs, labels)
        weights = of_class[gold]
        return F.binary_cross_entropy_with_logits(outputs, labels, weights, reduction="sum") / weights.sum()

    def _losses(self, outputs: Tensor, gold: Tensor) -> Tensor:
        """The loss of every row, [rows], of outputs [rows, classes] or [rows] and the numbers of gold classes."""
        log_p = F.logsigmoid(torch.stack([-outputs, outputs], dim=1)) if self.log_odds else outputs.log_softmax(dim=1)
        found = log_p.gather(1, gold[:, None]).squeeze(1)
        losses = -focus(found, self.focal) * found
        if self.ordinal:
            losses = losses + self.ordinal_weight * distance_loss(log_p, gold, self.ordinal_alpha)
        return losses

    def divisor(self, labels: NDArray[np.float32], weights: NDArray[Any] | None = None) -> float:
        if self.class_weights is not None:
            of_class = np.array(self.class_weights)[labels.astype(int)]
            weights = of_class if weights is None else weights * of_class
        return super().divisor(labels, weights)

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        return (estimates > 0.5).astype(int) if self.log_odds else estimates.argmax(axis=1)

    def probabilities(self, estimates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of every class, [rows, classes]."""
        return np.stack([1 - estimates, estimates], axis=1) if self.log_odds else estimates

    def metrics(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> dict[str, Any]:
        predictions, gold = self.decide(estimates), labels.astype(int)
        found = classification_metrics(predictions, gold, len(self.labels))
        return {**found, **ordinal_metrics(predictions, gold)} if self.ordinal else found


@dataclass(frozen=True, kw_only=True)
class PairClassification(Classification):
    """A pair belongs to one of several classes."""

    kind: ClassVar[str] = "pair_classification"


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Labelled):
    """A sentence has any number of labels: binary cross-entropy of each label. `balanced` weighs a label's positives.

    The labels stand in one column (a list, or text with `label_separator` between labels), or in one column for each
    label, with 0 or 1.
    """

    kind: ClassVar[str] = "multilabel"

    metric: Literal["macro_f1", "average_precision", "accuracy"] = "macro_f1"
    label_separator: Annotated[str, Field(min_length=1)] = "|"  # between the labels of a text
    # `none` reads an empty cell as no label. None: rows with an empty cell are left out.
    empty: Literal["none"] | None = None
    # a label is predicted above this probability; chosen on the dev set, label by label, for the best F1
    thresholds: tuple[Finite, ...] = field(default=(), metadata=TUNED)

    def __post_init__(self) -> None:
        columns = self.files.label
        if not isinstance(columns, str) and not self.labels:
            object.__setattr__(self, "labels", columns)
        super().__post_init__()
        if not isinstance(columns, str) and self.names != columns:
            raise InputError("labels are named by their columns; leave out either labels or the list of columns")
        if len(self.thresholds) not in (0, len(self.labels)):
            raise InputError(f"thresholds are {list(self.thresholds)}; expected one number a label, or none")

    def labels_from(self, row: FileRow, missing: Collection[str] = ()) -> tuple[str, ...] | None:
        columns = self.files.label
        if isinstance(columns, str):
            found = parts(row.get(columns), self.label_separator)
            names = [name for name in found or () if name not in missing]
            if found is None or (found and not names):
                return () if self.empty else None
            return tuple(sorted(set(map(self._label_of, names))))  # as rows with the same labels are equal
        applies = {}
        for column in columns:
            try:
                applies[column] = flag(row.get(column))
            except ValueError as error:
                raise ValueError(f"{column} is {quote(row[column])}; {error}") from None
        blank = None in applies.values() and not self.empty
        return None if blank else tuple(column for column, value in applies.items() if value)

    def encode_labels(self, labels: list[Any]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        names = self.names or class_order({name for row in labels for name in row})
        return np.array([[name in row for name in names] for row in labels], np.float32), names

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        positives = None if self.class_weights is None else outputs.new_tensor(self.class_weights)
        if weights is None and not self.focal:
            return F.binary_cross_entropy_with_logits(outputs, labels, pos_weight=positives)
        losses = F.binary_cross_entropy_with_logits(outputs, labels, pos_weight=positives, reduction="none")
        found = F.logsigmoid((2 * labels - 1) * outputs)  # [rows, labels] log probability of what is right
        return weighted_mean((focus(found, self.focal) * losses).mean(dim=1), weights)

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        return (estimates > np.array(self.thresholds or (0.5,) * len(self.labels))).astype(np.float32)

    def metrics(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> dict[str, Any]:
        return multilabel_metrics(self.decide(estimates) > 0, estimates, labels)

    def tuned(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> Self:
        columns = zip(estimates.T, labels.T > 0.5, strict=True)
        return replace(self, thresholds=tuple(best_threshold(scores, gold) for scores, gold in columns))


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """A sentence has a number: squared error loss of its share of the range, Pearson correlation."""

    kind: ClassVar[str] = "regression"

    metric: Literal["pearson", "spearman", "rmse"] = "pearson"
    # lowest and highest label. Predictions stay within a declared one; one that is left out is learned from the
    # training rows, and predictions may leave it.
    range: tuple[Finite, Finite] | None = None
    learned_range: tuple[Finite, Finite] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, bounds in (("range", self.range), ("learned_range", self.learned_range)):
            low, high = bounds or (0.0, 1.0)
            if not -LARGEST_NUMBER <= low < high <= LARGEST_NUMBER or np.float32(low) == np.float32(high):
                raise InputError(f"{name} is {[low, high]}; expected two numbers of fp32, the lower one first")

    @property
    def numeric(self) -> bool:
        return True

    @property
    def complete(self) -> bool:
        return (self.range or self.learned_range) is not None

    @property
    def outputs(self) -> int:
        return 1

    def labels_from(self, row: FileRow, missing: Collection[str] = ()) -> float | None:
        low, high = self.range or (-math.inf, math.inf)
        value = number(row.get(self.files.label_columns[0]))
        if value is None:
            return None
        if math.isnan(value) or not low <= value <= high:
            bounds = f" from {low:g} to {high:g}" if self.range else ""
            raise ValueError(f"expected a number{bounds}")
        return value

    def encode_labels(self, labels: list[Any]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        written = np.array(labels)
        kept = written.astype(np.float32)
        lost = np.abs(kept - written)
        if lost.max() > MOST_LOST * np.ptp(written) > 0:
            first = lost.argmax()
            logger.warning(
                f"{self.name}: labels are kept in fp32, in which {written[first]:.15g} is {kept[first]:.15g}, although "
                "they differ by little; subtract one number from all of them, and from range if it is declared"
            )
        return kept, ()

    def learned(self, training: Examples) -> Self:
        low, high = float(training.gold.min()), float(training.gold.max())
        if constant(training.gold):
            alike = self.problem(f"all labels of {training.source} are {same_number(training.gold)}; nothing to learn")
            if self.range is None:
                raise alike
            logger.warning(alike)
        return self if self.range else replace(self, learned_range=(low, high))

    def hints(self, examples: Examples) -> list[str]:
        """A line if the labels are all within the lowest part of the range: on another scale."""
        (low, high), labels = self.range or (0.0, 0.0), examples.gold
        if high < 2 or labels.max() > max(1.0, low + SMALL_PART * (high - low)):
            return []
        return [
            f"{examples.source}: {self.name}: the labels are from {labels.min():g} to {labels.max():g}, but their "
            f"range from {low:g} to {high:g}; declare the range that they have in a tasks file, or multiply them"
        ]

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest label, declared or learned."""
        return self.range or self.learned_range or (0.0, 1.0)

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        low, high = self.bounds
        shares = (labels - low) / (high - low)
        return F.mse_loss(outputs, shares) if weights is None else weighted_mean((outputs - shares) ** 2, weights)

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        return F.mse_loss(first, second)

    def soft_loss(self, outputs: Tensor, estimates: Tensor, temperature: float) -> Tensor:
        return F.mse_loss(outputs, estimates)

    def estimated(self, outputs: Tensor) -> Tensor:
        return outputs.clamp(0, 1) if self.range else outputs

    def readable(self, outputs: Tensor) -> Tensor:
        low, high = self.bounds
        return low + self.estimated(outputs) * (high - low)

    def decide(self, estimates: NDArray[np.float64]) -> NDArray[Any]:
        low, high = self.bounds
        return low + estimates.astype(np.float32) * (high - low)  # fp32 like the outputs of one model

    def metrics(self, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> dict[str, Any]:
        low, high = self.bounds
        return regression_metrics(self.decide(estimates), labels, high - low)


@dataclass(frozen=True, kw_only=True)
class PairRegression(Regression):
    """A pair has a number."""

    kind: ClassVar[str] = "pair_regression"


@dataclass(frozen=True, kw_only=True)
class Cosine(Regression):
    """A pair's similarity: the cosine of its embeddings is its share of the range; squared error loss.

    Source of the loss: Reimers & Gurevych 2019 (Sentence-BERT), section 3, regression objective.
    """

    kind: ClassVar[str] = "cosine"

    range: tuple[Finite, Finite] | None = (0.0, 1.0)
    # `cosent` only learns the order of the pairs, so predictions need not be on the labels' scale
    objective: Literal["cosine", "cosent"] = "cosine"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compares_rows and isinstance(self.weight, str):
            raise InputError(f"weight is the column {self.weight}; objective cosent cannot weigh single rows")

    @property
    def compares_rows(self) -> bool:
        return self.objective == "cosent"

    def loss(self, outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        return CoSENT().of_cosines(outputs, labels) if self.compares_rows else super().loss(outputs, labels, weights)

    def mean_the_same(self, similarities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Which pairs count as having the same meaning, [pairs], by their gold similarities [pairs]."""
        low, high = self.bounds
        return similarities.astype(np.float32) >= np.float32(low + POSITIVE_FROM * (high - low))  # labels are in fp32


KINDS: dict[str, type[Task]] = {
    kind.kind: kind for kind in (Classification, PairClassification, MultiLabel, Regression, PairRegression, Cosine)
}
"""All kinds by name."""

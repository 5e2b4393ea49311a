"""What every objective shares: the call, the checks, the registry. The formulas are in the other files.

To add an objective, write one class in any file of this package. Its fields are its parameters:

    @register("name")
    class Name(Objective):
        "The formula in the symbols of `NOTATION`, then the source: paper, section."

        temperature: Annotated[float, Field(gt=0)] = 0.05
        "Temperature τ of the softmax."

        def loss(self, pairs: UnitPairs) -> Tensor: ...

If it compares anchors with `pairs.candidates` (or `pairs.with_hard(pairs.u)`) in place of `pairs.v`, it sees hard
negatives, too, and says so by `takes_hard_negatives`.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import torch
from pydantic import Field
from torch import Tensor

from multitask.base.choices_with_parameters import Registry, validated
from multitask.objectives.geometry import diagonal_mask, unit

NOTATION = """u_i, v_i: unit embeddings of the anchor and the positive of pair i, of N pairs
s_ij = u_i·v_j, sg: stop-gradient, [x]_+ = max(x, 0)"""
HARD_NEGATIVES = """optional, unit embeddings w_k. Each is one more negative of every anchor u_i: what a formula takes
over j≠i for an anchor (a maximum, minimum, softmax, sum, or mean over pairs), it also takes over all w_k, with u_i·w_k
in place of s_ij or u_i·u_j. A hard negative has no positive, and is compared with anchors only. It gets the gradient of
u_i·w_k also where sg stops that of v_j or u_j, which are pushed away as rows of their own. N counts pairs only."""
LARGEST_WEIGHT = 1e6
"""Upper limit of factors and exponents: products of two of them and a sum over a batch stay finite in fp32."""
SMALLEST_TEMPERATURE = 1e-6
"""Lower limit of temperatures: a cosine divided by it, and the gradient, stay finite in fp32."""


@dataclass(frozen=True)
class UnitPairs:
    """A checked batch in the form that the formulas use: unit vectors in fp32 or float64."""

    u: Tensor  # [pairs, dim] anchors
    v: Tensor  # [pairs, dim] positives
    hard: Tensor | None = None  # [hard_negatives, dim]
    labels: Tensor | None = None  # [pairs]
    false_negatives: Tensor | None = None  # [pairs, pairs] bool, the diagonal is False
    false_hard_negatives: Tensor | None = None  # [pairs, hard_negatives] bool

    @property
    def positive(self) -> Tensor:
        """s_ii  # [pairs]."""
        return (self.u * self.v).sum(-1)

    def with_hard(self, sentences: Tensor) -> Tensor:
        """Sentences of the pairs, then hard negatives: what an anchor is compared with  # [pairs + hard, dim]."""
        return sentences if self.hard is None else torch.cat([sentences, self.hard])

    @property
    def candidates(self) -> Tensor:
        """Positives, then hard negatives  # [pairs + hard, dim]."""
        return self.with_hard(self.v)

    @cached_property
    def excluded(self) -> Tensor:
        """True where candidate j is not a negative of anchor i: diagonal, false negatives  # [pairs, pairs + hard]."""
        diagonal = diagonal_mask(self.u)
        return self._beside_hard(diagonal if self.false_negatives is None else diagonal | self.false_negatives)

    @cached_property
    def excluded_within(self) -> Tensor:
        """`excluded` for comparisons within one view: symmetric, because (i, j) and (j, i) are the same pair."""
        among = self.excluded[:, : len(self.u)]
        return self.excluded if self.false_negatives is None else self._beside_hard(among | among.T)

    def _beside_hard(self, excluded: Tensor) -> Tensor:
        if self.hard is None:
            return excluded
        false = self.false_hard_negatives
        return torch.cat([excluded, excluded.new_zeros(len(self.u), len(self.hard)) if false is None else false], 1)


@dataclass(frozen=True)
class Objective:
    """A loss over a batch of sentence pairs. It holds parameters, has no state and does not depend on a model."""

    name: ClassVar[str]
    takes_hard_negatives: ClassVar[bool] = False
    predicts: ClassVar[bool] = False
    """Whether anchors are predictions by a further head, and positives are embeddings of a momentum encoder."""
    takes_labels: ClassVar[Literal["none", "similarity from 0 to 1", "0 or 1"]] = "none"

    @property
    def has_mutual_negatives(self) -> bool:
        """Whether one mask decides both if j is a negative of i and if i is one of j."""
        return False

    @classmethod
    def notes(cls) -> list[str]:
        """Further paragraphs of its description."""
        hard = HARD_NEGATIVES if cls.takes_hard_negatives else "none"
        return [f"Notation:\n{NOTATION}", f"Labels: {cls.takes_labels}\nHard negatives: {hard}"]

    def loss(self, pairs: UnitPairs) -> Tensor:
        """The formula: unit vectors -> scalar."""
        raise NotImplementedError

    def active(self, pairs: UnitPairs) -> Tensor | None:
        """Rows that pass the gate or hinge (bool, any shape); None if the objective has neither."""
        return None

    def full_push(self, push: Tensor) -> Tensor | None:
        """The push on an anchor whose gradient is not dissipated at all: a scalar, or [pairs] as `push`.

        The push on an anchor is the sum of its negatives' absolute coefficients in its gradient. The gradient probe
        takes dissipation relative to the full push. If it does not follow from `push`, the actual push on each anchor
        of a batch, the answer is None, and the probe asks `undissipated`.
        """
        return None

    def undissipated(self) -> "Objective | None":
        """The same loss with its gate or hinge always open; None, as by default, if no such loss is known."""
        return None

    def __call__(
        self,
        anchors: Tensor,
        positives: Tensor,
        hard_negatives: Tensor | None = None,
        labels: Tensor | None = None,
        false_negatives: Tensor | None = None,
        false_hard_negatives: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a scalar in fp32 (float64 for float64 embeddings), also under autocast.

        Args:
            anchors: [pairs, dim], raw embeddings of any floating dtype; a zero vector stays zero.
            positives: [pairs, dim].
            hard_negatives: [hard_negatives, dim]; every anchor is compared with all of them.
            labels: [pairs], for objectives that learn from labels. Their range is checked on the CPU only,
                because on a GPU the check would wait for the device.
            false_negatives: [pairs, pairs] bool, True where positive j must not count as a negative of anchor i
                because it duplicates the anchor or its positive. The diagonal is ignored. Objectives that compare
                sentences within one view leave out the pair i, j if entry (i, j) or (j, i) is True.
            false_hard_negatives: [pairs, hard_negatives] bool, the same for the hard negatives.

        Raises:
            ValueError: shapes do not fit, a needed argument is missing, or the objective cannot use an argument.
        """
        with torch.autocast(anchors.device.type, enabled=False):
            self._check_labels(labels, len(anchors))
            return self.loss(
                self._pairs(anchors, positives, hard_negatives, labels, false_negatives, false_hard_negatives)
            )

    @torch.no_grad()
    def gate_rate(
        self,
        anchors: Tensor,
        positives: Tensor,
        hard_negatives: Tensor | None = None,
        false_negatives: Tensor | None = None,
        false_hard_negatives: Tensor | None = None,
    ) -> Tensor | None:
        """Share of rows that pass the gate or hinge, 0 to 1, as a scalar on the embeddings' device.

        None for an objective without a gate or hinge. It computes the similarities again and never waits for the
        device, so it suits a log line every few steps.
        """
        with torch.autocast(anchors.device.type, enabled=False):
            active = self.active(
                self._pairs(anchors, positives, hard_negatives, None, false_negatives, false_hard_negatives)
            )
        return None if active is None else active.float().mean()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{f.name}={getattr(self, f.name)}' for f in fields(self))})"

    def _pairs(
        self,
        anchors: Tensor,
        positives: Tensor,
        hard: Tensor | None,
        labels: Tensor | None,
        false: Tensor | None,
        false_hard: Tensor | None,
    ) -> UnitPairs:
        """The batch with unit vectors. Raises ValueError if the shapes of raw embeddings and masks do not fit."""
        if anchors.ndim != 2 or anchors.shape != positives.shape or len(anchors) == 0:
            shapes = f"{list(anchors.shape)} and {list(positives.shape)}"
            raise ValueError(f"{self.name}: anchors and positives have shapes {shapes}; expected [pairs, dim] twice")
        if hard is not None and not self.takes_hard_negatives:
            able = ", ".join(name for name, kind in OBJECTIVES.items() if kind.takes_hard_negatives)
            raise ValueError(f"{self.name} cannot use hard negatives; leave them out or choose one of: {able}")
        (pairs, dim), candidates = anchors.shape, 0 if hard is None else len(hard)
        self._check_shape("hard_negatives", hard, (candidates, dim))
        self._check_shape("false_negatives", false, (pairs, pairs), torch.bool)
        self._check_shape("false_hard_negatives", false_hard, (pairs, candidates), torch.bool)
        u, hard = unit(anchors), None if hard is None else unit(hard)
        labels = None if labels is None else labels.to(u.dtype)
        return UnitPairs(
            u, unit(positives), hard, labels, None if false is None else false & ~diagonal_mask(u), false_hard
        )

    def _check_labels(self, labels: Tensor | None, pairs: int) -> None:
        if (labels is None) != (self.takes_labels == "none"):
            needed = f"needs labels, one for each pair: {self.takes_labels}" if labels is None else "takes no labels"
            raise ValueError(f"{self.name} {needed}")
        self._check_shape("labels", labels, (pairs,))
        if labels is not None and labels.device.type == "cpu":
            valid = (labels == 0) | (labels == 1) if self.takes_labels == "0 or 1" else (labels >= 0) & (labels <= 1)
            if not valid.all():
                wrong = labels[~valid][0].item()
                raise ValueError(f"{self.name}: a label is {wrong:g}; expected {self.takes_labels}")

    def _check_shape(
        self, name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> None:
        if tensor is not None and (tensor.shape != shape or tensor.dtype != (dtype or tensor.dtype)):
            found = f"{self.name}: {name} has shape {list(tensor.shape)} and {tensor.dtype}"
            raise ValueError(f"{found}; expected {list(shape)}{f' and {dtype}' if dtype else ''}")


OBJECTIVES = Registry[Objective]("objective")
"""Every objective's class by name. `register` fills it."""

_Kind = TypeVar("_Kind", bound=type[Objective])


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def register(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: `validated`, and in `OBJECTIVES` under this name."""

    def add(kind: _Kind) -> _Kind:
        made: Any = kind if "__pydantic_fields__" in vars(kind) else validated(kind)
        made.name = name
        OBJECTIVES[name] = made
        return made

    return add


def build_objective(name: str, /, **given: Any) -> Objective:
    """An objective by name, e.g. `build_objective("vicreg", dissipation=0.3, weight=0.05, ratio=1.5)`.

    Raises:
        ValueError: an unknown name or parameter (the message lists the valid ones), or a value out of range.
    """
    made: Objective = OBJECTIVES.build(name, given)
    return made

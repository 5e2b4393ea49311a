"""What every objective shares: the call, the checks, the registry. The formulas are in the other files.

To add an objective, write one class in any file of this package:

    @register("name")
    @dataclass(frozen=True)
    class Name(Objective):
        temperature: float = number(0.05, above=0)

        def loss(self, pairs: Pairs) -> Tensor: ...
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.objectives.alignment_uniformity import unit
from multitask.objectives.negatives import diagonal_mask
from multitask.objectives.parameters import checked


@dataclass(frozen=True)
class Pairs:
    """A batch as the formulas see it: unit vectors in fp32 (or float64), checked."""

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

    @cached_property
    def excluded(self) -> Tensor:
        """Where column j is no negative of row i: the diagonal and the false negatives  # [pairs, pairs] bool."""
        diagonal = diagonal_mask(self.u)
        return diagonal if self.false_negatives is None else diagonal | self.false_negatives

    @property
    def excluded_within(self) -> Tensor:
        """The same inside one view, where pairs are unordered: a false negative counts in both directions."""
        return self.excluded if self.false_negatives is None else self.excluded | self.excluded.T


@dataclass(frozen=True)
class Objective:
    """A loss over a batch of sentence pairs. Knows nothing of models; holds its parameters and no state."""

    name: ClassVar[str]
    takes_hard_negatives: ClassVar[bool] = False
    takes_labels: ClassVar[Literal["none", "similarity from 0 to 1", "0 or 1"]] = "none"

    def loss(self, pairs: Pairs) -> Tensor:
        """The formula: unit vectors -> scalar."""
        raise NotImplementedError

    def active(self, pairs: Pairs) -> Tensor | None:
        """Which rows the gate or hinge lets through (bool, any shape); None: the objective has neither."""
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
                since on a GPU the check would wait for the device.
            false_negatives: [pairs, pairs] bool, True where positive j must not count as a negative of anchor i (it is
                a duplicate of the anchor or of its positive). The diagonal is ignored. Where sentences of one
                view are compared, entry (i, j) or (j, i) is enough to leave the pair i, j out.
            false_hard_negatives: [pairs, hard_negatives] bool, the same for the hard negatives.

        Raises:
            InputError: shapes that do not fit, or an argument that this objective needs or cannot use.
        """
        self._check_labels(labels, len(anchors))
        with torch.autocast(anchors.device.type, enabled=False):
            return self.loss(
                self._pairs(anchors, positives, hard_negatives, labels, false_negatives, false_hard_negatives)
            )

    @torch.no_grad()
    def gate_rate(self, anchors: Tensor, positives: Tensor, false_negatives: Tensor | None = None) -> Tensor | None:
        """The share of rows that the gate or hinge lets through, 0 to 1, as a scalar on the embeddings' device.

        None for an objective without a gate or hinge. Computes the similarities anew and never waits for the device:
        meant for a log line every few steps.
        """
        with torch.autocast(anchors.device.type, enabled=False):
            active = self.active(self._pairs(anchors, positives, false_negatives=false_negatives))
        return None if active is None else active.float().mean()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{f.name}={getattr(self, f.name)}' for f in fields(self))})"

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for parameter in fields(self):
            value = checked(
                self.name, parameter.name, kinds[parameter.name], parameter.metadata, getattr(self, parameter.name)
            )
            object.__setattr__(self, parameter.name, value)  # the way past `frozen`, to store 1 as 1.0

    def _pairs(
        self,
        anchors: Tensor,
        positives: Tensor,
        hard_negatives: Tensor | None = None,
        labels: Tensor | None = None,
        false_negatives: Tensor | None = None,
        false_hard_negatives: Tensor | None = None,
    ) -> Pairs:
        if anchors.ndim != 2 or anchors.shape != positives.shape or len(anchors) == 0:
            shapes = f"{list(anchors.shape)} and {list(positives.shape)}"
            raise InputError(f"{self.name}: anchors and positives have shapes {shapes}; expected [pairs, dim] twice")
        if hard_negatives is not None and not self.takes_hard_negatives:
            able = ", ".join(name for name, kind in OBJECTIVES.items() if kind.takes_hard_negatives)
            raise InputError(f"{self.name} cannot use hard negatives; leave them out or choose one of: {able}")
        if hard_negatives is not None and (hard_negatives.ndim != 2 or hard_negatives.shape[1] != anchors.shape[1]):
            raise InputError(
                f"{self.name}: hard_negatives have shape {list(hard_negatives.shape)}; "
                f"expected [hard_negatives, {anchors.shape[1]}]"
            )
        candidates = 0 if hard_negatives is None else len(hard_negatives)
        self._check_mask("false_negatives", false_negatives, (len(anchors), len(anchors)))
        self._check_mask("false_hard_negatives", false_hard_negatives, (len(anchors), candidates))
        u = unit(anchors)
        return Pairs(
            u=u,
            v=unit(positives),
            hard=None if hard_negatives is None else unit(hard_negatives),
            labels=None if labels is None else labels.to(u.dtype),
            false_negatives=None if false_negatives is None else false_negatives & ~diagonal_mask(u),
            false_hard_negatives=false_hard_negatives,
        )

    def _check_labels(self, labels: Tensor | None, pairs: int) -> None:
        if labels is None and self.takes_labels == "none":
            return
        if labels is None:
            raise InputError(f"{self.name} needs labels, one for each pair: {self.takes_labels}")
        if self.takes_labels == "none":
            able = ", ".join(name for name, kind in OBJECTIVES.items() if kind.takes_labels != "none")
            raise InputError(f"{self.name} takes no labels; leave them out or choose one of: {able}")
        if labels.shape != (pairs,):
            raise InputError(f"{self.name}: labels have shape {list(labels.shape)}; expected [{pairs}]")
        if labels.device.type == "cpu":
            valid = (labels == 0) | (labels == 1) if self.takes_labels == "0 or 1" else (labels >= 0) & (labels <= 1)
            if not valid.all():
                wrong = labels[~valid][0].item()
                raise InputError(f"{self.name}: a label is {wrong:g}; expected {self.takes_labels}")

    def _check_mask(self, name: str, mask: Tensor | None, shape: tuple[int, int]) -> None:
        if mask is not None and (mask.shape != shape or mask.dtype != torch.bool):
            raise InputError(
                f"{self.name}: {name} has shape {list(mask.shape)} and {mask.dtype}; expected {list(shape)}, torch.bool"
            )


OBJECTIVES: dict[str, type[Objective]] = {}
"""Every objective by name; `register` fills it."""

_Kind = TypeVar("_Kind", bound=type[Objective])


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: make an objective known to `build_objective` under this name."""

    def add(kind: _Kind) -> _Kind:
        kind.name = name
        OBJECTIVES[name] = kind
        return kind

    return add


def build_objective(name: str, /, **parameters: Any) -> Objective:
    """An objective by name, e.g. `build_objective("vicreg", dissipation=0.3, weight=0.05, ratio=1.5)`.

    Raises:
        InputError: an unknown name or parameter (the message lists the valid ones), or a value out of range.
    """
    if name not in OBJECTIVES:
        raise InputError(f'unknown objective "{name}"; expected one of: {", ".join(sorted(OBJECTIVES))}')
    kind = OBJECTIVES[name]
    valid = [f.name for f in fields(kind)]
    for parameter in parameters:
        if parameter not in valid:
            raise InputError(f'{name} has no parameter "{parameter}"; it takes: {", ".join(valid)}')
    return kind(**parameters)

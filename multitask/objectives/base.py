"""What every objective shares: the call, the checks, the registry. The formulas are in the other files.

To add an objective, write one class in any file of this package. Its fields are its parameters:

    @register("name")
    @settings
    class Name(Objective):
        "The formula in the symbols of `NOTATION`, then the source: paper, section."

        temperature: Annotated[float, Field(gt=0)] = 0.05
        "Temperature τ of the softmax."

        def loss(self, pairs: Pairs) -> Tensor: ...
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import help_texts, settings
from multitask.objectives.alignment_uniformity import unit
from multitask.objectives.negatives import diagonal_mask
from multitask.objectives.parameters import expected, parameters, text_of

NOTATION = """u_i, v_i: unit embeddings of the anchor and the positive of pair i, of N pairs
s_ij = u_i·v_j, sg: stop-gradient, [x]_+ = max(x, 0)"""


@dataclass(frozen=True)
class Pairs:
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

    @cached_property
    def excluded(self) -> Tensor:
        """True where column j is not a negative of row i: diagonal and false negatives  # [pairs, pairs] bool."""
        diagonal = diagonal_mask(self.u)
        return diagonal if self.false_negatives is None else diagonal | self.false_negatives

    @property
    def excluded_within(self) -> Tensor:
        """`excluded` for comparisons within one view: symmetric, because (i, j) and (j, i) are the same pair."""
        return self.excluded if self.false_negatives is None else self.excluded | self.excluded.T


@settings
class Objective:
    """A loss over a batch of sentence pairs. It holds parameters, has no state and does not depend on a model."""

    name: ClassVar[str]
    takes_hard_negatives: ClassVar[bool] = False
    takes_labels: ClassVar[Literal["none", "similarity from 0 to 1", "0 or 1"]] = "none"

    def loss(self, pairs: Pairs) -> Tensor:
        """The formula: unit vectors -> scalar."""
        raise NotImplementedError

    def active(self, pairs: Pairs) -> Tensor | None:
        """Rows that pass the gate or hinge (bool, any shape); None if the objective has neither."""
        return None

    def full_push(self, push: Tensor) -> Tensor | None:
        """The push on an anchor whose gradient is not dissipated at all, as a number or as a part of the actual push.

        The push on an anchor is the sum of its negatives' absolute coefficients in its gradient. The gradient probe
        takes dissipation relative to the full push. It asks `undissipated` if the answer is None, as it is by default.

        Args:
            push: the push on each anchor of a batch, [pairs].

        Returns:
            A scalar, if all anchors have the same full push, or [pairs]; None if it does not follow from `push`.
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
            InputError: shapes do not fit, a needed argument is missing, or the objective cannot use an argument.
        """
        self._check_labels(labels, len(anchors))
        with torch.autocast(anchors.device.type, enabled=False):
            return self.loss(
                self._pairs(anchors, positives, hard_negatives, labels, false_negatives, false_hard_negatives)
            )

    @torch.no_grad()
    def gate_rate(self, anchors: Tensor, positives: Tensor, false_negatives: Tensor | None = None) -> Tensor | None:
        """Share of rows that pass the gate or hinge, 0 to 1, as a scalar on the embeddings' device.

        None for an objective without a gate or hinge. It computes the similarities again and never waits for the
        device, so it suits a log line every few steps.
        """
        with torch.autocast(anchors.device.type, enabled=False):
            active = self.active(self._pairs(anchors, positives, false_negatives=false_negatives))
        return None if active is None else active.float().mean()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{f.name}={getattr(self, f.name)}' for f in fields(self))})"

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
"""Every objective's class by name. `register` fills it."""

_Kind = TypeVar("_Kind", bound=type[Objective])


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator that adds an objective to `OBJECTIVES` under this name."""

    def add(kind: _Kind) -> _Kind:
        kind.name = name
        OBJECTIVES[name] = kind
        return kind

    return add


def build_objective(name: str, /, **given: Any) -> Objective:
    """An objective by name, e.g. `build_objective("vicreg", dissipation=0.3, weight=0.05, ratio=1.5)`.

    Raises:
        InputError: an unknown name or parameter (the message lists the valid ones), or a value out of range.
    """
    kind = _objective_class(name)
    declared = parameters(kind)
    for parameter in given:
        if parameter not in declared:
            valid = "; ".join(f"{name}: {expected(field)}" for name, field in declared.items())
            raise InputError(f'{name} has no parameter "{parameter}"; it takes {valid or "none"}')
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def describe(name: str) -> str:
    """An objective's formula, source, notation and parameters with range, default and help, as plain text.

    Raises:
        InputError: an unknown name; the message lists the valid ones.
    """
    kind = _objective_class(name)
    bases = kind.__mro__[1 : kind.__mro__.index(Objective)]
    inherited = [f"{base.__name__} (base class):\n{inspect.cleandoc(base.__doc__)}" for base in bases if base.__doc__]
    inputs = [f"Labels: {kind.takes_labels}", f"Hard negatives: {'optional' if kind.takes_hard_negatives else 'none'}"]
    lines = ["Parameters:" if parameters(kind) else "Parameters: none"]
    texts = help_texts(kind)
    for parameter, field in parameters(kind).items():
        default = text_of(field.default)
        lines += [f"  {parameter}: {expected(field)}; default {default}", f"      {texts.get(parameter, '')}"]
    paragraphs = [name, inspect.cleandoc(kind.__doc__ or ""), *inherited, f"Notation:\n{NOTATION}"]
    return "\n\n".join([*paragraphs, "\n".join(inputs), "\n".join(lines)])


def _objective_class(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise InputError(f'unknown objective "{name}"; expected one of: {", ".join(sorted(OBJECTIVES))}')
    return OBJECTIVES[name]

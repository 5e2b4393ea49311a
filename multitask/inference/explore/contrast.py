"""What a contrastive objective does to a handful of sentences: similarities, the gradient's components, and a step."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from minbert.errors import InputError
from minbert.settings import help_texts
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.evaluation.probe_encoder import training_mode
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import OBJECTIVES, Objective, describe, unit
from multitask.objectives.gradient_paradigm import GradientParadigm
from multitask.objectives.mixed_components import Mixed
from multitask.objectives.noncontrastive import GradientForm
from multitask.objectives.parameters import bounds, choices, optional, parameters

MOST_SENTENCES = 12
ONLY_GRADIENTS = (GradientParadigm, GradientForm, Mixed)
"""Objectives whose values have no meaning."""
WIDTH = 100
"""A slider without an upper bound reaches so many times its default, and to the default divided by it."""


@dataclass(frozen=True)
class Contrast:
    """What an objective does to a batch.

    Args:
        similarity: cosines of anchors (rows) with positives (columns), [pairs, pairs].
        similarity_after: the same after a step.
        losses: before and after the step; None if only the objective's gradient has a meaning.
        components: of the gradient before the step.
    """

    similarity: Tensor
    similarity_after: Tensor
    losses: tuple[float, float] | None
    components: GradientComponents


def dropout_views(
    encoder: SentenceEncoder, sentences: Sequence[str], dropout: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Embeddings of sentences under two dropout masks, as SimCSE's anchors and positives: [sentences, hidden] twice.

    Other threads may use the encoder meanwhile, because a copy that shares its weights is switched to training.

    Args:
        encoder: the model.
        sentences: to embed.
        dropout: probability of each dropout layer, 0 to 1.
        seed: of the masks.
    """
    weights = chain(encoder.model.parameters(), encoder.model.buffers())
    shared = copy.deepcopy(encoder.model, {id(weight): weight for weight in weights})
    shared.set_dropout(dropout)
    viewer = SentenceEncoder(shared, encoder.tokenizer, encoder.pooling, encoder.runtime, encoder.max_length)
    with training_mode(viewer, dropout=True, seed=seed):
        first, second = (torch.from_numpy(viewer.encode(sentences)) for _ in range(2))
    return first, second


def contrast(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> Contrast:
    """What an objective does to a batch, and what a step of gradient descent changes.

    Args:
        objective: without labels.
        anchors: [pairs, dim], raw embeddings.
        positives: [pairs, dim].
        length: of the step, see `step`.
    """
    moved = step(objective, anchors, positives, length)
    before = objective(anchors.double(), positives.double()).item()
    return Contrast(
        similarity=unit(anchors.double()) @ unit(positives.double()).T,
        similarity_after=moved[0] @ moved[1].T,
        losses=None if isinstance(objective, ONLY_GRADIENTS) else (before, objective(*moved).item()),
        components=probe(objective, anchors, positives),
    )


def step(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """Unit embeddings after a step of gradient descent on the embeddings themselves (not on the encoder's weights).

    Args:
        objective: without labels.
        anchors: [pairs, dim], raw embeddings.
        positives: [pairs, dim].
        length: how far the embedding with the largest gradient moves before it is scaled back to length 1. The others
            move in proportion to their gradients, so that steps of different objectives can be compared.

    Returns:
        Anchors and positives, float64; the same as before if there is no gradient.
    """
    views = [unit(view.detach().double()).requires_grad_() for view in (anchors, positives)]
    with torch.enable_grad():
        value = objective(*views) + 0 * (views[0].sum() + views[1].sum())  # without an open gate it may be constant
        gradients = torch.autograd.grad(value, views)
    largest = max(float(gradient.norm(dim=-1).max()) for gradient in gradients)
    factor = length / largest if largest > 0 else 0.0
    first, second = (unit(view.detach() - factor * gradient) for view, gradient in zip(views, gradients, strict=True))
    return first, second


def different_sentences(sentences: Sequence[str]) -> tuple[str, ...]:
    """The sentences that are not blank, each once: a repeated one would be a false negative.

    Raises:
        InputError: fewer than two, or more than the page shows.
    """
    found = tuple(dict.fromkeys(text.strip() for text in sentences if text.strip()))
    if not 2 <= len(found) <= MOST_SENTENCES:
        raise InputError(f"{len(found)} different sentences; expected 2 to {MOST_SENTENCES}, one a line")
    return found


@dataclass(frozen=True)
class Control:
    """How the page asks for a parameter: a list of choices, or a slider.

    Args:
        name: of the parameter.
        help: what it means.
        default: its default; None: off.
        choices: the texts that it takes; empty for a number.
        low: left end of a slider.
        high: right end of a slider.
        logarithmic: whether equal ways on the slider are equal factors.
        start: where a slider stands when a parameter that is off by default is switched on.
        optional: whether it can be off.
    """

    name: str
    help: str
    default: float | str | None
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False
    start: float = 0.0
    optional: bool = False


@dataclass(frozen=True)
class ObjectiveForm:
    """An objective as the page shows it: its name, its description, and a control for each parameter."""

    name: str
    description: str
    controls: tuple[Control, ...]


def objective_forms() -> list[ObjectiveForm]:
    """The objectives whose gradient the probe can decompose: those without labels."""
    return [
        ObjectiveForm(name, describe(name), tuple(controls(kind)))
        for name, kind in OBJECTIVES.items()
        if kind.takes_labels == "none"
    ]


def controls(kind: type[Objective]) -> Iterator[Control]:
    """The controls of an objective's parameters, but for the weight of hard negatives, which the page has not."""
    texts = help_texts(kind)
    for name, parameter in parameters(kind).items():
        default, limits = parameter.default, bounds(parameter)
        high = limits.get("le", math.inf)
        found = Control(name, texts[name], default, choices(parameter), optional=optional(parameter))
        if found.choices:
            yield found
        elif "gt" in limits:
            start = default or 0.05
            high = min(high, start * WIDTH)
            yield replace(found, low=start / WIDTH, high=high, logarithmic=True, start=start)
        elif "ge" in limits:
            low = limits["ge"]
            start = low + 0.3 if default is None else default
            yield replace(found, low=low, high=high if high < math.inf else max(4 * start, low + 4), start=start)

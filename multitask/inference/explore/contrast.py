"""What a contrastive objective does to a handful of sentences: similarities, the gradient's components, and a step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.evaluation.gradient_probe import GradientComponents, probe
from multitask.evaluation.probe_encoder import training_mode
from multitask.inference.explore.explain import with_shared_weights
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import OBJECTIVES, Objective, unit
from multitask.objectives.gradient_paradigm import GradientParadigm
from multitask.objectives.mixed_components import Mixed
from multitask.objectives.noncontrastive import GradientForm
from multitask.objectives.parameters import bounds, choices, help_texts, optional, parameters, text_of
from multitask.training.objective_config import ObjectiveConfig

MOST_SENTENCES = 12
ONLY_GRADIENTS = (GradientParadigm, GradientForm, Mixed)
"""Objectives whose values have no meaning."""


def dropout_views(
    encoder: SentenceEncoder, sentences: Sequence[str], dropout: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Embeddings of sentences under two dropout masks, as SimCSE's anchors and positives: [sentences, hidden] twice.

    `dropout` is the probability of each dropout layer. Other threads may use the encoder meanwhile.
    """
    own = with_shared_weights(encoder.model)
    own.set_dropout(dropout)
    viewer = SentenceEncoder(own, encoder.tokenizer, encoder.pooling, encoder.runtime, encoder.max_length)
    with training_mode(viewer, dropout=True, seed=seed):
        first, second = (torch.from_numpy(viewer.encode(sentences)) for _ in range(2))
    return first, second


class Contrast(NamedTuple):
    """What an objective does to a batch: cosines of anchors (rows) with positives (columns) before and after a step."""

    before: Tensor  # [pairs, pairs]
    after: Tensor
    losses: tuple[float, float] | None  # before and after; None if only the objective's gradient has a meaning
    components: GradientComponents  # of the gradient before the step


def contrast(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> Contrast:
    """What an objective without labels does to raw embeddings, [pairs, dim] each; `length` of the step as in `step`."""
    views = unit(anchors.double()), unit(positives.double())
    moved = step(objective, anchors, positives, length)
    losses = None if isinstance(objective, ONLY_GRADIENTS) else (objective(*views).item(), objective(*moved).item())
    return Contrast(views[0] @ views[1].T, moved[0] @ moved[1].T, losses, probe(objective, anchors, positives))


def step(objective: Objective, anchors: Tensor, positives: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """Unit embeddings after a step of gradient descent on the embeddings themselves (not on the encoder's weights).

    The raw embeddings, [pairs, dim] each, stay as they are if there is no gradient. The one with the largest gradient
    moves by `length` before it is scaled back to length 1. The others move in proportion to their gradients, so that
    steps of different objectives can be compared.
    """
    views = [unit(view.detach().double()).requires_grad_() for view in (anchors, positives)]
    with torch.enable_grad():
        value = objective(*views) + 0 * (views[0].sum() + views[1].sum())  # without an open gate it may be constant
        gradients = torch.autograd.grad(value, views)
    largest = max(float(gradient.norm(dim=-1).max()) for gradient in gradients)
    factor = length / largest if largest > 0 else 0.0
    first, second = (unit(view.detach() - factor * gradient) for view, gradient in zip(views, gradients, strict=True))
    return first, second


def fields_of(kind: type[Objective]) -> list[dict[str, Any]]:
    """The parameters as the page asks for them: choices, or a number with its bounds and a step for the arrow keys.

    The weight of hard negatives, which the page does not have, is none of them: it has no lower bound.
    """
    texts, found = help_texts(kind), []
    for name, parameter in parameters(kind).items():
        limits = bounds(parameter)
        low, default = limits.get("gt", limits.get("ge")), parameter.default
        if low is not None or choices(parameter):
            size = default if isinstance(default, float) and default > 0 else 0.1
            step = 10.0 ** math.floor(math.log10(size))
            number = {"low": low, "high": limits.get("le"), "step": step, "optional": optional(parameter)}
            start = "" if default is None else text_of(default)
            found.append({"name": name, "help": texts[name], "default": start, "choices": choices(parameter), **number})
    return found


def without_labels() -> dict[str, type[Objective]]:
    """The objectives whose gradient the probe can decompose."""
    return {name: kind for name, kind in OBJECTIVES.items() if kind.takes_labels == "none"}


def objective_of(name: str, texts: Mapping[str, str]) -> Objective:
    """An objective without labels, from texts; a blank one switches a parameter off. Raises InputError."""
    given = ",".join(f"{key}={text.strip() or 'none'}" for key, text in texts.items())
    objective = ObjectiveConfig.parse(f"{name}:{given}" if given else name).build()
    if objective.takes_labels != "none":
        raise InputError(f"{name} learns from labels; choose one of: {', '.join(without_labels())}")
    return objective

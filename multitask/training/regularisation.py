"""Penalties on the outputs of supervised batches: SMART (outputs hardly change when the word embeddings change a
little) and R-Drop (two passes with different dropout give similar outputs). Both are off by default.

Sources:
    Jiang et al. 2019, "SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models through
    Principled Regularized Optimization", arXiv 1911.03437, section 3.1 and algorithm 1. The paper's second part,
    Bregman proximal point optimisation, is not here.
    Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", arXiv 2106.14448, algorithm 1.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from multitask.base.device import generator_states, restore_generators
from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.task import Task
from multitask.training.settings import RegularisationConfig
from multitask.training.source import Losses

Compute = Callable[[], Losses]
"""Computes the losses of an update and the heads' outputs, with graph. Every call draws new dropout."""

Regulariser = Callable[[Compute], Losses]
"""Calls a `Compute`, once or more often, and adds a penalty to the losses of an update. `watched` gets the penalty of
each task, before it is weighted. Every call draws as many random numbers."""

NOISE = 1e-5
"""Standard deviation of the perturbation from which SMART's ascent starts; σ of the paper."""


def build_regularisers(config: RegularisationConfig, model: MultitaskModel, device: torch.device) -> list[Regulariser]:
    """The regularisers that are switched on; each is applied to the losses that the ones before it give."""
    found: list[Regulariser] = []
    if config.smart_weight:
        words = model.encoder.bert.embeddings.word
        found.append(Smart(config.smart_weight, config.smart_radius, words, model.tasks, device))
    if config.r_drop_weight:
        found.append(RDrop(config.r_drop_weight, model.tasks))
    return found


@dataclass(frozen=True)
class Smart:
    """L + λ · max_{‖δ‖_∞ ≤ ε} ℓ(f(x + δ), f(x)), where x are the word embeddings and ℓ is `Task.divergence`.

    The maximum is approximated by one step of gradient ascent from a random δ (see `ascended`). All passes have the
    same dropout, so that they differ by δ alone. The paper's ε is 1e-5. The authors' code
    (https://github.com/namisan/mt-dnn) takes a step of 1e-3, as the option does by default, and does not project it.
    """

    weight: float  # λ
    radius: float  # ε
    words: nn.Module  # maps token ids to word embeddings
    tasks: Mapping[str, Task]
    device: torch.device  # where dropout is drawn

    def __call__(self, compute: Compute) -> Losses:
        before = generator_states(self.device)
        embedded: list[Tensor] = []
        with self._words_pass_through(embedded.append):
            clean = compute()
        start = NOISE * torch.randn_like(embedded[0])  # [tokens, hidden]
        after = generator_states(self.device)

        def apart(perturbation: Tensor, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            restore_generators(before)
            with self._words_pass_through(lambda words: words + perturbation):
                return divergences(self.tasks, compute().outputs, outputs)

        fixed = {name: outputs.detach() for name, outputs in clean.outputs.items()}
        found = apart(start.requires_grad_(), fixed)
        (gradient,) = torch.autograd.grad(torch.stack([*found.values()]).sum(), start)
        penalties = apart(ascended(start.detach(), gradient, self.radius), clean.outputs)
        restore_generators(after)
        watched = {f"{name} smart": penalty.detach() for name, penalty in penalties.items()}
        return replace(
            clean,
            terms={name: term + self.weight * penalties[name] for name, term in clean.terms.items()},
            watched={**clean.watched, **watched},
        )

    @contextmanager
    def _words_pass_through(self, function: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """Apply a function to all word embeddings; where it returns None, they stay as they are."""
        hook = self.words.register_forward_hook(lambda module, inputs, words: function(words))
        try:
            yield
        finally:
            hook.remove()


def ascended(start: Tensor, gradient: Tensor, radius: float) -> Tensor:
    """A step from a perturbation along a gradient, projected onto the ball ‖δ‖_∞ ≤ radius.

    The step's largest component is the radius for every token of [tokens, hidden], as in the authors' code. The paper
    normalises the step of a whole example. A token without gradient only gets projected.
    """
    largest = gradient.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    return (start + radius * gradient / largest).clamp(-radius, radius)


@dataclass(frozen=True)
class RDrop:
    """½ (L₁ + L₂) + α · ½ [KL(P₁‖P₂) + KL(P₂‖P₁)], where L and P are the loss and the output of each pass.

    The paper adds up the two losses; their mean, as in the authors' code (https://github.com/dropreg/R-Drop), has the
    scale of one pass. Outputs of regressions differ by ½ of their mean squared difference. α is `weight`.
    """

    weight: float
    tasks: Mapping[str, Task]

    def __call__(self, compute: Compute) -> Losses:
        first, second = compute(), compute()
        apart = {name: value / 2 for name, value in divergences(self.tasks, first.outputs, second.outputs).items()}
        watched = {f"{name} r_drop": value.detach() for name, value in apart.items()}
        return replace(
            first,
            terms={name: mean + self.weight * apart[name] for name, mean in _means(first.terms, second.terms).items()},
            watched={**_means(first.watched, second.watched), **watched},
        )


def _means(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: (value + second[name]) / 2 for name, value in first.items()}


def divergences(
    tasks: Mapping[str, Task], first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """How far apart two outputs of each task are, scalars."""
    return {name: tasks[name].divergence(outputs, second[name]) for name, outputs in first.items()}

"""SMART: the outputs should hardly change when the word embeddings change a little.

Source: Jiang et al. 2020, "SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models through
Principled Regularized Optimization", arXiv 1911.03437, section 3.1 and algorithm 1. The paper's second part, Bregman
proximal point optimisation, is not here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from multitask.runtime.device import generator_states, restore_generators
from multitask.tasks.task import Task
from multitask.training.regularisation.base import Compute, divergences
from multitask.training.trainable import Losses

NOISE = 1e-5
"""Standard deviation of the perturbation from which the ascent starts; σ of the paper."""


@dataclass(frozen=True)
class Smart:
    """L + λ · max_{‖δ‖_∞ ≤ ε} ℓ(f(x + δ), f(x)), where x are the word embeddings and ℓ is `Task.divergence`.

    The maximum is approximated by one step of gradient ascent from a random δ (see `ascended`). All passes have the
    same dropout, so that they differ by δ alone.

    Args:
        weight: λ.
        radius: ε. The paper has 1e-5. The authors' code (https://github.com/namisan/mt-dnn) takes a step of 1e-3 and
            does not project it onto that ball; the default of the option is this step.
        words: maps token ids to word embeddings.
        tasks: the trained tasks by name.
        device: where dropout is drawn.
    """

    weight: float
    radius: float
    words: nn.Module
    tasks: Mapping[str, Task]
    device: torch.device

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

    The step's largest component is the radius for every token, as in the authors' code. The paper normalises the step
    of a whole example.

    Args:
        start: [tokens, hidden].
        gradient: of what is to grow, likewise. A token without gradient only gets projected.
        radius: of the ball.
    """
    largest = gradient.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    return (start + radius * gradient / largest).clamp(-radius, radius)

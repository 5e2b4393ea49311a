"""A moving average of the weights along the training.

Source: Polyak & Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; with weights that decay
exponentially as in Tarvainen & Valpola 2017, "Mean teachers are better role models", arXiv 1703.01780; and without a
bias towards the start, as in Adam (Kingma & Ba 2015, arXiv 1412.6980, section 3).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """Σ_t d^(T−t) w_t / Σ_t d^(T−t), where w_t are the weights after step t = 1..T. The start weights do not count.

    Args:
        parameters: the trained ones.
        decay: d, at least 0 and below 1.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.averages = [torch.zeros_like(parameter) for parameter in parameters]

    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 1."""
        share = (1 - self.decay) / (1 - self.decay**step)
        torch._foreach_lerp_(self.averages, [parameter.detach() for parameter in self.parameters], share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context the parameters are the averages; afterwards they are what they were, to the bit."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            parameter.data, average.data = average.data, parameter.data

    def load(self, averages: Sequence[Tensor]) -> None:
        """Continue from saved averages."""
        for own, saved in zip(self.averages, averages, strict=True):
            own.copy_(saved)

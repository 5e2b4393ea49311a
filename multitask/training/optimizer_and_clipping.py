"""The optimizer: AdamW, its learning rates, the clipping of the gradient and the average of the weights."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from multitask.training.config import OptimizerConfig
from multitask.training.regularisation.layer_decay import layer_rates
from multitask.training.regularisation.moving_average import MovingAverage


class Optimizer:
    """AdamW with a learning-rate schedule, gradient clipping and, if the configuration asks for it, averaged weights.

    Args:
        module: its parameters that require a gradient are trained.
        config: learning rates, schedule, weight decay, clipping and average.
        total_steps: length of the training, for the schedule.
    """

    def __init__(self, module: nn.Module, config: OptimizerConfig, total_steps: int) -> None:
        self.config = config
        self.total_steps = total_steps
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.adamw = build_adamw(module, config)
        self.peak_rates = [group["lr"] for group in self.adamw.param_groups]
        self.average = None if config.ema_decay is None else MovingAverage(self.parameters, config.ema_decay)

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients that the last backward pass left in the parameters."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def clip(self) -> Tensor:
        """Scale the gradient down to the largest norm that the configuration allows; returns its norm before that."""
        return clip_grad_norm_(self.parameters, math.inf if self.config.clip is None else self.config.clip)

    def step(self, number: int) -> None:
        """Take step `number`, from 0, with its learning rate; then clear the gradient."""
        factor = learning_rate_factor(number, self.total_steps, self.config)
        for group, peak in zip(self.adamw.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak * factor
        self.adamw.step()
        self.adamw.zero_grad()
        if self.average:
            self.average.update(number + 1)

    def averaged(self) -> AbstractContextManager[None]:
        """Within this context the trained weights are their average, if there is one."""
        return self.average.in_place() if self.average else nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, as torch saves it."""
        return self.adamw.state_dict() | ({"average": self.average.averages} if self.average else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.adamw.load_state_dict({name: state[name] for name in ("state", "param_groups")})
        if self.average:
            self.average.load(state["average"])


def build_adamw(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Fused AdamW. Heads and layers have learning rates of their own; vectors (biases, norms) have no weight decay."""
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    shares = layer_rates(trained, config.layer_decay)
    head_rate = config.learning_rate if config.head_learning_rate is None else config.head_learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        rate = shares[name] * (config.learning_rate if name.startswith("encoder.") else head_rate)
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in groups.items()],
        fused=True,
    )


def learning_rate_factor(step: int, total: int, config: OptimizerConfig) -> float:
    """Share of the peak learning rate at a step (from 0): linear warm-up, then constant or linear to zero."""
    warmup = round(config.warmup * total)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    return (total - step) / max(total - warmup, 1)

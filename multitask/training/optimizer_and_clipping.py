"""The optimizer: AdamW, its learning-rate schedule and the clipping of the gradient."""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from multitask.training.config import OptimizerConfig


class Optimizer:
    """AdamW with a learning-rate schedule and gradient clipping.

    Args:
        module: its parameters that require a gradient are trained.
        config: learning rates, schedule, weight decay and clipping.
        total_steps: length of the training, for the schedule.
    """

    def __init__(self, module: nn.Module, config: OptimizerConfig, total_steps: int) -> None:
        self.config = config
        self.total_steps = total_steps
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.adamw = build_adamw(module, config)
        self.peak_rates = [group["lr"] for group in self.adamw.param_groups]

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


def build_adamw(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Fused AdamW. Heads have their own learning rate; vectors (biases and norms) have no weight decay."""
    head_rate = config.learning_rate if config.head_learning_rate is None else config.head_learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            rate = config.learning_rate if name.startswith("encoder.") else head_rate
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

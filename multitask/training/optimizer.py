"""The optimizer and its learning rate."""

import torch
from torch import nn

from multitask.training.config import OptimizerConfig


def build_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Fused AdamW with the heads' own learning rate, and no weight decay on vectors (biases and norms)."""
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

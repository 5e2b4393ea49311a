"""The optimizer: AdamW, its learning rates, the clipping of the gradient and the average of the weights."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from minbert.errors import InputError
from multitask.base import logger
from multitask.base.device import widest_dtype
from multitask.training.settings import OptimizerConfig

USUAL_RATES = {"learning_rate": 1e-3, "head_learning_rate": 1e-2}
"""The largest ones that are usual for encoders and for heads."""


class Optimizer:
    """AdamW with a learning-rate schedule, gradient clipping and, if the configuration asks for it, averaged weights.

    It trains the module's parameters that require a gradient. The schedule ends after `total_steps`. It warns of rates
    at which AdamW does not learn but destroys what the start weights know.

    The average is Σ_t d^(T−t) w_t / Σ_t d^(T−t), where d is `ema_decay` and w_t are the weights after step t = 1..T.
    The start weights do not count. The sums are in float64: a step adds so little that much of it would be lost in
    fp32. Source: Polyak & Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging"; with weights that
    decay exponentially as in Tarvainen & Valpola 2017, arXiv 1703.01780; and without a bias towards the start, as in
    Adam (Kingma & Ba 2015, arXiv 1412.6980, section 3).
    """

    def __init__(self, module: nn.Module, config: OptimizerConfig, total_steps: int) -> None:
        for name in rates_in_use(module, config):
            rate, usual = getattr(config, name), USUAL_RATES[name]
            if rate >= 10 * usual:
                logger.warning(
                    f"{name} is {rate:g}; usual are {usual:g} and less, and training at this rate may ruin the model"
                )
        self.config = config
        self.total_steps = total_steps
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.adamw = build_adamw(module, config)
        self.peak_rates = [group["lr"] for group in self.adamw.param_groups]
        averaged = [] if config.ema_decay is None else self.parameters
        self.averages = [torch.zeros_like(weights, dtype=widest_dtype(weights.device)) for weights in averaged]

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients that the last backward pass left in the parameters."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def clip(self) -> Tensor:
        """Scale the gradient down to the largest norm that the configuration allows; returns its norm before that."""
        norm = norm_of(self.gradients)
        if self.config.clip is not None:
            clip_grads_with_norm_(self.parameters, self.config.clip, norm)
        return norm

    def step(self, number: int) -> None:
        """Take step `number`, from 0, with its learning rate; then clear the gradient."""
        factor = learning_rate_factor(number, self.total_steps, self.config)
        for group, peak in zip(self.adamw.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak * factor
        self.adamw.step()
        self.adamw.zero_grad()
        if (decay := self.config.ema_decay) is not None:
            share = (1 - decay) / (1 - decay ** (number + 1))
            torch._foreach_mul_(self.averages, 1 - share)
            torch._foreach_add_(self.averages, [parameter.detach() for parameter in self.parameters], alpha=share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within this context the weights are their average, if there is one; afterwards what they were, to the bit."""
        trained = [parameter.data for parameter in self.parameters]
        for parameter, average in zip(self.parameters, self.averages, strict=False):
            parameter.data = average.to(parameter.dtype)
        try:
            yield
        finally:
            for parameter, weights in zip(self.parameters, trained, strict=True):
                parameter.data = weights

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, as torch saves it."""
        return self.adamw.state_dict() | {"average": self.averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.adamw.load_state_dict({name: state[name] for name in ("state", "param_groups")})
        for own, saved in zip(self.averages, state["average"], strict=True):
            own.copy_(saved)


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm of all gradients together, a scalar of their dtype.

    Squares are added in fp32 only along the last dimension, which has a few thousand numbers, and then in float64. A
    sum of 10^8 squares in fp32 may be 2% wrong. CUDA adds in a tree, for which fp32 is enough, many tensors at a time.
    """
    if gradients[0].is_cuda:
        return get_total_norm(gradients)
    rows = torch.cat([vector_norm(gradient, dim=-1).flatten() for gradient in gradients])
    return vector_norm(rows, dtype=widest_dtype(rows.device)).to(rows.dtype)


def build_adamw(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Fused AdamW. Heads and layers have learning rates of their own; vectors (biases, norms) have no weight decay."""
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    shares = layer_rates(trained, config.layer_decay)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        rate = shares[name] * getattr(config, rate_of(name, config))
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in groups.items()],
        fused=True,
    )


def rate_of(name: str, config: OptimizerConfig) -> str:
    """The setting that is the learning rate of the parameter with this name."""
    of_encoder = name.startswith("encoder.") or config.head_learning_rate is None
    return "learning_rate" if of_encoder else "head_learning_rate"


def rates_in_use(module: nn.Module, config: OptimizerConfig) -> list[str]:
    """The settings that are the learning rate of a parameter that is trained, each once."""
    trained = (name for name, parameter in module.named_parameters() if parameter.requires_grad)
    return sorted({rate_of(name, config) for name in trained})


def learning_rate_factor(step: int, total: int, config: OptimizerConfig) -> float:
    """Share of the peak learning rate at a step (from 0): linear warm-up, then constant or linear to zero."""
    warmup = round(config.warmup * total)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    return (total - step) / max(total - warmup, 1)


def layer_rates(names: Collection[str], decay: float) -> dict[str, float]:
    """The learning rate of each parameter as a share of its highest: decay^k for the encoder's k-th layer from the top.

    The top layer has k = 0 and the embeddings are one below the lowest layer. The pooler and all that is outside the
    encoder have share 1.

    Source: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", arXiv 1905.05583, layer-wise decreasing
    rate; after Howard & Ruder 2018, arXiv 1801.06146, section 3.2.
    """
    layers = {name: int(found[1]) for name in names if (found := re.match(r"encoder\.layers\.(\d+)\.", name))}
    if decay != 1 and not layers:
        raise InputError("layer_decay needs a BERT or RoBERTa whose layers are trained")
    top = max(layers.values(), default=-1)
    below = {name: top - layer for name, layer in layers.items()}
    below |= {name: top + 1 for name in names if name.startswith("encoder.embeddings.")}
    return {name: decay ** below.get(name, 0) for name in names}

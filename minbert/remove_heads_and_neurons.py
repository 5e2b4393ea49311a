"""Remove attention heads and feed-forward neurons (units) from an encoder, or mask them to measure their effect.

A mask multiplies a unit's result before the output projection. Removing a unit removes its part of the output
projection, and its queries, keys and values or its incoming weights; the bias of the output projection stays.

Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", arXiv 1905.10650, section 2.3.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.model import BertModel, Layer


@dataclass(frozen=True)
class Units:
    """One value for each attention head and each feed-forward neuron of an encoder."""

    heads: tuple[Tensor, ...]  # of each layer [heads]
    neurons: tuple[Tensor, ...]  # of each layer [neurons]

    @classmethod
    def full(cls, config: BertConfig, value: float, dtype: torch.dtype = torch.float32) -> Self:
        """The same value for all units of an encoder with this config."""
        heads, neurons = zip(*config.layer_sizes, strict=True)
        return cls(
            tuple(torch.full((size,), value, dtype=dtype) for size in heads),
            tuple(torch.full((size,), value, dtype=dtype) for size in neurons),
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The values of all heads, layer by layer, then of all neurons."""
        return self.heads + self.neurons

    def map(self, function: Callable[..., Tensor], *others: "Units") -> "Units":
        """Apply a function to the heads' values and to the neurons' values of each layer, then to those of others."""
        heads = tuple(map(function, self.heads, *(units.heads for units in others)))
        return Units(heads, tuple(map(function, self.neurons, *(units.neurons for units in others))))


@contextmanager
def masked(encoder: BertModel, factors: Units) -> Iterator[None]:
    """Multiply every unit's result by its factor within the block, on the padded and the packed path.

    The factor 1 has no effect, and 0 silences a unit. Factors are fp32 and on the encoder's device.
    """

    def scale(factor: Tensor, repeats: int) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
        return lambda module, inputs: (inputs[0] * factor.repeat_interleave(repeats),)

    handles = []
    try:
        for layer, heads, neurons in zip(encoder.layers, factors.heads, factors.neurons, strict=True):
            assert isinstance(layer, Layer)
            # The two projections take the contexts of all heads side by side, and the neurons.
            hook = scale(heads, encoder.config.head_size)
            handles.append(layer.attention.output.register_forward_pre_hook(hook))
            handles.append(layer.output.register_forward_pre_hook(scale(neurons, 1)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def without_units(encoder: BertModel, kept: Units) -> BertModel:
    """A copy with the kept units only. It computes what the encoder computes with all other units masked to 0.

    `kept` is bool, with at least one head in each layer.
    """
    config = encoder.config
    state = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    for index, (heads, neurons) in enumerate(zip(kept.heads, kept.neurons, strict=True)):
        context = heads.to(state["pooler.bias"].device).repeat_interleave(config.head_size)  # [width]
        inner = neurons.to(context.device)
        places = {
            "attention.query_key_value": context.repeat(3),
            "attention.output": context,
            "intermediate": inner,
            "output": inner,
        }
        for place, chosen in places.items():
            weight, bias = (f"layers.{index}.{place}.{kind}" for kind in ("weight", "bias"))
            if place.endswith("output"):  # the bias belongs to no unit
                state[weight] = state[weight][:, chosen]
            else:
                state[weight], state[bias] = state[weight][chosen], state[bias][chosen]
    sizes = replace(
        config,
        layer_heads=_sizes(kept.heads, config.num_attention_heads),
        layer_intermediate_sizes=_sizes(kept.neurons, config.intermediate_size),
    )
    with torch.device("meta"):
        smaller = BertModel(sizes)
    smaller.load_state_dict(state, assign=True)
    return smaller.train(encoder.training)


def _sizes(kept: Sequence[Tensor], full: int) -> tuple[int, ...] | None:
    sizes = tuple(int(layer.sum()) for layer in kept)
    return None if all(size == full for size in sizes) else sizes

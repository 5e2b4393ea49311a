"""Attention heads and feed-forward neurons as units: masked by factors to see what they do, or removed for good.

A head or neuron is cut where its result meets the output projection, so its queries, keys, values or incoming weights
go with it, and the projection's bias stays.

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
    """A value for every attention head and every feed-forward neuron of an encoder."""

    heads: tuple[Tensor, ...]  # layers x [heads]
    neurons: tuple[Tensor, ...]  # layers x [neurons]

    @classmethod
    def full(cls, config: BertConfig, value: float, dtype: torch.dtype = torch.float32) -> Self:
        """The same value for all units of an encoder of this shape."""
        heads, neurons = zip(*config.layer_sizes, strict=True)
        return cls(
            tuple(torch.full((size,), value, dtype=dtype) for size in heads),
            tuple(torch.full((size,), value, dtype=dtype) for size in neurons),
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All heads' values, layer by layer, then all neurons'."""
        return self.heads + self.neurons

    def map(self, function: Callable[[Tensor], Tensor]) -> "Units":
        """Units with other values: a function of each layer's heads and of each layer's neurons."""
        return Units(tuple(map(function, self.heads)), tuple(map(function, self.neurons)))


@contextmanager
def masked(encoder: BertModel, factors: Units) -> Iterator[None]:
    """Meanwhile the encoder multiplies every unit's result by its factor, on both paths.

    Args:
        encoder: the encoder.
        factors: on the encoder's device, in fp32; 1 leaves a unit as it is, 0 is its removal. May require gradients.
    """

    def scale(factor: Tensor, repeats: int) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
        return lambda module, inputs: (inputs[0] * factor.repeat_interleave(repeats),)

    handles = []
    try:
        for layer, heads, neurons in zip(encoder.layers, factors.heads, factors.neurons, strict=True):
            assert isinstance(layer, Layer)
            # Their inputs are the contexts of all heads side by side and the neurons.
            hook = scale(heads, encoder.config.head_size)
            handles.append(layer.attention.output.register_forward_pre_hook(hook))
            handles.append(layer.output.register_forward_pre_hook(scale(neurons, 1)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def without_units(encoder: BertModel, kept: Units) -> BertModel:
    """An encoder of smaller matrices that gives what this one gives with all other units masked to 0.

    Args:
        encoder: the encoder, which stays as it is.
        kept: bool; at least one head in each layer.
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

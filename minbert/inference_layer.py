"""Layers for inference on a processor: no dropout, GELU within the product before it, and weights laid out once.

oneDNN computes products of small batches fastest if weights lie in its own order. Ordinary linear layers bring them
into that order in every call.
"""

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.model import Attend, BertModel, Layer

ROWS = 16
"""Tokens of a small batch, for which the order of the weights is best. It fits larger batches too."""


class InferenceLayer(nn.Module):
    """A layer of the encoder without dropout, with other linear maps; `intermediate` applies GELU itself."""

    def __init__(
        self,
        layer: Layer,
        query_key_value: nn.Module,
        attention_output: nn.Module,
        intermediate: nn.Module,
        output: nn.Module,
    ) -> None:
        super().__init__()
        self.query_key_value = query_key_value
        self.attention_output = attention_output
        self.attention_norm = layer.attention_norm
        self.intermediate = intermediate
        self.output = output
        self.output_norm = layer.output_norm

    def train(self, mode: bool = True) -> Self:
        """Raise InputError in training mode: without dropout, nothing would be as it is in training."""
        if mode:
            raise InputError("layers for inference have no dropout; load the encoder with keep_layers=True to train it")
        return super().train(mode)

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        hidden = self.attention_norm(hidden + self.attention_output(attend(self.query_key_value(hidden))))
        return self.output_norm(hidden + self.output(self.intermediate(hidden)))


class PackedLinear(nn.Module):
    """A linear map whose weights are laid out in oneDNN's order, `packed`, next to its buffers.

    The packed weights can be neither read nor copied, so they are made anew where buffers are copied or loaded.
    """

    packed: Tensor

    def pack(self) -> Tensor:
        """The weights in oneDNN's order, from the buffers."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.packed = self.pack()

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.packed = self.pack()


class Bf16Linear(PackedLinear):
    """A linear map in bf16 whose weights are laid out once, [tokens, inputs] -> [tokens, outputs] bf16.

    Args:
        linear: the map to replace.
        activation: applied to the outputs before they are rounded; GELU by the error function.
    """

    weight: Tensor  # [outputs, inputs] bf16
    bias: Tensor  # [outputs] bf16

    def __init__(self, linear: nn.Linear, activation: Literal["none", "gelu"] = "none") -> None:
        super().__init__()
        self.activation = activation
        self.register_buffer("weight", linear.weight.detach().bfloat16())
        self.register_buffer("bias", linear.bias.detach().bfloat16())
        self.packed = self.pack()

    def pack(self) -> Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x.bfloat16(), self.packed, self.bias, self.activation, [], "none" if self.activation == "gelu" else ""
        )


def processor_has_bf16() -> bool:
    """Whether oneDNN is there, and multiplies in bf16 on this processor."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@torch.no_grad()
def to_bf16(model: BertModel) -> None:
    """Replace the layers of an encoder by layers in bf16, for `forward_packed` on a processor without gradients.

    Layers from which all feed-forward neurons were removed stay as they are.
    """

    def in_bf16(layer: Layer) -> InferenceLayer:
        return InferenceLayer(
            layer,
            query_key_value=Bf16Linear(layer.attention.query_key_value),
            attention_output=Bf16Linear(layer.attention.output),
            intermediate=Bf16Linear(layer.intermediate, "gelu"),
            output=Bf16Linear(layer.output),
        )

    replace_layers(model, in_bf16)


def replace_layers(model: BertModel, replacement: Callable[[Layer], InferenceLayer]) -> None:
    """Replace all layers that have feed-forward neurons."""
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, Layer), "only once"
        if layer.output.in_features:
            model.layers[index] = replacement(layer)

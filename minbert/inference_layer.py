"""Layers for inference on a processor: no dropout, GELU within the product before it, and weights laid out once.

oneDNN computes products of small batches fastest if weights lie in its own order. Ordinary linear layers bring them
into that order in every call.
"""

from typing import Literal

import torch
from torch import Tensor, nn

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

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        hidden = self.attention_norm(hidden + self.attention_output(attend(self.query_key_value(hidden))))
        return self.output_norm(hidden + self.output(self.intermediate(hidden)))


class Bf16Linear(nn.Module):
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
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)

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
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, Layer), "only once"
        if layer.output.in_features:
            attention = layer.attention
            model.layers[index] = InferenceLayer(
                layer,
                query_key_value=Bf16Linear(attention.query_key_value),
                attention_output=Bf16Linear(attention.output),
                intermediate=Bf16Linear(layer.intermediate, "gelu"),
                output=Bf16Linear(layer.output),
            )

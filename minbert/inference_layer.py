"""Linear maps for inference on a processor: GELU is part of the product before it, and weights are laid out once.

oneDNN computes products of small batches fastest if weights lie in its own order. Ordinary linear layers bring them
into that order in every call.
"""

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.model import BertModel, Layer

ROWS = 16
"""Tokens of a small batch, for which the order of the weights is best. It fits larger batches too."""


class Bf16Linear(nn.Module):
    """A linear map in bf16 whose weights are laid out once, [tokens, inputs] -> [tokens, outputs] bf16.

    The packed weights can be neither read nor copied, so they are made anew where buffers are copied or loaded.

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
        """The weights in oneDNN's order."""
        return torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x.bfloat16(), self.packed, self.bias, self.activation, [], "none" if self.activation == "gelu" else ""
        )

    def train(self, mode: bool = True) -> Self:
        """Raise InputError in training mode: the weights have no gradient."""
        if mode:
            raise InputError("layers for inference cannot be trained; load the encoder with keep_layers=True")
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.packed = self.pack()

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self.packed = self.pack()


def processor_has_bf16() -> bool:
    """Whether oneDNN is there, and multiplies in bf16 on this processor."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@torch.no_grad()
def to_bf16(model: BertModel) -> None:
    """Replace the linear maps of an encoder by maps in bf16, for inference on a processor.

    Layers from which all feed-forward neurons were removed stay as they are.
    """
    for layer in model.layers:
        assert isinstance(layer, Layer)
        if layer.output.in_features:
            for name, replacement in {
                "attention.query_key_value": Bf16Linear(layer.attention.query_key_value),
                "attention.output": Bf16Linear(layer.attention.output),
                "intermediate": Bf16Linear(layer.intermediate, "gelu"),
                "gelu": nn.Identity(),
                "output": Bf16Linear(layer.output),
            }.items():
                layer.set_submodule(name, replacement)
    model.eval()

"""An encoder in bf16 for inference on a processor: GELU is part of a product, and weights are laid out once.

oneDNN computes products of small batches fastest if weights lie in its own order. Ordinary linear layers bring them
into that order in every call. Of one sentence, modules and autocast would take a third of the time, so the layers are
written out.
"""

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from minbert.attention import attend_packed
from minbert.errors import InputError
from minbert.model import BertModel, Layer
from minbert.packing import PackedBatch, collect

SMALL_BATCH = 16
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
        self.in_features = linear.in_features
        self.register_buffer("weight", linear.weight.detach().bfloat16())
        self.register_buffer("bias", linear.bias.detach().bfloat16())
        self.packed = self.pack()

    def pack(self) -> Tensor:
        """The weights in oneDNN's order."""
        return torch.ops.mkldnn._reorder_linear_weight(self.weight, SMALL_BATCH)

    def forward(self, x: Tensor) -> Tensor:
        """Raise InputError for inputs with gradients, which torch would leave out of this layer's."""
        if x.requires_grad:
            raise InputError("layers for inference have no gradient; load the model with keep_layers=True")
        return torch.ops.mkldnn._linear_pointwise(
            x.bfloat16(), self.packed, self.bias, self.activation, [], "none" if self.activation == "gelu" else ""
        )

    def train(self, mode: bool = True) -> Self:
        """Raise InputError in training mode: the weights have no gradient."""
        if mode:
            raise InputError("layers for inference cannot be trained; load the model with keep_layers=True")
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
    """Whether oneDNN multiplies in bf16 on this processor, and torch has the private operators that call it."""
    needed = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in needed):
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Bf16Model(BertModel):
    """An encoder whose linear maps are in bf16, for inference on a processor.

    Layers from which all feed-forward neurons were removed stay as they are.

    Args:
        model: the encoder to replace; its layers are changed.
    """

    @torch.no_grad()
    def __init__(self, model: BertModel) -> None:
        nn.Module.__init__(self)
        self.config, self.attention_dropout = model.config, model.attention_dropout
        self.embeddings, self.layers, self.pooler = model.embeddings, model.layers, model.pooler
        for layer in self.layers:
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
        self.eval().requires_grad_(requires_grad=False)

    def forward_packed(self, batch: PackedBatch, recompute: bool = False, first_only: bool = False) -> Tensor:
        """`BertModel.forward_packed`, with the layers written out."""
        self._refuse_beyond_length(batch.longest)
        hidden = self.embeddings(batch.input_ids, batch.position_ids, batch.token_type_ids)
        head_size, width, epsilon = self.config.head_size, [self.config.hidden_size], self.config.layer_norm_eps

        def attend(query_key_value: Tensor) -> Tensor:
            return attend_packed(query_key_value, batch, head_size, 0.0, training=False)

        for number, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, Layer)
            kept = batch.offsets[:-1] if first_only and number == len(self.layers) else None
            if not layer.output.in_features:
                hidden = layer(hidden, attend, kept)
                continue
            attention, norm, last = layer.attention, layer.attention_norm, layer.output_norm
            context = attend(attention.query_key_value.forward(hidden))
            if kept is not None:
                context, hidden = collect(context, kept), collect(hidden, kept)
            hidden = layer_norm(hidden + attention.output.forward(context), width, norm.weight, norm.bias, epsilon)
            transformed = layer.output.forward(layer.intermediate.forward(hidden))
            hidden = layer_norm(hidden + transformed, width, last.weight, last.bias, epsilon)
        return hidden if self.layers or not first_only else collect(hidden, batch.offsets[:-1])

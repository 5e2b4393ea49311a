"""Inference in 8 bits on a processor: the layers' linear maps as products of integers. Not for training.

Weights are rounded to int8 with a scale for each output. Inputs are rounded to uint8 with fixed scales, which are
measured once on a batch of sentences, so a sentence's states do not depend on the other sentences of its batch. Norms
have a few channels with values twenty times as large as those of the others. So each channel is divided by a factor
before rounding, and its weights are multiplied by the factor. Attention's products, softmax, norms and sums stay in
their precision.

Sources: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", arXiv 1712.05877; the factors: Xiao et al. 2023, "SmoothQuant", arXiv 2211.10438, equation 4.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from minbert.inference_layer import PackedLinear, replace_maps
from minbert.model import BertModel, Layer
from minbert.packing import PackedBatch

MIGRATION = 0.75
"""SmoothQuant's α: 0 leaves large channels to the rounding of inputs, 1 to the rounding of weights."""
LEAST = 1e-5  # stands for a range or a channel that is always zero


def products_are_exact() -> bool:
    """Whether this processor adds products of 8-bit integers without overflow, found by multiplying the largest ones.

    Processors without VNNI or AMX add pairs of products in 16 bits, which saturate. Settings such as ONEDNN_MAX_CPU_ISA
    have the same effect on other processors.
    """
    channels = 64
    levels = torch.full((16, channels), 255, dtype=torch.uint8)
    weight = torch.full((16, channels), 127, dtype=torch.int8)
    scales, zeros = torch.ones(16), torch.zeros(16, dtype=torch.int64)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        products = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "none"
        )
    except (AttributeError, RuntimeError):  # this build of torch has no such products
        return False
    return bool((products == channels * 255 * 127).all())


@torch.no_grad()
def to_int8(model: BertModel, batch: PackedBatch) -> None:
    """Replace the linear maps of an encoder by maps in 8 bits, for inference on a processor.

    Layers from which all feed-forward neurons were removed stay as they are.

    Args:
        model: the encoder, in fp32, in eval mode, on the processor.
        batch: tokens on which the ranges of the maps' inputs are measured. Larger values are cut off later.
    """
    ranges: dict[nn.Module, Range] = {}

    def measure(module: nn.Module, inputs: tuple[Tensor]) -> None:
        ranges[module] = Range(inputs[0].amin(0), inputs[0].amax(0))

    linear = [module for module in model.layers.modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(measure) for module in linear]
    model.forward_packed(batch)
    for hook in hooks:
        hook.remove()

    def in_int8(layer: Layer) -> dict[str, nn.Module]:
        attention, first, second = layer.attention, layer.intermediate, layer.output
        output = Int8Linear(second, ranges[second], rounded=True)
        return {
            "attention.query_key_value": Int8Linear(attention.query_key_value, ranges[attention.query_key_value]),
            "attention.output": Int8Linear(attention.output, ranges[attention.output]),
            "intermediate": Int8Linear(first, ranges[first], gelu_outputs=output.inputs),  # GELU stays in 8 bits
            "output": output,
        }

    replace_maps(model, in_int8)


class Rounding(NamedTuple):
    """Real numbers as uint8: round(x / scale + zero), cut off at 0 and 255."""

    scale: float
    zero: int


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value of each channel, [channels] each."""

    low: Tensor
    high: Tensor

    def factors(self, weight: Tensor) -> Tensor:
        """SmoothQuant's factors for inputs with this range and weights [outputs, channels], [channels]."""
        inputs = torch.maximum(self.low.abs(), self.high.abs()).clamp(min=LEAST)
        return inputs**MIGRATION / weight.abs().amax(0).clamp(min=LEAST) ** (1 - MIGRATION)

    def rounding(self, factors: Tensor | float = 1.0) -> Rounding:
        """The finest rounding for all channels, each divided by its factor, that represents 0 exactly."""
        low, high = min(float((self.low / factors).min()), 0.0), max(float((self.high / factors).max()), LEAST)
        scale = (high - low) / 255
        return Rounding(scale, round(-low / scale))


class Int8Linear(PackedLinear):
    """A linear map with rounded weights. It rounds its inputs if they are not rounded yet.

    Args:
        linear: the map to replace.
        inputs: the range of its inputs.
        gelu_outputs: apply GELU to the outputs and round them so. Otherwise outputs are real, without GELU.
        rounded: the inputs are rounded by the map before, so they are not divided by factors.
    """

    multipliers: Tensor  # [channels]
    shift: Tensor  # []

    def __init__(
        self, linear: nn.Linear, inputs: Range, gelu_outputs: Rounding | None = None, rounded: bool = False
    ) -> None:
        super().__init__()
        weight = linear.weight.detach()
        factors = torch.ones_like(inputs.low) if rounded else inputs.factors(weight)
        weight = weight * factors
        scales = weight.abs().amax(1).clamp(min=LEAST) / 127
        self.inputs = inputs.rounding(factors)
        self.gelu_outputs = gelu_outputs
        self.register_buffer("weight", (weight / scales[:, None]).round().to(torch.int8))  # [outputs, channels]
        self.register_buffer("scales", scales)
        self.register_buffer("bias", linear.bias.detach())
        self.register_buffer("multipliers", 1 / (factors * self.inputs.scale))
        self.register_buffer("shift", torch.tensor(self.inputs.zero - 128.0))
        self.packed = self.pack()
        self.zeros = torch.zeros(len(scales), dtype=torch.int64)

    def pack(self) -> Tensor:
        return torch.ops.onednn.qlinear_prepack(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, channels], real or rounded -> [tokens, outputs], rounded or in the precision of autocast."""
        rounded = x if x.dtype == torch.uint8 else self.round(x)
        real = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        outputs = self.gelu_outputs
        return torch.ops.onednn.qlinear_pointwise(
            rounded,
            self.inputs.scale,
            self.inputs.zero,
            self.packed,
            self.scales,
            self.zeros,
            self.bias,
            1.0 if outputs is None else outputs.scale,
            0 if outputs is None else outputs.zero,
            real if outputs is None else torch.uint8,
            "none" if outputs is None else "gelu",
            [],
            "none",  # GELU by the error function
        )

    def round(self, x: Tensor) -> Tensor:
        """[tokens, channels] -> uint8. By way of int8, to which torch converts eight times as fast."""
        levels = torch.addcmul(self.shift, x, self.multipliers).round_().clamp_(-128, 127)
        return levels.to(torch.int8).view(torch.uint8).bitwise_xor_(128)

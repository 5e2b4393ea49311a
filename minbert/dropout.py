"""Dropout whose random bits cost little on a CPU.

torch draws a floating-point number for every unit. Here each unit takes 16 bits of a random word, and the draw costs a
sixth. The probability is therefore a multiple of 2^-16; what is kept is scaled by exactly that probability.

Source: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15.
"""

import torch
from torch import Tensor, nn

UNITS_PER_WORD = 4
LEVELS = 2**16  # values of a unit's 16 bits
LOWEST = -(2**15)  # of these, as a signed number


def dropout(hidden: Tensor, probability: float) -> Tensor:
    """Zero each unit with the given probability, from 0 to 1, and scale the others so that the mean stays.

    The bits come from torch's generator of the tensor's device.
    """
    dropped = round(probability * LEVELS)
    if hidden.device.type != "cpu" or dropped == LEVELS:
        return nn.functional.dropout(hidden, probability)
    if dropped == 0:
        return hidden
    words = torch.empty(-(-hidden.numel() // UNITS_PER_WORD), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: hidden.numel()].view(hidden.shape)
    # Comparing in place leaves 0 or 1 in 16 bits; torch is several times slower with booleans.
    keep = bits.ge_(LOWEST + dropped).to(hidden.dtype)
    return hidden * keep * (LEVELS / (LEVELS - dropped))


class Dropout(nn.Dropout):
    """`dropout` as a layer, in training only."""

    def forward(self, hidden: Tensor) -> Tensor:
        return dropout(hidden, self.p) if self.training else hidden

"""Gradient caching: the gradient of a large contrastive batch with the memory of a small one.

Encode in chunks without a graph. Compute the gradient of the loss at the embeddings. Then encode each chunk again with
the same dropout, and backpropagate its part of that gradient.

Source: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", arXiv 2101.06983.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from multitask.runtime.device import generator_states, restore_generators

Chunk = TypeVar("Chunk")
Extra = TypeVar("Extra")


def backward_in_chunks(
    chunks: Sequence[Chunk],
    encode: Callable[[Chunk], Tensor],
    loss: Callable[[Tensor], tuple[Tensor, Extra]],
    device: torch.device,
) -> tuple[Tensor, Extra]:
    """Add the gradient of the whole batch's loss to the parameters; return the loss, detached, and the other value.

    `encode` maps a chunk to its embeddings [columns, rows of the chunk, dim] and draws its dropout on `device`. `loss`
    maps all embeddings [columns, rows, dim] to a scalar and one more value. Random generators end in the state that a
    single pass over the chunks would leave them in.
    """
    states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(generator_states(device))
            parts.append(encode(chunk))
    after = generator_states(device)
    embeddings = torch.cat(parts, dim=1).requires_grad_()
    value, extra = loss(embeddings)
    (gradient,) = torch.autograd.grad(value, embeddings)
    shares = gradient.split([part.shape[1] for part in parts], dim=1)
    for chunk, state, share in zip(chunks, states, shares, strict=True):
        restore_generators(state)
        encode(chunk).backward(share)
    restore_generators(after)
    return value.detach(), extra

"""Gradients of a large contrastive batch on the memory of a small one.

Encode in chunks without a graph, take the loss's gradient at the embeddings, then encode each chunk again with the same
dropout and push its share of that gradient through it.

Source: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", arXiv 2101.06983.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Chunk = TypeVar("Chunk")
Extra = TypeVar("Extra")


def backward_in_chunks(
    chunks: Sequence[Chunk],
    encode: Callable[[Chunk], Tensor],
    loss: Callable[[Tensor], tuple[Tensor, Extra]],
    device: torch.device,
) -> tuple[Tensor, Extra]:
    """Add the gradient of the whole batch's loss to the parameters.

    The generators end where a single pass over the chunks would have left them.

    Args:
        chunks: parts of the batch.
        encode: from a part to its embeddings [columns, rows of the part, dim].
        loss: from all embeddings [columns, rows, dim] to a scalar and something to return beside.
        device: where `encode` draws its dropout.

    Returns:
        The loss, detached, and what came with it.
    """
    states, parts = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_generator_states(device))
            parts.append(encode(chunk))
    after = _generator_states(device)
    embeddings = torch.cat(parts, dim=1).requires_grad_()
    value, extra = loss(embeddings)
    (gradient,) = torch.autograd.grad(value, embeddings)
    shares = gradient.split([part.shape[1] for part in parts], dim=1)
    for chunk, state, share in zip(chunks, states, shares, strict=True):
        _restore(state, device)
        encode(chunk).backward(share)
    _restore(after, device)
    return value.detach(), extra


def _generator_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _restore(states: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1], device)

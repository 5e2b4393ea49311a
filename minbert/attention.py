"""Attention: softmax(Q Kᵀ / √head size) V for every head, over padded grids and over packed sentences.

The projections to queries, keys and values, and from the contexts, are in `minbert.model.SelfAttention`.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv 1706.03762, section 3.2.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from minbert.dropout import dropout as drop
from minbert.packing import AttentionBlock, PackedBatch, collect, fill_grids

# In grids narrower than this, separate matrix products beat the fused kernel on a CPU: up to four times faster in bf16.
NARROW = 64

# What FlashAttention demands of a head's width.
FLASH_STEP, FLASH_WIDEST = 8, 256


def attend_in_grid(
    query_key_value: Tensor, head_size: int, mask: Tensor | None, dropout: float, training: bool
) -> Tensor:
    """Attention within each row of a padded grid, [batch, seq, 3 * width] -> [batch, seq, width].

    The inputs are queries, keys and values side by side; width is heads * head size. The mask is [batch, 1, 1, seq]
    bool, True at tokens, or None if nothing is padded. Dropout is that of attention weights, 0 outside training.
    """
    # Training without gradients, as gradient caching does first, must draw and round like training with them.
    if query_key_value.device.type == "cpu" and (training or torch.is_grad_enabled()):
        return attend_with_gradient(query_key_value, head_size, mask, dropout)
    query, key, value = _by_head(query_key_value, head_size)
    context = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return context.transpose(1, 2).flatten(2)


def _by_head(query_key_value: Tensor, head_size: int) -> Tensor:
    """[batch, seq, 3 * width] -> queries, keys and values of all heads, [3, batch, heads, seq, size]."""
    return query_key_value.unflatten(-1, (3, -1, head_size)).permute(2, 0, 3, 1, 4)


def _side_by_side(context: Tensor, batch: int) -> Tensor:
    """[batch * heads, seq, size] -> [batch, seq, width]."""
    return context.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2)


def attend_in_narrow_grid(query_key_value: Tensor, head_size: int) -> Tensor:
    """Compute `attend_in_grid` without mask and dropout, faster on a CPU if the grid is narrow.

    The scores' rows are too short to fill a vector register, so the softmax runs over the first dimension instead.
    """
    query, key, value = _by_head(query_key_value, head_size).flatten(1, 2)  # [batch * heads, seq, size]
    scores = torch.baddbmm(key.new_zeros(()), key, query.mT, beta=0, alpha=head_size**-0.5)
    weights = scores.transpose(0, 1).softmax(0)  # [key, batch * heads, query]
    return _side_by_side(torch.bmm(weights.permute(1, 2, 0), value), len(query_key_value))


def attend_with_gradient(query_key_value: Tensor, head_size: int, mask: Tensor | None, dropout: float) -> Tensor:
    """Compute `attend_in_grid` where gradients are needed on a CPU.

    There torch's fused kernel has no dropout and a slow gradient, and its substitute computes in fp32 throughout. Here
    the softmax is in fp32, and the matrix products are in the precision of the inputs.
    """
    batch, seq, _ = query_key_value.shape
    query, key, value = _by_head(query_key_value, head_size).flatten(1, 2)  # [batch * heads, seq, size]
    scale = head_size**-0.5
    if mask is None:
        scores = torch.baddbmm(query.new_zeros(()), query, key.mT, beta=0, alpha=scale)
    else:
        unseen = query.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
        unseen = unseen.expand(-1, len(query) // batch, -1, -1).reshape(-1, 1, seq)  # [batch * heads, 1, seq]
        scores = torch.baddbmm(unseen, query, key.mT, alpha=scale)
    weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)  # [batch * heads, query, key]
    return _side_by_side(torch.bmm(drop(weights, dropout), value), batch)


def attend_packed(
    query_key_value: Tensor, batch: PackedBatch, head_size: int, dropout: float, training: bool
) -> Tensor:
    """Attention within each sentence of a packed batch, [total_tokens, 3 * width] -> [total_tokens, width].

    Each block of similarly long sentences is copied into a padded grid and back; unpadded batches need no copy. In half
    precision on CUDA, FlashAttention reads all sentences where they are.
    """
    if flash_computes(query_key_value, head_size):
        return attend_by_flash(query_key_value, batch.bounds, batch.longest, head_size, dropout)
    written_out = batch.slots is None and not training and query_key_value.device.type == "cpu"

    def attend_in_block(grid: Tensor, block: AttentionBlock) -> Tensor:
        grid = grid.view(block.sentences, block.width, -1)
        if written_out and block.width < NARROW and block.sentences > 1:
            return attend_in_narrow_grid(grid, head_size).flatten(0, 1)
        return attend_in_grid(grid, head_size, block.mask, dropout, training).flatten(0, 1)

    if batch.slots is None and len(batch.blocks) == 1:
        return attend_in_block(query_key_value, batch.blocks[0])
    in_grids = query_key_value
    if batch.slots is not None and batch.fillers is not None:
        in_grids = fill_grids(query_key_value, batch.slots, batch.fillers)
    grids = in_grids.split([block.sentences * block.width for block in batch.blocks])
    contexts = torch.cat([attend_in_block(grid, block) for grid, block in zip(grids, batch.blocks, strict=True)])
    return contexts if batch.slots is None else collect(contexts, batch.slots)


def flash_computes(query_key_value: Tensor, head_size: int) -> bool:
    """Whether FlashAttention can compute this."""
    return (
        query_key_value.is_cuda
        and query_key_value.dtype in (torch.bfloat16, torch.float16)
        and head_size % FLASH_STEP == 0
        and head_size <= FLASH_WIDEST
        and _device_has_flash(query_key_value.device)
    )


@cache
def _device_has_flash(device: torch.device) -> bool:
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def attend_by_flash(query_key_value: Tensor, bounds: Tensor, longest: int, head_size: int, dropout: float) -> Tensor:
    """Compute `attend_packed` in one call, without grids and masks; `bounds` are the offsets in int32.

    torch's public function for it, `torch.nn.attention.varlen.varlen_attn`, calls the same operator without dropout.

    Source: Dao 2023, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", arXiv
    2307.08691.
    """
    query, key, value = query_key_value.unflatten(-1, (3, -1, head_size)).unbind(1)  # [total_tokens, heads, size]
    context, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, bounds, bounds, longest, longest, dropout, False, False
    )  # neither causal nor with a debug mask
    return context.flatten(1)

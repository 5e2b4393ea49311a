"""Packed batches: sentences end to end without padding, and the blocks in which attention keeps them apart.

Linear layers, norms and activations work on `[total_tokens, ...]`, so on real tokens only (and, in some trainings, on
spare rows). Attention needs padded grids: sentences of similar length share one (a block), so that there is little
padding even when a batch mixes very short with very long sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# A block may exceed its shortest sentence by this ratio or this many tokens: a little padding costs less than another
# block.
WIDEST_RATIO = 1.5
FREE_WIDTH = 8


@dataclass(frozen=True)
class AttentionBlock:
    """A padded grid of `sentences` rows by `width` tokens, for sentences of similar length."""

    sentences: int
    width: int
    mask: Tensor | None  # [sentences, 1, 1, width] bool, True at tokens; None if nothing is padded


@dataclass(frozen=True)
class PackedBatch:
    """Token sequences laid end to end.

    Sequence i is `input_ids[offsets[i]:offsets[i + 1]]`. `slots` gives each token's place in the blocks' grids, which
    are flattened and concatenated to `[grid_size]`, and `fillers` the token that each place is filled with, in padding
    any. Both are None if the grids hold the tokens in the same order unpadded.
    """

    input_ids: Tensor  # [total_tokens] int64
    position_ids: Tensor  # [total_tokens] int64, 0 at each sentence's start
    token_type_ids: Tensor  # [total_tokens] int64
    sentence_ids: Tensor  # [total_tokens] int64, which sentence a token belongs to
    offsets: Tensor  # [sentences + 1] int64
    slots: Tensor | None  # [total_tokens] int64
    fillers: Tensor | None  # [grid_size] int64
    blocks: tuple[AttentionBlock, ...]

    @classmethod
    def from_sequences(
        cls,
        sequences: Sequence[NDArray[np.integer]],
        token_types: Sequence[NDArray[np.integer]] | None = None,
        unpadded: bool = False,
    ) -> "PackedBatch":
        """Pack token sequences in the order given.

        Args:
            sequences: one 1-D integer array of token ids per sentence, specials included; none may be empty.
            token_types: one array of the same length per sentence; None for all zeros.
            unpadded: make blocks of neighbours of equal length only, so that nothing is padded or moved. Use this for
                sequences sorted by length; in other orders it makes many small blocks.
        """
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        total = int(offsets[-1])
        positions = np.arange(total) - np.repeat(offsets[:-1], lengths)
        if unpadded or len(lengths) == 1:
            slots, fillers, blocks = None, None, _equal_length_blocks(lengths)
        else:
            starts, blocks = _similar_length_blocks(lengths)
            slots = torch.from_numpy(np.repeat(starts, lengths) + positions)
            fillers = torch.zeros(sum(block.sentences * block.width for block in blocks), dtype=torch.int64)
            fillers[slots] = torch.arange(total)
        return cls(
            input_ids=torch.from_numpy(np.concatenate(sequences).astype(np.int64)),
            position_ids=torch.from_numpy(positions),
            token_type_ids=torch.from_numpy(
                np.zeros(total, np.int64) if token_types is None else np.concatenate(token_types).astype(np.int64)
            ),
            sentence_ids=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)),
            offsets=torch.from_numpy(offsets),
            slots=slots,
            fillers=fillers,
            blocks=blocks,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(block.width for block in self.blocks)

    @cached_property
    def bounds(self) -> Tensor:
        """The offsets as FlashAttention reads them, [sentences + 1] int32; all layers share them."""
        return self.offsets.int()

    def to(self, device: torch.device) -> "PackedBatch":
        """The same batch on another device, copied in one piece; the host does not wait for copies to CUDA."""
        if device == self.input_ids.device:
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        masks = [block.mask for block in self.blocks if block.mask is not None]
        whole = torch.cat([part.flatten().long() for part in (*tensors.values(), *masks)])
        if device.type == "cuda" and whole.device.type == "cpu":
            whole = whole.pin_memory()
        sizes = [part.numel() for part in (*tensors.values(), *masks)]
        pieces = iter(send(whole, device).split(sizes))
        moved = {name: next(pieces) for name in tensors}
        blocks = [
            block if block.mask is None else replace(block, mask=next(pieces).bool().view_as(block.mask))
            for block in self.blocks
        ]
        return replace(self, **moved, blocks=tuple(blocks))


def _equal_length_blocks(lengths: NDArray[np.int64]) -> tuple[AttentionBlock, ...]:
    """One block for each run of neighbours of equal length."""
    runs = np.split(lengths, np.flatnonzero(np.diff(lengths)) + 1)
    return tuple(AttentionBlock(len(run), int(run[0]), mask=None) for run in runs)


def _similar_length_blocks(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[AttentionBlock, ...]]:
    """Blocks of sentences of similar length, and each sentence's first slot in their grids, in the given order."""
    order = np.argsort(lengths, kind="stable")
    starts = np.empty(len(lengths), np.int64)
    blocks = []
    first = slot = 0
    while first < len(order):
        widest = max(int(lengths[order[first]] * WIDEST_RATIO), int(lengths[order[first]]) + FREE_WIDTH)
        last = int(np.searchsorted(lengths[order], widest, side="right"))
        members = order[first:last]
        width = int(lengths[members[-1]])
        starts[members] = slot + np.arange(len(members)) * width
        full = bool((lengths[members] == width).all())
        mask = None if full else torch.from_numpy(np.arange(width) < lengths[members][:, None])[:, None, None, :]
        blocks.append(AttentionBlock(len(members), width, mask))
        slot += len(members) * width
        first = last
    return starts, tuple(blocks)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on another device; the host does not wait for a copy to CUDA.

    It waits for one to MPS, which reads the memory later, when other numbers may be there (PyTorch's issue 189690).
    """
    return tensor.to(device, non_blocking=device.type != "mps")


class _Take(torch.autograd.Function):
    """Take rows of a source. If there are slots, they are the places of the source's rows in what is taken.

    The gradient of a row is then that at its slot, and other gradients are left out. Else, places must be distinct.
    """

    @staticmethod
    def forward(source: Tensor, places: Tensor, slots: Tensor | None) -> Tensor:
        return source.index_select(0, places)

    @staticmethod
    def setup_context(
        ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor
    ) -> None:
        source, places, slots = inputs
        ctx.save_for_backward(places, slots)  # type: ignore[arg-type]  # None is allowed
        ctx.size = len(source)  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        places, slots = ctx.saved_tensors  # type: ignore[attr-defined]
        if slots is not None:
            return collect(gradient, slots), None, None
        zeros = gradient.new_zeros(ctx.size, *gradient.shape[1:])  # type: ignore[attr-defined]
        return zeros.index_copy_(0, places, gradient), None, None


def fill_grids(tokens: Tensor, slots: Tensor, fillers: Tensor) -> Tensor:
    """Copy tokens into the slots of grids, [total_tokens, ...] -> [grid_size, ...].

    Padding is filled with some token too, which is cheaper than zeros. Attention must mask it; it gets no gradient.
    Slots must be distinct.
    """
    if not torch.is_grad_enabled():  # a function with a gradient of its own costs 0.1 ms
        return tokens.index_select(0, fillers)
    return _Take.apply(tokens, fillers, slots)  # type: ignore[no-untyped-call]


def collect(source: Tensor, places: Tensor) -> Tensor:
    """`out[i] = source[places[i]]`. Places must be distinct, so the gradient needs no accumulation."""
    if not torch.is_grad_enabled():
        return source.index_select(0, places)
    return _Take.apply(source, places, None)  # type: ignore[no-untyped-call]

"""Data parallel training: what the processes that `torchrun` starts, the ranks, do together. A no-op in one process.

Every rank plans the same batches and encodes its own rows of them. What the rows become (embeddings, outputs of heads,
sums of losses) is brought together, with gradient, and every rank computes the whole batch's loss from it: negatives,
masks of duplicates and schedulers see what a single process would. The gradient that such a loss sends back to a
rank's rows is multiplied by the number of ranks, so that the mean of the ranks' gradients, taken once before the step,
is that of the whole batch; as in PyTorch's DistributedDataParallel, but without overlap of computing and sending.

Tensors are sent by the device's own backend, everything else by gloo, which never waits for a CUDA device.
"""

import atexit
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # imported when there is a group, its default arguments would keep the group's threads
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError

T = TypeVar("T")

# The first rank may evaluate, or wait for another run, for long; that a rank died is seen by `torchrun`, not by this.
PATIENCE = timedelta(days=7)

_alone = False  # while only this rank computes


def start(device: torch.device) -> None:
    """Join the other ranks, where `torchrun` started this process as one of several.

    Raises:
        InputError: more ranks on this machine than CUDA devices.
    """
    named = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if not named or int(os.environ["WORLD_SIZE"]) < 2 or dist.is_initialized():
        return
    if device.type == "cuda":
        place, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= here:
            raise InputError(f"rank {place} of this machine has no CUDA device, there are {here}; start fewer")
        torch.cuda.set_device(place)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    atexit.register(dist.destroy_process_group)
    if not is_first():
        logging.getLogger("multitask").setLevel(logging.WARNING)


def ranks() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() and not _alone else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return dist.get_rank() if ranks() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that writes files and shows how far the run is."""
    return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0


def own(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of a batch that are this rank's: every so many-th, or where there are too few, the first once more.

    What is made of that row `gather` and `total` leave out; it is there so that the same parameters get a gradient
    on every rank.
    """
    mine = rows[rank() :: ranks()]
    return mine if len(mine) else rows[:1]


def gather(mine: Tensor, rows: int, dim: int = 0) -> Tensor:
    """All ranks' values in the order of the batch, with gradient.

    Args:
        mine: [..., own rows, ...], one value for each of this rank's rows.
        rows: of the whole batch.
        dim: the rows' dimension.

    Returns:
        [..., rows, ...]
    """
    if ranks() == 1:
        return mine
    whole: Tensor = _Gather.apply(mine.movedim(dim, 0), rows)  # type: ignore[no-untyped-call]
    return whole.movedim(0, dim)


def total(mine: Tensor, rows: int) -> Tensor:
    """The sum of all ranks' values of any shape for a batch of so many rows, with gradient."""
    if ranks() == 1:
        return mine
    summed: Tensor = _Total.apply(mine * int(rank() < rows))  # type: ignore[no-untyped-call]
    return summed


def average(tensors: Sequence[Tensor]) -> None:
    """Put the mean over ranks in place of tensors of one dtype; its bits are the same on every rank."""
    if ranks() == 1 or not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= ranks()
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def take_first(tensor: Tensor) -> None:
    """Put the first rank's values in place of a contiguous tensor's own."""
    if ranks() > 1:
        dist.broadcast(tensor, 0)


def all_of(value: T) -> list[T]:
    """What every rank has, by rank. Anything that can be pickled."""
    if ranks() == 1:
        return [value]
    found: list[Any] = [None] * ranks()
    dist.all_gather_object(found, value)
    return found


def from_first(compute: Callable[[], T]) -> T:
    """What the first rank computes alone, as in a single process; the others wait for it. It must be picklable.

    An error of it is raised on every rank, so that none waits for a rank that has given up.
    """
    if ranks() == 1:
        return compute()
    outcome: list[Any] = [None, None]
    if is_first():
        try:
            with _on_its_own():
                outcome[0] = compute()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, 0)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


@contextmanager
def _on_its_own() -> Iterator[None]:
    global _alone
    _alone = True
    try:
        yield
    finally:
        _alone = False


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, rows: int) -> Tensor:
        ctx.size = len(mine)
        most = -(-rows // ranks())
        padded = mine.new_zeros(most, *mine.shape[1:])
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in range(ranks())]
        dist.all_gather(parts, padded)
        return torch.stack(parts, dim=1).flatten(0, 1)[:rows]  # row i is the (i // ranks)-th of rank i % ranks

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        mine = gradient.new_zeros(ctx.size, *gradient.shape[1:])
        part = gradient[rank() :: ranks()]
        mine[: len(part)] = part * ranks()
        return mine, None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor) -> Tensor:
        summed = mine.clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ranks()

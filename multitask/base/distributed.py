"""Data-parallel training: what the processes started by `torchrun` (ranks) do together. A no-op in a single process.

Every rank plans the same batches and encodes its own rows of them. The results (embeddings, outputs of heads, sums of
losses) are gathered with their gradients, and every rank computes the loss of the whole batch from them. So negatives,
masks of duplicates and schedulers see what they would see in a single process. The gradient of this loss with respect
to a rank's rows is multiplied by the number of ranks. The mean of the ranks' gradients, taken once before the step, is
then the gradient of the whole batch. PyTorch's DistributedDataParallel does the same, and also overlaps computing and
sending.

Tensors are sent by the backend of their device, other objects by gloo, which never waits for a CUDA device.
"""

import atexit
import logging
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its default arguments would keep a group's threads alive
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from multitask.base import logger

T = TypeVar("T")

# Long, because ranks wait while the first one evaluates or waits for another run. `torchrun` notices dead ranks itself.
PATIENCE = timedelta(days=7)

# Tensors of so many numbers are sent from where they lie; smaller ones together, since each message takes time.
SENT_ALONE = 2**16

_alone = False  # True while only this rank computes


def join_ranks(device: torch.device) -> None:
    """Join the other ranks, if `torchrun` started this process as one of several.

    Raises InputError if this machine has more ranks than CUDA devices, or the ranks should compute on MPS.
    """
    named = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if not named or int(os.environ["WORLD_SIZE"]) < 2 or dist.is_initialized():
        return
    if device.type == "mps":
        raise InputError("--device mps: a Mac has one GPU; start one process without torchrun, or use --device cpu")
    if device.type == "cuda":
        place, here = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= here:
            raise InputError(f"rank {place} of this machine has no CUDA device; start at most {here} ranks")
        torch.cuda.set_device(place)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    atexit.register(dist.destroy_process_group)
    if not is_first():
        logger.setLevel(logging.ERROR)


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()  # some builds of torch have none of it


def ranks() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if _joined() and not _alone else 1


def rank() -> int:
    """Number of this process among them, from 0."""
    return dist.get_rank() if ranks() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that writes files and shows progress."""
    return not _joined() or dist.get_rank() == 0


def own(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every n-th row of a batch, for n ranks: the rows of this rank.

    A rank without rows takes the first row again, so that the same parameters get a gradient on every rank. `gather`
    and `total` ignore the result of that row.
    """
    mine = rows[rank() :: ranks()]
    return mine if len(mine) else rows[:1]


def gather(mine: Tensor, rows: int, dim: int = 0) -> Tensor:
    """All ranks' values in the order of the batch's rows, with gradient, [..., own rows, ...] -> [..., rows, ...]."""
    if ranks() == 1:
        return mine
    whole: Tensor = _Gather.apply(mine.movedim(dim, 0), rows)  # type: ignore[no-untyped-call]
    return whole.movedim(0, dim)


def total(mine: Tensor, rows: int) -> Tensor:
    """The sum of all ranks' values for a batch of `rows` rows, with gradient; values may have any shape."""
    if ranks() == 1:
        return mine
    summed: Tensor = _Total.apply(mine * int(rank() < rows))  # type: ignore[no-untyped-call]
    return summed


def average(tensors: Sequence[Tensor]) -> None:
    """Replace tensors of one dtype by their means over ranks, with the same bits on every rank."""
    if ranks() == 1 or not tensors:
        return
    alone = [tensor for tensor in tensors if tensor.numel() >= SENT_ALONE and tensor.is_contiguous()]
    others = [tensor for tensor in tensors if tensor.numel() < SENT_ALONE or not tensor.is_contiguous()]
    together = torch.cat([tensor.flatten() for tensor in others]) if others else None
    sent = alone if together is None else [*alone, together]
    for message in [dist.all_reduce(tensor, async_op=True) for tensor in sent]:
        message.wait()
    if together is not None:
        for tensor, total in zip(others, together.split([tensor.numel() for tensor in others]), strict=True):
            tensor.copy_(total.view_as(tensor))
    torch._foreach_div_([*tensors], ranks())


def take_first(tensor: Tensor) -> None:
    """Replace the values of a contiguous tensor by the first rank's."""
    if ranks() > 1:
        dist.broadcast(tensor, 0)


def all_of(value: T) -> list[T]:
    """The values of all ranks in their order. Values must be picklable."""
    if ranks() == 1:
        return [value]
    found: list[Any] = [None] * ranks()
    dist.all_gather_object(found, value)
    return found


def highest(values: Sequence[float]) -> list[float]:
    """The largest of all ranks' values at each place. Cheaper than `all_of`, since nothing is pickled."""
    if ranks() == 1:
        return [*values]
    found = torch.tensor(values, dtype=torch.float64)  # on the CPU, so by gloo
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


def from_first(compute: Callable[[], T]) -> T:
    """Let the first rank compute something alone, as in a single process, and return the result on every rank.

    The other ranks wait. The result must be picklable. An error is raised on every rank, so that no rank waits for one
    that has stopped.
    """
    global _alone
    if ranks() == 1:
        return compute()
    outcome: list[Any] = [None, None]
    if is_first():
        _alone = True
        try:
            outcome[0] = compute()
        except Exception as error:
            outcome[1] = error
        finally:
            _alone = False
    dist.broadcast_object_list(outcome, 0)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, rows: int) -> Tensor:
        ctx.size = len(mine)
        most = -(-rows // ranks())
        padded = mine.new_zeros(most, *mine.shape[1:])
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in range(ranks())]
        dist.all_gather(parts, padded)
        return torch.stack(parts, dim=1).flatten(0, 1)[:rows]  # row i of the batch is row i // ranks of rank i % ranks

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

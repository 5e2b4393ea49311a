"""What ranks gather and add up, with threads for processes; locks of files. test_ranks.py starts processes."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, local
from typing import Any

import filelock
import numpy as np
import pytest
import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.base import distributed
from multitask.base.locks import exclusive

RANKS = 3


class Threads:
    """In place of `torch.distributed`: each thread of a group is a rank."""

    def __init__(self) -> None:
        self.barrier, self.here = Barrier(RANKS, timeout=60), local()
        self.given: list[Any] = [None] * RANKS

    def exchange(self, value: Any) -> list[Any]:
        self.given[self.get_rank()] = value
        self.barrier.wait()
        found = [*self.given]
        self.barrier.wait()
        return found

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self) -> int:
        return RANKS

    def get_rank(self) -> int:
        return self.here.rank

    def all_gather(self, parts: list[Tensor], mine: Tensor) -> None:
        for part, found in zip(parts, self.exchange(mine), strict=True):
            part.copy_(found)

    def all_reduce(self, tensor: Tensor, async_op: bool = False) -> "Threads":
        tensor.copy_(sum(self.exchange(tensor.clone())))
        return self

    def wait(self) -> None: ...


def leaf() -> Tensor:
    return torch.tensor([0.5, -2.0, 1.5], dtype=torch.float64, requires_grad=True)


def table(rows: int) -> Tensor:
    return torch.arange(3.0 * rows, dtype=torch.float64).reshape(rows, 3).sin()


def mixed(rows: Tensor, columns: Tensor, total: Tensor) -> Tensor:
    """A function that is nonlinear in all arguments and depends on the order of the rows."""
    return (rows @ columns).cumsum(0).tanh().mean() * total.log() + columns.square().mean()


def test_a_torch_without_distributed_has_one_rank(monkeypatch):
    monkeypatch.setattr(distributed.dist, "is_available", lambda: False)
    monkeypatch.delattr(distributed.dist, "is_initialized")
    assert (distributed.ranks(), distributed.rank(), distributed.is_first()) == (1, 0, True)


@pytest.mark.parametrize("rows", range(1, 8))
def test_gathered_rows_give_the_whole_batchs_value_and_gradient(rows, monkeypatch):
    threads = Threads()

    def together(rank: int) -> tuple[Tensor, Tensor]:
        threads.here.rank = rank
        weight = leaf()
        values = weight * table(rows)[distributed.own(np.arange(rows))]  # [own rows, 3]
        loss = mixed(
            distributed.gather(values, rows),
            distributed.gather(values.T, rows, dim=1),
            distributed.total(values.exp().sum(), rows),
        )
        (gradient,) = torch.autograd.grad(loss, weight)
        distributed.average([gradient])
        return loss, gradient

    monkeypatch.setattr(distributed, "dist", threads)
    with ThreadPoolExecutor(RANKS) as pool:
        found = list(pool.map(together, range(RANKS)))
    weight = leaf()
    values = weight * table(rows)
    loss = mixed(values, values.T, values.exp().sum())
    expected = loss, *torch.autograd.grad(loss, weight)
    for of_rank in found:
        torch.testing.assert_close(of_rank, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chosen", [slice(None), slice(2), slice(2, None)])
def test_gradients_of_any_size_and_layout_become_their_means(chosen, monkeypatch):
    threads = Threads()
    shapes = [(distributed.SENT_ALONE,), (256, 512), (3,), (512, 256), ()][chosen]
    whole = [np.random.default_rng(0).normal(size=(RANKS, *shape)) for shape in shapes]

    def mine(rank: int) -> list[Tensor]:
        threads.here.rank = rank
        tensors = [torch.tensor(values[rank]) for values in whole]
        tensors = [tensor.T.contiguous().T if tensor.shape == (512, 256) else tensor for tensor in tensors]
        distributed.average(tensors)
        return tensors

    monkeypatch.setattr(distributed, "dist", threads)
    with ThreadPoolExecutor(RANKS) as pool:
        for found in pool.map(mine, range(RANKS)):
            for tensor, values in zip(found, whole, strict=True):
                np.testing.assert_allclose(tensor.numpy(), values.mean(0), rtol=1e-14, atol=1e-15)


# Locks of files: one holder at a time, nothing is written through a link, and no lock is said in one line.


def test_a_lock_changes_no_file_and_is_no_link(tmp_path):
    (letter := tmp_path / "letter").write_text("dear all")
    (tmp_path / "lock").symlink_to(letter)
    with pytest.raises(InputError, match=f"{tmp_path / 'lock'}: a link"), exclusive(tmp_path / "lock", ""):
        pass
    with exclusive(letter, ""):
        pass
    assert letter.read_text() == "dear all"


def test_who_waits_says_so_once_and_goes_on_when_the_holder_has_ended(tmp_path, caplog):
    order = []

    def second() -> None:
        with exclusive(tmp_path / "lock", "waiting for it"):
            order.append("second")

    with exclusive(tmp_path / "lock", ""):
        (thread := threading.Thread(target=second)).start()
        thread.join(0.5)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert caplog.messages == ["waiting for it"]


def hold_and_die(path: Path) -> None:
    with exclusive(path, ""):
        os._exit(9)


def test_a_process_that_dies_releases_its_locks(tmp_path, caplog):
    if (process := os.fork()) == 0:
        hold_and_die(tmp_path / "lock")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    with exclusive(tmp_path / "lock", "waiting for it"):
        assert not caplog.messages


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_of_the_file_system_work_goes_on_with_a_warning(tmp_path, monkeypatch, caplog, number):
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(filelock.FileLock, "_acquire", none)
    with exclusive(tmp_path / "lock", ""):
        assert f"{tmp_path / 'lock'}: the file system has no locks" in caplog.text

"""Results are in the order of the rows for any batches, and all threads stop after an error or an interrupt."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from multitask.base.device import start
from multitask.models.compute_in_batches import compute_in_batches


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("most_rows", [1, 7, None])
def test_results_are_in_the_rows_order(two_threads, most_rows):
    lengths = np.random.default_rng(0).integers(1, 200, 300)

    def compute(rows: np.ndarray) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        return torch.from_numpy(np.stack([rows, lengths[rows]], axis=1))

    found = compute_in_batches(lengths, compute, start("cpu", "fp32"), most_rows)
    np.testing.assert_array_equal(found, np.stack([np.arange(300), lengths], axis=1))


def test_a_single_batch_has_one_thread_too_and_starts_none(two_threads):
    """Two threads that share a product add it up in another order."""
    here = []

    def threads(rows: np.ndarray) -> torch.Tensor:
        here.append(threading.current_thread() is threading.main_thread())
        return torch.full((len(rows),), torch.get_num_threads())

    np.testing.assert_array_equal(compute_in_batches(np.array([3, 2]), threads, start("cpu", "fp32")), 1)
    assert here == [True]
    assert torch.get_num_threads() == 2


def test_an_interrupt_ends_all_threads(two_threads):
    started, computed = threading.Event(), []

    def compute(rows: np.ndarray) -> torch.Tensor:
        computed.append(rows)
        started.set()
        time.sleep(0.01)
        return torch.zeros(len(rows))

    def interrupt() -> None:
        started.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs that ignore it
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            compute_in_batches(np.ones(1000, np.int64), compute, start("cpu", "fp32"), most_rows=1)
    finally:
        signal.signal(signal.SIGINT, before)
    sender.join()
    assert len(computed) < 1000


def test_an_error_in_one_batch_ends_the_others_and_leaves_the_threads_as_set(two_threads):
    computed = []

    def compute(rows: np.ndarray) -> torch.Tensor:
        computed.append(rows)
        if len(computed) == 2:
            raise ValueError("no")
        time.sleep(0.01)
        return torch.zeros(len(rows))

    with pytest.raises(ValueError, match="no"):
        compute_in_batches(np.ones(500, np.int64), compute, start("cpu", "fp32"), most_rows=1)
    assert len(computed) < 500
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2

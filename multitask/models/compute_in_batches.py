"""Compute something for every row of a data set, in batches filled by tokens; the results are in file order."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multitask.data.examples import Rows
from multitask.data.shuffle_and_batch import batches_by_tokens
from multitask.runtime.device import Runtime
from multitask.runtime.progress import OnRows, untold

# Large enough to keep a core or a GPU busy. On a CPU, larger temporary tensors are returned to the system each time,
# which costs page faults.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536, "mps": 16384}

Computed = list[tuple[Rows, Tensor]]


def compute_in_batches(
    lengths: NDArray[np.int64],
    compute: Callable[[Rows], Tensor],
    runtime: Runtime,
    most_rows: int | None = None,
    on_rows: OnRows = untold,
) -> NDArray[np.float32]:
    """Results of `compute` for every row, [rows, ...] fp32, in the order of the rows.

    `lengths` are the numbers of tokens of the rows, at least one. `compute` maps row numbers [batch] of similar
    lengths to results [batch, ...], under autocast, without gradients, in several threads. On a CPU every thread
    computes whole batches, so that neither the number of threads nor which of them computes a batch changes the
    results, and threads do not wait for each other at every operation. They call `on_rows` after each batch.
    """
    batches = list(batches_by_tokens(lengths, TOKENS_PER_BATCH[runtime.device.type], most_rows))
    waiting = iter(batches)  # shared by all threads

    def work() -> Computed:
        results = []
        with torch.no_grad(), runtime.autocast():
            for rows in waiting:
                results.append((rows, compute(rows)))
                on_rows(len(rows))
        return results

    def give_up() -> None:
        for _ in waiting:
            pass

    threads = torch.get_num_threads() if runtime.device.type == "cpu" else 1
    results = work() if threads == 1 else _in_threads(work, min(threads, len(batches)), give_up)
    everything = np.empty((len(lengths), *results[0][1].shape[1:]), np.float32)
    for rows, values in results:  # copied only now, so that batches do not wait for a CUDA device
        everything[rows] = values.float().cpu().numpy()
    return everything


def _in_threads(work: Callable[[], Computed], threads: int, give_up: Callable[[], None]) -> Computed:
    """The results of all threads. If one fails or is interrupted, the others stop after their current batch."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            try:
                futures = [workers.submit(work) for _ in range(threads)]
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                give_up()
            return [result for future in futures for result in future.result()]
    finally:
        torch.set_num_threads(before)  # the setting also holds for threads that are started later

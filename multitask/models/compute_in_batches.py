"""Computing something for every row of a set, in batches by tokens, results in file order."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from multitask.data.shuffle_and_batch import Rows, batches_by_tokens
from multitask.runtime.device import Runtime

# Large enough to fill a core or a GPU. On a CPU larger temporary tensors go back to the system and cost page faults.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536}

Results = list[tuple[Rows, Tensor]]


def compute_in_batches(
    lengths: NDArray[np.int64],
    compute: Callable[[Rows], Tensor],
    runtime: Runtime,
    most_rows: int | None = None,
    show_progress: bool = False,
) -> NDArray[np.float32]:
    """Results of `compute` for every row, [rows, ...] fp32 in the rows' order.

    On a CPU each thread computes batches of its own rather than wait for the others at every operation; which one takes
    which batch has no influence on a bit.

    Args:
        lengths: tokens of each row, at least one row.
        compute: from row numbers [batch], of similar length and the longest first, to results [batch, ...]; under
            autocast, without gradients, in several threads.
        runtime: device and precision.
        most_rows: at most so many rows in a batch.
        show_progress: show a progress bar when standard error is a terminal.
    """
    batches = list(batches_by_tokens(lengths, TOKENS_PER_BATCH[runtime.device.type], most_rows))
    waiting = iter(batches)  # shared by all threads

    def work() -> Results:
        results = []
        with torch.no_grad(), runtime.autocast():
            for rows in waiting:
                results.append((rows, compute(rows)))
                bar.update(len(rows))
        return results

    def give_up() -> None:
        for _ in waiting:
            pass

    threads = min(torch.get_num_threads(), len(batches)) if runtime.device.type == "cpu" else 1
    with tqdm(total=len(lengths), unit="row", disable=None if show_progress else True) as bar:
        results = work() if threads == 1 else _in_threads(work, threads, give_up)
    everything = np.empty((len(lengths), *results[0][1].shape[1:]), np.float32)
    for rows, values in results:  # read at the end: a CUDA device is never waited for in between
        everything[rows] = values.float().cpu().numpy()
    return everything


def _in_threads(work: Callable[[], Results], threads: int, give_up: Callable[[], None]) -> Results:
    """What each of so many threads finds, together; after an error or an interrupt in any the others give up."""
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
        torch.set_num_threads(before)  # a thread sets its own number and that of threads started later

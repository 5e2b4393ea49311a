"""Computing something for every row of a set, in batches by tokens, results in file order."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from multitask.datasets.batching import Rows, batches_by_tokens
from multitask.runtime import Runtime

# Large enough to fill the processor, small enough to stay in its cache.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 65536}


@torch.no_grad()
def for_all_rows(
    lengths: NDArray[np.int64],
    compute: Callable[[Rows], Tensor],
    runtime: Runtime,
    most_rows: int | None = None,
    show_progress: bool = False,
) -> NDArray[np.float32]:
    """Results of `compute` for every row, [rows, ...] fp32 in the rows' order.

    Args:
        lengths: tokens of each row, at least one row.
        compute: from row numbers [batch] to results [batch, ...], under autocast.
        runtime: device and precision.
        most_rows: at most so many rows in a batch.
        show_progress: show a progress bar when standard error is a terminal.
    """
    results = []
    with tqdm(total=len(lengths), unit="row", disable=None if show_progress else True) as bar:
        for rows in batches_by_tokens(lengths, TOKENS_PER_BATCH[runtime.device.type], most_rows):
            with runtime.autocast():
                results.append((rows, compute(rows)))
            bar.update(len(rows))
    everything = np.empty((len(lengths), *results[0][1].shape[1:]), np.float32)
    for rows, values in results:  # read at the end: a CUDA device is never waited for in between
        everything[rows] = values.float().cpu().numpy()
    return everything

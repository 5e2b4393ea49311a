"""Outputs for any number of sentences, computed in batches; and pooling, which makes embeddings of token states."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from minbert.errors import InputError
from minbert.packing import PackedBatch, collect
from multitask.base.device import Runtime
from multitask.base.progress import OnRows, no_progress
from multitask.data.examples import RowNumbers, batches_by_tokens
from multitask.data.messages import quote
from multitask.data.texts import in_order, prompted

PoolingMethod = Literal["cls", "mean"]


def pool(hidden: Tensor, batch: PackedBatch, method: PoolingMethod) -> Tensor:
    """Token states [total_tokens, hidden] -> embeddings [sentences, hidden] fp32.

    `cls` takes the first token's state, `mean` the mean over all tokens of a sentence; there is no padding.
    """
    if method == "cls":
        return collect(hidden, batch.offsets[:-1]).float()
    states = hidden.float()  # sums of many tokens in bf16 would lose the last ones
    sums = states.new_zeros(len(batch), states.shape[1]).index_add(0, batch.sentence_ids, states)
    return sums / batch.offsets.diff()[:, None]


def leading(embeddings: Tensor, size: int | None) -> Tensor:
    """Embeddings [rows, hidden] with zeros in place of all but the first `size` numbers: what a layer reads of these.

    The layer then has one set of weights for all sizes (Kusupati et al. 2022, arXiv 2205.13147, section 3, "MRL-E").
    None keeps all numbers.
    """
    if size is None:
        return embeddings
    return functional.pad(embeddings[:, :size], (0, embeddings.shape[1] - size))


def check_dimensions(dimensions: int | None, width: int, name: str) -> None:
    """Raise InputError unless a model's embeddings have so many numbers to keep; None keeps all."""
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"dimensions is {dimensions}; the embeddings of {name} have {width}")


def texts_to_embed(sentences: str | Sequence[str], prompt: str | None) -> list[str]:
    """One sentence, or several, in the words of a prompt. Raises InputError for what is no text, or such a prompt."""
    texts: list[Any] = [sentences] if isinstance(sentences, str) else in_order(sentences)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            value = f"{quote(text)} ({type(text).__name__})"
            raise InputError(f"sentence {number} is {value}; expected text (sentences are counted from 0)")
    return texts if prompt is None else prompted(prompt, texts)


# Large enough to keep a core or a GPU busy. On a CPU, larger temporary tensors are returned to the system each time,
# which costs page faults.
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536, "mps": 16384}

Computed = list[tuple[RowNumbers, Tensor]]


def compute_in_batches(
    lengths: NDArray[np.int64],
    compute: Callable[[RowNumbers], Tensor],
    runtime: Runtime,
    most_rows: int | None = None,
    on_rows: OnRows = no_progress,
    in_order: bool = False,
) -> NDArray[np.float32]:
    """Results of `compute` for every row, [rows, ...] fp32, in the order of the rows.

    `lengths` are the numbers of tokens of the rows, at least one. `compute` maps row numbers [batch] of similar
    lengths to results [batch, ...], under autocast, without gradients, in several threads. On a CPU every thread
    computes whole batches, so that neither the number of threads nor which of them computes a batch changes the
    results, and threads do not wait for each other at every operation. They call `on_rows` after each batch. `in_order`
    computes one batch after another, for a `compute` that draws random numbers.
    """
    batches = list(batches_by_tokens(lengths, TOKENS_PER_BATCH[runtime.device.type], most_rows))
    waiting = iter(batches)  # shared by all threads

    def work() -> Computed:
        results = []
        with torch.inference_mode(), runtime.autocast():
            for rows in waiting:
                results.append((rows, compute(rows)))
                on_rows(len(rows))
        return results

    def give_up() -> None:
        for _ in waiting:
            pass

    threads = torch.get_num_threads() if runtime.device.type == "cpu" and not in_order else 1
    results = _in_threads(work, min(threads, len(batches)), give_up)
    everything = np.empty((len(lengths), *results[0][1].shape[1:]), np.float32)
    for rows, values in results:  # copied only now, so that batches do not wait for a CUDA device
        everything[rows] = values.float().cpu().numpy()
    return everything


_lock = Lock()
_running: list[int] = []
"""For each call that runs, in any thread, how many threads torch had before the first of them."""


def _in_threads(work: Callable[[], Computed], threads: int, give_up: Callable[[], None]) -> Computed:
    """The results of all threads. If one fails or is interrupted, the others stop after their current batch."""
    with _lock:
        before = _running[0] if _running else torch.get_num_threads()
        _running.append(before)
    try:
        if threads == 1:  # starting a thread takes longer than computing one sentence
            torch.set_num_threads(1)
            return work()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            try:
                futures = [workers.submit(work) for _ in range(threads)]
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                give_up()
            return [result for future in futures for result in future.result()]
    finally:
        with _lock:
            torch.set_num_threads(_running.pop())  # the setting also holds for threads that are started later

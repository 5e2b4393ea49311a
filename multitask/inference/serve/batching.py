"""The queue of a model: the texts of all waiting requests are packed into batches by tokens and computed in one thread.

A batch takes whatever waits when the previous batch is done, so a request to an idle service is computed at once, and
batches grow with the load. Requests take turns: a long request is spread over several batches, and a short one never
waits for all of a long one.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from minbert.packing import PackedBatch
from minbert.tokenizer import Ids
from multitask.inference.serve.metrics import Metrics
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.multitask_model import MultitaskModel

TURNS_PER_BATCH = 2  # a request fills at most half a batch before the next request's turn
TEXTS_PER_CALL = 32  # of the tokenizer: a request with many long texts must not hold up the others
LONGEST_RETRY = 60  # seconds

Input = str | tuple[str, str]
"""A text, or a pair of texts that the encoder reads as one input."""
Answer = TypeVar("Answer")


class QueueFull(Exception):  # noqa: N818 - a state of the service, not an error
    """The queue has no room for a request.

    Args:
        retry_after: seconds until there is probably room.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many texts are waiting; try again in {retry_after} s")
        self.retry_after = retry_after


class Encoded(NamedTuple):
    """Token ids and types of one input."""

    ids: Ids
    types: Ids


@dataclass(eq=False)
class Job:
    """A request in the queue. If its future is done (cancelled or failed), the rest of it need not be computed."""

    inputs: list[Input]
    finish: Callable[[Tensor, int], Any]
    future: asyncio.Future[Any]
    tokenised: int = 0  # number of inputs
    taken: int = 0  # number of inputs that are in a batch or computed
    ready: deque[Encoded] = field(default_factory=deque)  # tokenised and not taken
    embeddings: list[Tensor] = field(default_factory=list)  # [taken at once, hidden] each, in the order of the inputs
    tokens: int = 0  # of all inputs that are tokenised

    @property
    def left(self) -> int:
        """Number of inputs that wait."""
        return len(self.inputs) - self.taken


Batch = list[tuple[Job, list[Encoded]]]
"""What requests have in one batch; a request may occur several times."""


class Batcher:
    """Computes the embeddings of requests' inputs in a thread of its own.

    Args:
        model: in eval mode.
        most_waiting: largest number of inputs in the queue.
        metrics: counts batches.
    """

    def __init__(self, model: MultitaskModel, most_waiting: int, metrics: Metrics) -> None:
        self.model = model
        self.most_waiting = most_waiting
        self.metrics = metrics
        self.tokens_per_batch = TOKENS_PER_BATCH[model.runtime.device.type]
        self.waiting = 0  # inputs
        self._jobs: deque[Job] = deque()
        self._closed = False
        self._changed = Condition()  # guards the three above
        self._seconds_per_input = 0.0
        self._thread = Thread(target=self._work, name="batches", daemon=True)

    def start(self) -> None:
        """Start computing for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Compute what waits, then stop. Blocks until then."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    async def run(self, inputs: list[Input], finish: Callable[[Tensor, int], Answer]) -> Answer:
        """Queue inputs and wait for the answer. If this is cancelled, the inputs leave the queue.

        Args:
            inputs: at least one.
            finish: maps the embeddings, [inputs, hidden] fp32 on the device, and the number of tokens to the answer.
                Called in the computing thread, without gradients.

        Raises:
            QueueFull: the queue has no room for the inputs.
        """
        job = Job(inputs, finish, self._loop.create_future())
        with self._changed:
            if self._closed or self.waiting + job.left > self.most_waiting:
                raise QueueFull(min(max(math.ceil(self.waiting * self._seconds_per_input), 1), LONGEST_RETRY))
            self.waiting += job.left
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._changed:
                if job in self._jobs:  # otherwise a part of it is in the works, and `_next_job` drops the rest
                    self._jobs.remove(job)
                    self.waiting -= job.left
            raise

    def _work(self) -> None:
        # Autocast keeps the weights that it converted until the context ends, so one context serves all batches.
        with torch.no_grad(), self.model.runtime.autocast():
            while batch := self._next_batch():
                start, count = time.monotonic(), sum(len(inputs) for _, inputs in batch)
                try:
                    self._settle(self._compute(batch))
                except Exception as error:  # such as too little memory
                    self._settle([(job, error) for job, _ in batch])
                self._seconds_per_input += ((time.monotonic() - start) / count - self._seconds_per_input) / 8

    def _next_batch(self) -> Batch:
        """Waits until there is something to compute; empty when the queue is closed and nothing waits."""
        batch: Batch = []
        room = self.tokens_per_batch
        while room > 0 and (job := self._next_job(wait=not batch)):
            try:
                self._tokenise(job)
            except Exception as error:
                with self._changed:
                    self.waiting -= job.left
                self._settle([(job, error)])
                continue
            inputs = _take(job.ready, min(room, self.tokens_per_batch // TURNS_PER_BATCH), at_least_one=not batch)
            with self._changed:
                job.taken += len(inputs)
                self.waiting -= len(inputs)
                if not inputs:
                    self._jobs.appendleft(job)
                    break
                if job.left:
                    self._jobs.append(job)
            batch.append((job, inputs))
            room -= sum(len(each.ids) for each in inputs)
        return batch

    def _next_job(self, wait: bool) -> Job | None:
        """The request whose turn it is, taken from the queue."""
        with self._changed:
            while True:
                while self._jobs:
                    job = self._jobs.popleft()
                    if not job.future.done():
                        return job
                    self.waiting -= job.left
                if self._closed or not wait:
                    return None
                self._changed.wait()

    def _tokenise(self, job: Job) -> None:
        """Tokenise the next inputs of a request if none are ready."""
        if not job.ready:
            inputs = job.inputs[job.tokenised : job.tokenised + TEXTS_PER_CALL]
            ids, types, _ = self.model.tokenizer.encode_and_count_cut(inputs, self.model.max_length)
            job.ready.extend(map(Encoded, ids, types))
            job.tokenised += len(inputs)
            job.tokens += sum(map(len, ids))

    def _compute(self, batch: Batch) -> list[tuple[Job, Any]]:
        """Compute a batch; returns the requests that it completes, each with its answer or an exception."""
        everything = [each for _, inputs in batch for each in inputs]
        packed = PackedBatch.from_sequences([each.ids for each in everything], [each.types for each in everything])
        self.metrics.count_batch(len(everything), len(packed.input_ids))
        embeddings = self.model.embed(packed.to(self.model.runtime.device))
        for (job, _), part in zip(batch, embeddings.split([len(inputs) for _, inputs in batch]), strict=True):
            job.embeddings.append(part)
        jobs = dict.fromkeys(job for job, _ in batch)
        return [(job, _finished(job)) for job in jobs if sum(map(len, job.embeddings)) == len(job.inputs)]

    def _settle(self, outcomes: list[tuple[Job, Any]]) -> None:
        """Hand answers, or the exceptions that took their place, to the event loop."""

        def settle() -> None:
            for job, outcome in outcomes:
                if job.future.done():
                    continue
                if isinstance(outcome, Exception):
                    job.future.set_exception(outcome)
                else:
                    job.future.set_result(outcome)

        if outcomes:
            self._loop.call_soon_threadsafe(settle)


def _take(ready: deque[Encoded], room: int, at_least_one: bool) -> list[Encoded]:
    """Take the inputs that fit into so many tokens from the front."""
    taken: list[Encoded] = []
    while ready and (len(ready[0].ids) <= room or (at_least_one and not taken)):
        room -= len(ready[0].ids)
        taken.append(ready.popleft())
    return taken


def _finished(job: Job) -> Any:
    """The answer, or the exception in its place: a request that fails must not fail the others of its batch."""
    try:
        return job.finish(torch.cat(job.embeddings), job.tokens)
    except Exception as error:
        return error

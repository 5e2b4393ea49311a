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
from starlette.exceptions import HTTPException
from torch import Tensor

from minbert.packing import PackedBatch
from minbert.tokenizer import Ids
from multitask.inference.serve.metrics import Metrics
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.multitask_model import MultitaskModel

TEXTS_PER_TURN = 32  # a request with many texts must not hold up the others
TURNS_PER_BATCH = 2  # neither must one with long texts: a turn is over after half a batch
CHARACTERS_PER_TOKEN = 4  # roughly
LONGEST_RETRY = 60  # seconds

Input = str | tuple[str, str]
"""A text, or a pair of texts that the encoder reads as one input."""
Answer = TypeVar("Answer")


class QueueFull(HTTPException):
    """The queue has no room for a request; `seconds` until there probably is."""

    def __init__(self, seconds: int) -> None:
        super().__init__(503, f"too many texts are waiting; try again in {seconds} s", {"Retry-After": str(seconds)})


@dataclass(eq=False)
class Job:
    """A request in the queue. If its future is done (cancelled or failed), the rest of it need not be computed."""

    left: deque[Input]  # what waits
    size: int  # number of all inputs
    finish: Callable[[Tensor, int], Any]
    future: asyncio.Future[Any]
    embeddings: list[Tensor] = field(default_factory=list)  # [inputs of a turn, hidden] each
    tokens: int = 0

    def turn(self, most_characters: int) -> list[Input]:
        """Take the inputs of the next turn, at least one."""
        taken = [self.left.popleft()]
        characters = _characters(taken[0])
        while self.left and len(taken) < TEXTS_PER_TURN:
            if (characters := characters + _characters(self.left[0])) > most_characters:
                break
            taken.append(self.left.popleft())
        return taken


class Turn(NamedTuple):
    """Inputs of a request in a batch: their token ids and types."""

    job: Job
    ids: list[Ids]
    types: list[Ids]


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

    @property
    def computes(self) -> bool:
        """Whether the thread lives."""
        return self._thread.is_alive()

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
        job = Job(deque(inputs), len(inputs), finish, self._loop.create_future())
        with self._changed:
            if self._closed or self.waiting + job.size > self.most_waiting:
                raise QueueFull(min(max(math.ceil(self.waiting * self._seconds_per_input), 1), LONGEST_RETRY))
            self.waiting += job.size
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._changed:
                if job in self._jobs:
                    self._jobs.remove(job)
                    self.waiting -= len(job.left)
            raise

    def _work(self) -> None:
        # Autocast keeps the weights that it converted until the context ends, so one context serves all batches.
        with torch.no_grad(), self.model.runtime.autocast():
            while batch := self._next_batch():
                start, count = time.monotonic(), sum(len(turn.ids) for turn in batch)
                try:
                    self._settle(self._compute(batch))
                except BaseException as error:  # such as too little memory, or a panic of Rust code
                    self._settle([(turn.job, error) for turn in batch])
                self._seconds_per_input += ((time.monotonic() - start) / count - self._seconds_per_input) / 8

    def _next_batch(self) -> list[Turn]:
        """Waits until there is something to compute; empty when the queue is closed and nothing waits."""
        batch: list[Turn] = []
        room = self.tokens_per_batch
        while room > 0 and (found := self._next_inputs(wait=not batch)):
            job, inputs = found
            try:
                ids, types, _ = self.model.tokenizer.encode_and_count_cut(inputs, self.model.max_length)
            except BaseException as error:
                self._settle([(job, error)])
                continue
            batch.append(Turn(job, ids, types))
            room -= sum(map(len, ids))
        return batch

    def _next_inputs(self, wait: bool) -> tuple[Job, list[Input]] | None:
        """The request whose turn it is, and the inputs of its turn, which leave the queue."""
        with self._changed:
            while True:
                while self._jobs:
                    job = self._jobs.popleft()
                    if job.future.done():
                        self.waiting -= len(job.left)
                        continue
                    inputs = job.turn(self.tokens_per_batch // TURNS_PER_BATCH * CHARACTERS_PER_TOKEN)
                    self.waiting -= len(inputs)
                    if job.left:
                        self._jobs.append(job)
                    return job, inputs
                if self._closed or not wait:
                    return None
                self._changed.wait()

    def _compute(self, batch: list[Turn]) -> list[tuple[Job, Any]]:
        """Compute a batch; returns the requests that it completes, each with its answer or an exception."""
        ids, types = [each for turn in batch for each in turn.ids], [each for turn in batch for each in turn.types]
        packed = PackedBatch.from_sequences(ids, types)
        self.metrics.inputs.inc(len(ids))
        self.metrics.tokens.observe(len(packed.input_ids))
        embeddings = self.model.embed(packed.to(self.model.runtime.device))
        for turn, part in zip(batch, embeddings.split([len(turn.ids) for turn in batch]), strict=True):
            turn.job.embeddings.append(part)
            turn.job.tokens += sum(map(len, turn.ids))
        jobs = dict.fromkeys(turn.job for turn in batch)
        return [(job, _finished(job)) for job in jobs if sum(map(len, job.embeddings)) == job.size]

    def _settle(self, outcomes: list[tuple[Job, Any]]) -> None:
        """Hand answers, or the exceptions that took their place, to the event loop."""

        def settle() -> None:
            for job, outcome in outcomes:
                if job.future.done():
                    continue
                if isinstance(outcome, Exception):
                    job.future.set_exception(outcome)
                elif isinstance(outcome, BaseException):  # no handler of the service's errors takes it
                    job.future.set_exception(RuntimeError(f"{type(outcome).__name__}: {outcome}"))
                else:
                    job.future.set_result(outcome)

        if outcomes:
            self._loop.call_soon_threadsafe(settle)


def _characters(each: Input) -> int:
    return len(each) if isinstance(each, str) else sum(map(len, each))


def _finished(job: Job) -> Any:
    """The answer, or the exception in its place: a request that fails must not fail the others of its batch."""
    try:
        return job.finish(torch.cat(job.embeddings), job.tokens)
    except BaseException as error:
        return error

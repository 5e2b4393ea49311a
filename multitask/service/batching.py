"""Requests wait in a queue and are computed in batches; they are counted in the format of Prometheus."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from minbert.config import Long
from minbert.tokenizer import Ids
from multitask.models.compute_in_batches import TOKENS_PER_BATCH
from multitask.models.sentence_encoder import SentenceEncoder

SECOND_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKEN_BUCKETS = (16, 64, 256, 1024, 2048, 4096, 16384, 65536)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.paths: set[str] = set()  # which are counted apart
        self.registry = to = CollectorRegistry()
        self.requests = Counter("multitask_requests", "Answered requests.", ("path", "status"), registry=to)
        self.begun = Counter("multitask_begun_requests", "Requests, answered or not.", registry=to)
        self.seconds = Histogram(
            "multitask_request_seconds", "Time to answer.", ("path",), buckets=SECOND_BUCKETS, registry=to
        )
        self.inputs = Counter("multitask_inputs", "Texts that were computed.", registry=to)
        self.tokens = Histogram("multitask_batch_tokens", "Tokens a batch.", buckets=TOKEN_BUCKETS, registry=to)
        self.waiting = Gauge("multitask_waiting_inputs", "Texts in the queue of a model.", ("model",), registry=to)

    def totals(self) -> tuple[int, int]:
        """How many requests were answered, and how many were not."""
        begun, answers = next(iter(self.begun.collect())), next(iter(self.requests.collect()))
        answered = int(sum(sample.value for sample in answers.samples if sample.name.endswith("_total")))
        return answered, int(begun.samples[0].value) - answered


class CountRequests:
    """ASGI middleware that counts answers. Paths that the service does not have are counted together."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.metrics.begun.inc()
        start = time.monotonic()
        path, answered = scope["path"] if scope["path"] in self.metrics.paths else "other", False

        def count(status: int) -> None:
            nonlocal answered
            answered = True
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - start)

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except Exception:  # Starlette answers it outside of all middleware
            if not answered:
                count(500)
            raise


TEXTS_PER_TURN = 32  # a request with many texts must not hold up the others
TURNS_PER_BATCH = 2  # neither must one with long texts: a turn is over after half a batch
LONGEST_RETRY = 60  # seconds

Input = str | tuple[str, str]
"""A text, or a pair of texts that the encoder reads as one input."""
RequestTokens = tuple[Ids, Ids]
"""Token ids of an input, and their types."""
Answer = TypeVar("Answer")


class QueueFull(HTTPException):
    """The queue has no room for a request; `seconds` until there probably is."""

    def __init__(self, seconds: int) -> None:
        super().__init__(503, f"too many texts are waiting; try again in {seconds} s", {"Retry-After": str(seconds)})


@dataclass(eq=False)
class RequestJob:
    """A request in the queue. If its answer is there (cancelled or failed), the rest of it need not be computed."""

    left: deque[Any]  # what waits: `Input`, and `RequestTokens` once it is in the queue
    size: int  # number of all inputs
    finish: Callable[[Tensor, int], Any]
    answer: asyncio.Future[Any]
    embeddings: list[Tensor] = field(default_factory=list)  # [inputs of a turn, hidden] each
    tokens: int = 0

    def turn(self, most_tokens: int) -> list[RequestTokens]:
        """Take the inputs of the next turn, at least one."""
        taken = [self.left.popleft()]
        tokens = len(taken[0][0])
        while self.left and len(taken) < TEXTS_PER_TURN and (tokens := tokens + len(self.left[0][0])) <= most_tokens:
            taken.append(self.left.popleft())
        return taken


RequestBatch = list[tuple[RequestJob, list[RequestTokens]]]
"""Requests, and the inputs of their turns."""


class Batcher:
    """Embeds the inputs of requests. At most `most_waiting` wait, or one request. The encoder is in eval mode."""

    def __init__(self, encoder: SentenceEncoder, most_waiting: int, metrics: Metrics) -> None:
        self.encoder = encoder
        self.most_waiting = most_waiting
        self.metrics = metrics
        self.tokens_per_batch = TOKENS_PER_BATCH[encoder.runtime.device.type]
        self.waiting = 0  # inputs
        self._jobs: deque[RequestJob] = deque()
        self._closed = False
        self._changed = asyncio.Event()  # one of the three above
        self._seconds_per_input = 0.0
        self._tokenising = ThreadPoolExecutor(1, "tokens")
        self._computing = ThreadPoolExecutor(1, "batches", initializer=self._set_up_thread)

    def _set_up_thread(self) -> None:
        torch.set_grad_enabled(False)
        # Autocast keeps the weights that it converted until the context ends, so one context serves all batches.
        self.encoder.runtime.autocast().__enter__()

    def start(self) -> None:
        """Start computing for requests of the running event loop."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def computes(self) -> bool:
        """Whether waiting inputs will be computed."""
        return not self._worker.done()

    async def close(self) -> None:
        """Compute what waits, then stop, and say how many texts were too long."""
        self._closed = True
        self._changed.set()
        await self._worker
        self._tokenising.shutdown()
        self._computing.shutdown()
        self.encoder.counts.warn("served texts")

    async def run(
        self, inputs: list[Input], finish: Callable[[Tensor, int], Answer], longs: Sequence[Long] = ()
    ) -> Answer:
        """Queue inputs, at least one, and wait for the answer. If this is cancelled, the inputs leave the queue.

        `longs` say how each is read if it has too many tokens; empty: its first tokens alone.

        `finish` maps the embeddings, [inputs, hidden] fp32 on the device, and the number of tokens to the answer. It is
        called in the computing thread. Raises QueueFull.
        """
        # Each way in which a model's tasks read a text is an input, so one request may have more than fit.
        if self._closed or (self.waiting and self.waiting + len(inputs) > self.most_waiting):
            raise QueueFull(min(max(math.ceil(self.waiting * self._seconds_per_input), 1), LONGEST_RETRY))
        loop = asyncio.get_running_loop()
        job = RequestJob(deque(inputs), len(inputs), finish, loop.create_future())
        self.waiting += job.size
        try:
            job.left = deque(await loop.run_in_executor(self._tokenising, self._encode, inputs, longs))
            self._jobs.append(job)
            self._changed.set()
            return await job.answer
        finally:
            self.waiting -= len(job.left)
            job.left.clear()
            self._changed.set()

    def _encode(self, inputs: list[Input], longs: Sequence[Long]) -> list[RequestTokens]:
        found: list[RequestTokens] = []
        length = self.encoder.max_length
        for long, part in groupby(zip(inputs, longs or ["head"] * len(inputs), strict=True), key=itemgetter(1)):
            encoded = self.encoder.tokenizer.encode_and_count([text for text, _ in part], length, long)
            self.encoder.counts.add_long(len(encoded.ids), encoded.cut, length, long)
            found += zip(encoded.ids, encoded.types, strict=True)
        return found

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting or not self._closed:
            if not (batch := self._next_batch()):
                self._changed.clear()
                await self._changed.wait()
                continue
            start, count = time.monotonic(), sum(len(turn) for _, turn in batch)
            for job, outcome in await loop.run_in_executor(self._computing, self._compute, batch):
                if job.answer.done():
                    continue
                if isinstance(outcome, BaseException):
                    job.answer.set_exception(outcome)
                else:
                    job.answer.set_result(outcome)
            self._seconds_per_input += ((time.monotonic() - start) / count - self._seconds_per_input) / 8

    def _next_batch(self) -> RequestBatch:
        """What is computed next; it leaves the queue."""
        batch: RequestBatch = []
        room = self.tokens_per_batch
        while room > 0 and self._jobs:
            job = self._jobs.popleft()
            if job.answer.done() or not job.left:
                continue
            turn = job.turn(self.tokens_per_batch // TURNS_PER_BATCH)
            batch.append((job, turn))
            self.waiting -= len(turn)
            room -= sum(len(ids) for ids, _ in turn)
            if job.left:
                self._jobs.append(job)
        return batch

    def _compute(self, batch: RequestBatch) -> list[tuple[RequestJob, Any]]:
        """Compute a batch; returns the requests that it completes, each with its answer or an exception."""
        try:
            ids, types = zip(*(each for _, turn in batch for each in turn), strict=True)
            embeddings = self.encoder.embed(ids, types)
        except BaseException as error:  # such as too little memory, or a panic of Rust code
            return [(job, _as_exception(error)) for job, _ in batch]
        sizes = [len(turn) for _, turn in batch]
        self.metrics.inputs.inc(sum(sizes))
        self.metrics.tokens.observe(sum(map(len, ids)))
        for (job, turn), part in zip(batch, embeddings.split(sizes), strict=True):
            job.embeddings.append(part)
            job.tokens += sum(len(ids) for ids, _ in turn)
        return [(job, _finished(job)) for job in dict(batch) if sum(map(len, job.embeddings)) == job.size]


def _finished(job: RequestJob) -> Any:
    """The answer, or the exception in its place: a request that fails must not fail the others of its batch."""
    try:
        return job.finish(torch.cat(job.embeddings), job.tokens)
    except BaseException as error:
        return _as_exception(error)


def _as_exception(error: BaseException) -> Exception:
    """An exception that the service's handlers take, which a panic of Rust code is not."""
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")

"""What the service counts, in the format of Prometheus."""

import time
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 16384, 65536)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("multitask_requests", "Answered requests.", ("path", "status"), registry=self.registry)
        self._begun = Counter("multitask_begun_requests", "Requests, answered or not.", registry=self.registry)
        self._seconds = Histogram(
            "multitask_request_seconds", "Time to answer.", ("path",), buckets=SECONDS, registry=self.registry
        )
        self._inputs = Counter("multitask_inputs", "Texts that were computed.", registry=self.registry)
        self._tokens = Histogram("multitask_batch_tokens", "Tokens a batch.", buckets=TOKENS, registry=self.registry)
        self._waiting = Gauge(
            "multitask_waiting_inputs", "Texts in the queue of a model.", ("model",), registry=self.registry
        )

    def count_begun(self) -> None:
        """Count a request."""
        self._begun.inc()

    def count_answer(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, inputs: int, tokens: int) -> None:
        """Count a batch of the encoder."""
        self._inputs.inc(inputs)
        self._tokens.observe(tokens)

    def watch_queue(self, model: str, waiting: Callable[[], float]) -> None:
        """Report the length of a model's queue."""
        self._waiting.labels(model).set_function(waiting)

    def totals(self) -> tuple[int, int]:
        """How many requests were answered, and how many were not."""
        begun, answers = next(iter(self._begun.collect())), next(iter(self._requests.collect()))
        answered = int(sum(sample.value for sample in answers.samples if sample.name.endswith("_total")))
        return answered, int(begun.samples[0].value) - answered

    def page(self) -> bytes:
        """All values as text."""
        return generate_latest(self.registry)


class CountRequests:
    """ASGI middleware that counts answers. Paths that the service does not have are counted together."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.metrics.count_begun()
        start = time.monotonic()
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.count_answer(path, message["status"], time.monotonic() - start)
            await send(message)

        await self.app(scope, receive, count)

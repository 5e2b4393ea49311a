"""What the service counts, in the format of Prometheus."""

import time
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 16384, 65536)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = to = CollectorRegistry()
        self.requests = Counter("multitask_requests", "Answered requests.", ("path", "status"), registry=to)
        self.begun = Counter("multitask_begun_requests", "Requests, answered or not.", registry=to)
        self.seconds = Histogram(
            "multitask_request_seconds", "Time to answer.", ("path",), buckets=SECONDS, registry=to
        )
        self.inputs = Counter("multitask_inputs", "Texts that were computed.", registry=to)
        self.tokens = Histogram("multitask_batch_tokens", "Tokens a batch.", buckets=TOKENS, registry=to)
        self.waiting = Gauge("multitask_waiting_inputs", "Texts in the queue of a model.", ("model",), registry=to)

    def totals(self) -> tuple[int, int]:
        """How many requests were answered, and how many were not."""
        begun, answers = next(iter(self.begun.collect())), next(iter(self.requests.collect()))
        answered = int(sum(sample.value for sample in answers.samples if sample.name.endswith("_total")))
        return answered, int(begun.samples[0].value) - answered


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
        self.metrics.begun.inc()
        start = time.monotonic()
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.requests.labels(path, str(message["status"])).inc()
                self.metrics.seconds.labels(path).observe(time.monotonic() - start)
            await send(message)

        await self.app(scope, receive, count)

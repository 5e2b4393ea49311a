"""Connections that end when a request's head (first line and headers) is too slow or too large.

They also end when trailers are too large, and when the client does not read its answer. Requests that a client sends
without waiting for answers are not read ahead. Uvicorn limits none of these: its only time-out is for idle
connections, from the end of an answer to the next byte. `guard` limits bodies.
"""

import asyncio
from collections.abc import Sized
from functools import partial
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from multitask.inference.serve.limits import Limits

LARGEST_HEAD = 64 * 2**10
"""Bytes; uvicorn's limit for its other parser."""


class Flow(FlowControl):
    """Reads no further while requests of the connection wait for their turn.

    Uvicorn reads on after each answer, and one read may bring thousands of requests.

    Args:
        transport: of the connection.
        pipeline: the requests that wait.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """A connection with a time for each head and each answer, and a size for heads and trailers.

    A whole head that is too large is answered with 400. In all other cases the connection closes without answer.

    Args:
        timeout: seconds for a head, from the connection's start or the previous answer's end, and for the client to
            read an answer that does not fit into the system's buffers.
        settings: of uvicorn.
    """

    def __init__(self, *, timeout: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._timeout = timeout
        self._head_deadline: asyncio.TimerHandle | None = None  # while a head is waited for
        self._answer_deadline: asyncio.TimerHandle | None = None  # while the client has to read
        # Bytes since a request began, its head ended or a piece of its body came. None between requests.
        self._unfinished: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        transport.set_write_buffer_limits(high=0)  # calls pause_writing as soon as the client has to read
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._unfinished is not None:
            self._unfinished += len(data)
        super().data_received(data)  # sets the number to 0 when the request goes on
        if self._unfinished is not None and self._unfinished > LARGEST_HEAD:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unfinished = 0

    def on_headers_complete(self) -> None:
        # Again, because the read in which a head ends was not counted. Each header has a colon and a line break.
        if len(self.url) + sum(len(name) + len(value) + 3 for name, value in self.headers) > LARGEST_HEAD:
            raise ValueError("the head is too large")  # uvicorn answers 400 and closes the connection
        self._unfinished = 0
        _cancel(self._head_deadline)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unfinished = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unfinished = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer_deadline = self.loop.call_later(self._timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._answer_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_deadline)
        _cancel(self._answer_deadline)
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        _cancel(self._head_deadline)
        if self.cycle is None or self.cycle.response_complete:  # otherwise the head of the next request is here
            self._head_deadline = self.loop.call_later(self._timeout, self.transport.close)


def _cancel(deadline: asyncio.TimerHandle | None) -> None:
    if deadline is not None:
        deadline.cancel()


def connections(limits: Limits) -> Any:
    """What uvicorn's option `http` takes: makes connections with these limits."""
    return partial(Connection, timeout=limits.timeout)

"""Connections that close when the head of a request (its first line and headers) is too slow or too large.

Uvicorn limits neither: its only time-out is for idle connections, from the end of an answer to the next byte. `guard`
limits what comes after the head.
"""

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from multitask.inference.serve.limits import Limits

LARGEST_HEAD = 64 * 2**10
"""Bytes; uvicorn's limit for its other parser."""


class Connection(HttpToolsProtocol):
    """A connection whose requests' heads have to arrive within a time and a size. Otherwise it closes without answer.

    Args:
        timeout: seconds for a head, from the connection's start or the previous answer's end.
        settings: of uvicorn.
    """

    def __init__(self, *, timeout: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._timeout = timeout
        self._deadline: asyncio.TimerHandle | None = None  # while a head is waited for
        self._head: int | None = None  # its size in bytes so far, from its first byte to its last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        self._head = None
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        if self.cycle is None or self.cycle.response_complete:  # otherwise the head of the next request is here
            self._deadline = self.loop.call_later(self._timeout, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connections(limits: Limits) -> Any:
    """What uvicorn's option `http` takes: makes connections with these limits."""
    return partial(Connection, timeout=limits.timeout)

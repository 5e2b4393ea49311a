"""ASGI middleware in front of all routes: who may ask, by which host name, and how large and slow a body may be.

FastAPI's own `max_body_size` answers with plain text, not with JSON.
"""

import asyncio
import hmac
from collections.abc import Collection
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multitask.inference.serve.limits import Limits
from multitask.inference.serve.messages import problem

OPEN = ("/healthz", "/docs", "/openapi.json", "/")
OPEN_FOLDER = "/explore/assets/"
"""Paths that need no token: they tell nothing about the models. The folder has the page's scripts and stylesheet."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")

DISCARDED = 256 * 2**20
"""Bytes of a too large body that are read before the answer."""
DISCARDING = 10.0
"""Seconds for that."""


class Guard:
    """Refuses requests without the token or under a wrong host name, and bodies that are too large or too slow.

    Args:
        app: the application.
        limits: size of a body, and the time for it to arrive.
        token: what the Authorization header has to bear; None: everyone may ask.
        hosts: the names that the Host header may have, without ports; None: any. A page of another site can let its own
            name lead to the loopback address (DNS rebinding), but the browser then sends that name.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, hosts: Collection[str] | None = None) -> None:
        self.app = app
        self.limits = limits
        self.hosts = hosts
        self.expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if self.hosts is not None and (host := _without_port(headers.get("host", ""))) not in self.hosts:
            refusal = problem(421, f"this service is not {host or 'without a name'}; ask {' or '.join(self.hosts)}")
            await refusal(scope, receive, send)
            return
        if not self._may_ask(scope["path"], headers.get("authorization", "")):
            refusal = problem(401, "expected the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
        elif length.isdecimal() and int(length) > self.limits.body:
            await _discard(receive)
            await problem(413, self._too_large)(scope, receive, send)
        else:
            await self.app(scope, self._limited(receive), send)

    @property
    def _too_large(self) -> str:
        return f"the body has more than {self.limits.body:,} bytes; send fewer or shorter texts"

    def _may_ask(self, path: str, authorization: str) -> bool:
        if self.expected is None or path in OPEN or path.startswith(OPEN_FOLDER):
            return True
        given = authorization.encode("latin-1")
        return hmac.compare_digest(given, self.expected)  # the time that this takes tells nothing about the token

    def _limited(self, receive: Receive) -> Receive:
        """Receives a body within the limits. Raises HTTPException beyond them."""
        deadline = asyncio.get_running_loop().time() + self.limits.timeout
        size, complete = 0, False

        async def receive_limited() -> Message:
            nonlocal size, complete
            if complete:  # what comes next is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive in {self.limits.timeout:g} s") from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self.limits.body:
                await _discard(receive)
                raise HTTPException(413, self._too_large)
            return message

        return receive_limited


async def _discard(receive: Receive) -> None:
    """Read on for a while: to close with unread data resets the connection, and many clients then see no answer."""
    left = DISCARDED
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARDING):
            while left > 0 and (message := await receive()).get("more_body", False):
                left -= len(message.get("body", b""))


def _without_port(host: str) -> str:
    """The name or address in a Host header, which has an IPv6 address in brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()

"""ASGI middleware in front of all routes: who may ask, and how large a body may be.

Starlette's own middleware refuses large bodies with plain text, which does not say the limit.
"""

import asyncio
import base64
import hmac
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multitask.inference.serve.limits import Limits
from multitask.inference.serve.messages import problem

OPEN = ("/healthz", "/docs", "/openapi.json")
"""Paths that need no token: they tell nothing about the models."""
DISCARDED = 256 * 2**20
"""Bytes of a too large body that are read before the answer."""
DISCARDING = 10.0
"""Seconds for that."""
LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")


class Guard:
    """Refuses requests without the token, and bodies that are too large. Without a token everyone may ask."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None) -> None:
        self.app = app
        self.limits = limits
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if not self._may_ask(scope["path"], headers.get("authorization", "")):
            how = "Basic" if scope["path"] == "/" else "Bearer"  # a browser asks its user for a password
            refusal = problem(401, "expected the header Authorization: Bearer TOKEN", {"WWW-Authenticate": how})
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
        if self.token is None or path in OPEN:
            return True
        scheme, _, given = authorization.encode("latin-1").partition(b" ")
        if scheme.lower() == b"basic":  # RFC 7617: user and password
            with suppress(ValueError):
                given = base64.b64decode(given).partition(b":")[2]
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(given, self.token)  # in a time that tells nothing about the token

    def _limited(self, receive: Receive) -> Receive:
        """Receives a body of any stated or unstated length. Raises HTTPException beyond the limit."""
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.limits.body:
                if message.get("more_body", False):
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

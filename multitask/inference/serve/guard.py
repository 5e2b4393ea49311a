"""ASGI middleware in front of all routes: it asks for the token, and does not wait for ever for a request's body."""

import asyncio
import hmac

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multitask.inference.serve.messages import problem

OPEN = ("/healthz", "/docs", "/openapi.json")
"""Paths that need no token: they tell nothing about the models."""


class Guard:
    """Refuses requests without the token, or whose body does not arrive in time.

    Args:
        app: the application.
        seconds: for the body to arrive.
        token: what the Authorization header has to bear; None: everyone may ask.
    """

    def __init__(self, app: ASGIApp, seconds: float, token: str | None) -> None:
        self.app = app
        self.seconds = seconds
        self.expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._may_ask(scope):
            await self.app(scope, self._in_time(receive), send)
        else:
            refusal = problem(401, "expected the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)

    def _may_ask(self, scope: Scope) -> bool:
        if self.expected is None or scope["path"] in OPEN:
            return True
        given = Headers(scope=scope).get("authorization", "").encode("latin-1")
        return hmac.compare_digest(given, self.expected)  # the time that this takes tells nothing about the token

    def _in_time(self, receive: Receive) -> Receive:
        deadline = asyncio.get_running_loop().time() + self.seconds
        complete = False

        async def receive_in_time() -> Message:
            nonlocal complete
            if complete:  # what comes next is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the request's body did not arrive in {self.seconds:g} s") from None
            complete = not message.get("more_body", False)
            return message

        return receive_in_time

"""The application: its routes, its errors, and in front of them who may ask and how large a body may be.

Starlette's own middleware refuses large bodies with plain text, which does not say the limit.
"""

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minbert.errors import InputError
from multitask.base import logger
from multitask.models.multitask_model import MultitaskModel
from multitask.service import explore_routes, routes
from multitask.service.batching import CountRequests, Metrics
from multitask.service.explorer import ExploredSet, Explorer
from multitask.service.limits import Limits
from multitask.service.served_model import ServedModel, Service, problem

API_DESCRIPTION = 'Predictions, embeddings and similarities. Errors are JSON: {"error": "what is wrong"}.'
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


def create_app(
    models: Mapping[str, MultitaskModel],
    limits: Limits,
    token: str | None = None,
    hosts: Sequence[str] | None = None,
    dev_sets: Mapping[str, ExploredSet] | None = None,
) -> FastAPI:
    """The service as an ASGI application. Its models compute from the start to the end of its lifespan.

    The first of the models, which are in eval mode, is the default. With a `token` requests have to bear it. With
    `hosts` they have to be for one of these host names, without ports. Its page at `/` has the dev sets by task.
    """
    metrics = Metrics()
    both = (routes.router, explore_routes.router)
    metrics.paths |= {path.path for router in both for path in router.routes if isinstance(path, APIRoute)}
    served = {name: ServedModel(name, model, limits, metrics) for name, model in models.items()}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for model in served.values():
            model.batcher.start()
            await model.embed(["The first batch is slow."], normalize=False)  # so it is not a user's
        yield
        for model in served.values():
            await model.batcher.close()
        logger.info("stopped; %d requests were answered, %d were not", *metrics.totals())

    app = FastAPI(
        title="minBERT Multitask",
        description=API_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from another host
        redoc_url=None,
        middleware=[
            Middleware(CountRequests, metrics=metrics),
            # A page of another site can let its own name lead to the loopback address (DNS rebinding), but the browser
            # then sends that name.
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(Guard, limits=limits, token=token),
        ],
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError, InputError, Exception), _refused),
    )
    app.state.service = Service(served, limits, metrics)
    app.state.explorer = Explorer(models, dev_sets or {})
    for router in both:
        app.include_router(router)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    """An error as an answer; the server's log has the details of unexpected ones."""
    match error:
        case HTTPException(status_code=400):  # FastAPI's own says nothing
            return problem(400, "the body cannot be read: not UTF-8, nested too deeply, or too long a number")
        case HTTPException():
            return problem(error.status_code, str(error.detail), error.headers)
        case InputError():
            return problem(422, str(error))
        case RequestValidationError():
            return _not_understood(error)
    return problem(500, "internal error")


def _not_understood(error: RequestValidationError) -> Response:
    """The first problem, and its place in the body."""
    # Of a field's alternatives, what came furthest: an empty list is one that is too short, not a wrong text.
    first = max(error.errors(), key=lambda found: (len(found["loc"]), found["type"] == "too_short"))
    if first["type"] == "json_invalid":
        return problem(400, f"the body is not JSON from character {first['loc'][-1]} on")
    if first["type"] == "model_attributes_type":
        return problem(422, "the body is no JSON object, or came without the header Content-Type: application/json")
    # Behind the field's name stand row numbers, and the types that pydantic tried.
    name, *inside = first["loc"][1:] or ["body"]
    place = [str(name), *(str(part) for part in inside if isinstance(part, int))]
    return problem(422, f"{'.'.join(place)}: {first['msg']}")

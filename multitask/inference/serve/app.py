"""The application: models with their queues, the middleware, errors as JSON, and the routes."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response

from minbert.errors import InputError
from multitask.inference.serve.guard import Guard
from multitask.inference.serve.limits import Limits
from multitask.inference.serve.messages import problem
from multitask.inference.serve.metrics import CountRequests, Metrics
from multitask.inference.serve.routes import router
from multitask.inference.serve.served_model import ServedModel, Service
from multitask.models.multitask_model import MultitaskModel

logger = logging.getLogger("multitask")

DESCRIPTION = 'Predictions, embeddings and similarities. Errors are JSON: {"error": "what is wrong"}.'


def create_app(
    models: Mapping[str, MultitaskModel],
    limits: Limits,
    token: str | None = None,
    hosts: Sequence[str] | None = None,
) -> FastAPI:
    """The service as an ASGI application. Its models compute from the start to the end of its lifespan.

    The first of the models, which are in eval mode, is the default. With a `token` requests have to bear it. With
    `hosts` they have to be for one of these host names, without ports.
    """
    metrics = Metrics()
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
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from another host
        redoc_url=None,
        middleware=[
            Middleware(
                CountRequests,
                metrics=metrics,
                paths={route.path for route in router.routes if isinstance(route, APIRoute)},
            ),
            # A page of another site can let its own name lead to the loopback address (DNS rebinding), but the browser
            # then sends that name.
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(Guard, limits=limits, token=token),
        ],
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError, InputError, Exception), _refused),
    )
    app.state.service = Service(served, limits, metrics)
    app.include_router(router)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    """An error as an answer; the server's log has the details of unexpected ones."""
    match error:
        case HTTPException():
            return problem(error.status_code, str(error.detail), error.headers)
        case InputError():
            return problem(422, str(error))
        case RequestValidationError():
            return _not_understood(error)
    return problem(500, "internal error")


def _not_understood(error: RequestValidationError) -> Response:
    """The first problem, and its place in the body."""
    first = max(error.errors(), key=lambda found: len(found["loc"]))  # of a field's alternatives, what came furthest
    if first["type"] == "json_invalid":
        return problem(400, f"the body is not JSON from character {first['loc'][-1]} on")
    # Behind the field's name stand row numbers, and the types that pydantic tried.
    name, *inside = first["loc"][1:] or ["body"]
    place = [str(name), *(str(part) for part in inside if isinstance(part, int))]
    return problem(422, f"{'.'.join(place)}: {first['msg']}")

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

    Args:
        models: by name, in eval mode; at least one. The first is the default.
        limits: what is accepted.
        token: that requests have to bear; None: everyone may ask.
        hosts: the host names that requests may be for, without ports; None: any.
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
        exception_handlers={
            HTTPException: _refused,
            RequestValidationError: _not_understood,
            InputError: _wrong_input,
            Exception: _failed,
        },
    )
    app.state.service = Service(served, limits, metrics)
    app.include_router(router)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), error.headers)


async def _not_understood(_: Request, error: Exception) -> Response:
    """The first problem, and its place in the body."""
    assert isinstance(error, RequestValidationError)
    first = max(error.errors(), key=lambda found: len(found["loc"]))  # of a field's alternatives, what came furthest
    if first["type"] == "json_invalid":
        return problem(400, f"the body is not JSON from character {first['loc'][-1]} on")
    # Behind the field's name stand row numbers, and the types that pydantic tried.
    name, *inside = first["loc"][1:] or ["body"]
    place = [str(name), *(str(part) for part in inside if isinstance(part, int))]
    return problem(422, f"{'.'.join(place)}: {first['msg']}")


async def _wrong_input(_: Request, error: Exception) -> Response:
    return problem(422, str(error))


async def _failed(_: Request, _error: Exception) -> Response:
    return problem(500, "internal error")  # the server's log has the details

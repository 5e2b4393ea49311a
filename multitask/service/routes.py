"""The routes of the service."""

import asyncio
import base64
from collections.abc import Coroutine, Iterable
from itertools import chain
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from minbert.errors import InputError
from minbert.files import NO_TEXT
from multitask.service.limits import Limits
from multitask.service.served_model import (
    EmbedAnswer,
    EmbedRequest,
    OpenAIRequest,
    PredictAnswer,
    PredictRequest,
    Problem,
    Service,
    SimilarityAnswer,
    SimilarityRequest,
    TaskDescription,
    TasksAnswer,
    json_response,
    prediction_json,
)
from multitask.tasks.kinds import Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.task import Task
from multitask.use.search import similarity

Answer = TypeVar("Answer")

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is not JSON."},
    401: {"model": Problem, "description": "The token is missing or wrong."},
    404: {"model": Problem, "description": "There is no such model."},
    413: {"model": Problem, "description": "The body is too large."},
    422: {"model": Problem, "description": "The request does not fit its form, the limits, or the model's tasks."},
    503: {"model": Problem, "description": "Too many texts wait; the header Retry-After says when to try again."},
    504: {"model": Problem, "description": "The answer took too long."},
}
CLIENT_WENT = 499  # nobody reads it; the metrics count it

router = APIRouter()


@router.post("/v1/predict", response_model=PredictAnswer, responses=REFUSALS)
async def predict(request: Request, asked: PredictRequest) -> Response:
    """Predict tasks for sentences or pairs of sentences."""
    service = service_of(request)
    name, model = service.model(asked.model)
    check_texts(service.limits, chain.from_iterable((row,) if isinstance(row, str) else row for row in asked.texts))
    found = await answer_in_time(request, model.predict(asked.texts, asked.tasks))
    return json_response(
        {"model": name, "predictions": {task: list(map(prediction_json, rows)) for task, rows in found.items()}}
    )


@router.post("/v1/embed", response_model=EmbedAnswer, responses=REFUSALS)
async def embed(request: Request, asked: EmbedRequest) -> Response:
    """Embed sentences."""
    service = service_of(request)
    name, model = service.model(asked.model)
    check_texts(service.limits, asked.texts)
    embeddings, _ = await answer_in_time(request, model.embed(asked.texts, asked.normalize, asked.dimensions))
    return json_response({"model": name, "embeddings": embeddings.tolist()})


@router.post("/v1/similarity", response_model=SimilarityAnswer, responses=REFUSALS)
async def similarities(request: Request, asked: SimilarityRequest) -> Response:
    """Compare sentences: the cosines of their embeddings."""
    service = service_of(request)
    name, model = service.model(asked.model)
    texts = asked.first + asked.second
    check_texts(service.limits, texts)
    embeddings, _ = await answer_in_time(request, model.embed(texts, normalize=False))
    count = len(asked.first)
    return json_response({"model": name, "similarities": similarity(embeddings[:count], embeddings[count:]).tolist()})


@router.post("/v1/embeddings", response_class=JSONResponse, responses=REFUSALS)
async def openai_embeddings(request: Request, asked: OpenAIRequest) -> Response:
    """Embed sentences; requests and answers have the shape of OpenAI's API."""
    service = service_of(request)
    name, model = service.model(asked.model)
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    check_texts(service.limits, texts)
    embeddings, tokens = await answer_in_time(request, model.embed(texts, True, asked.dimensions))
    written: list[Any]
    if asked.encoding_format == "base64":
        written = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in embeddings]
    else:
        written = embeddings.tolist()
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(written)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": name, "usage": usage})


@router.get("/v1/tasks", responses={401: REFUSALS[401]})
async def tasks(request: Request) -> TasksAnswer:
    """The tasks of each model."""
    models = service_of(request).models
    return TasksAnswer(
        models={
            name: {task: task_description(declared) for task, declared in served.model.tasks.items()}
            for name, served in models.items()
        }
    )


@router.get("/healthz", response_class=PlainTextResponse, responses={503: REFUSALS[503]})
async def health(request: Request) -> str:
    """Whether every model computes."""
    for name, served in service_of(request).models.items():
        if not served.batcher.computes:
            raise HTTPException(503, f"{name} does not compute any more")
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse, responses={401: REFUSALS[401]})
async def metrics(request: Request) -> Response:
    """Counters in the format of Prometheus."""
    return Response(generate_latest(service_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", include_in_schema=False)
async def documentation(request: Request) -> HTMLResponse:
    """A page about the routes, without scripts; /openapi.json has the details."""
    environment = Environment(loader=PackageLoader("multitask", "service"), autoescape=True)
    return HTMLResponse(environment.get_template("docs.html.jinja").render(schema=request.app.openapi()))


def service_of(request: Request) -> Service:
    """What the routes of a request use."""
    service: Service = request.app.state.service
    return service


def check_texts(limits: Limits, texts: Iterable[str], most: int | None = None) -> None:
    """Raise InputError for more than `most` texts (default: the limit of a request), too long ones, and no text."""
    most = limits.texts if most is None else most
    for number, text in enumerate(texts):
        if number == most:
            raise InputError(f"more than {most:,} texts in a request (a pair counts as two); send fewer at once")
        if len(text) > limits.characters:
            raise InputError(f"text {number} has {len(text):,} characters; expected at most {limits.characters:,}")
        if NO_TEXT.search(text):  # JSON can write half of a surrogate pair
            raise InputError(f"text {number} contains a NUL character or half of a surrogate pair")


async def answer_in_time(request: Request, work: Coroutine[Any, Any, Answer], patience: float = 0.0) -> Answer:
    """The result of this work, which may take `patience` seconds beyond the limit.

    It is cancelled if it takes too long or if the client closes the connection.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    seconds = service_of(request).limits.timeout + patience
    try:
        done, _ = await asyncio.wait({working, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            return working.result()
        if gone in done:
            raise HTTPException(CLIENT_WENT, "the client closed the connection")
        raise HTTPException(504, f"no answer after {seconds:g} s; the service is busy")
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def task_description(task: Task) -> TaskDescription:
    """A task as the service describes it."""
    labels = list(task.names) if isinstance(task, Labelled) else None
    bounds = task.bounds if isinstance(task, Regression) else None
    return TaskDescription(kind=task.kind, pair=task.pair, labels=labels, range=bounds)

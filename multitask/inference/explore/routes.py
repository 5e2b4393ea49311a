"""The routes of the page. The service renders all views and answers; the page's script fetches and inserts them."""

import math
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from pandas import DataFrame
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from multitask.inference.explore.contrast import (
    MOST_SENTENCES,
    contrast,
    different_sentences,
    fields_of,
    objective_of,
    without_labels,
)
from multitask.inference.explore.explain import (
    MOST_WORDS,
    explained_number,
    integrated_gradients,
    occlusion,
    without,
    words_of,
)
from multitask.inference.explore.explorer import DevSet, Explorer, csv_of
from multitask.inference.explore.neighbours import MOST_POINTS, Method, nearest
from multitask.inference.serve.messages import Asking
from multitask.inference.serve.routes import answer_in_time, check_texts, service_of
from multitask.models.predictions import Sentence
from multitask.objectives.config import describe
from multitask.tasks.labels import class_order

PAGE = 50  # rows of the table of errors
EXAMPLES = 40  # dev rows to pick from
FEW_LABELS = 50  # to choose from
MOST_SENTENCES_OF_ONES_OWN = 2000
COMPILING = 300.0
"""Seconds that a map by UMAP may take longer than other requests: numba compiles the first one for up to minutes."""
ASSETS = {"page.css": "text/css", "page.js": "text/javascript"}
COLOURS = ["#0b72c4", "#d1571c", "#2a8c5a", "#a2429e", "#b08a00", "#138a92", "#c43b55", "#6a5acd", "#7a6a4f", "#5f8f1f"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
ORDERS = {
    "worst": (["error", "confidence"], [False, False]),
    "unsure": (["confidence", "row"], [True, True]),
    "row": (["row"], [True]),
}

router = APIRouter(include_in_schema=False)


class ExplainRow(Asking):
    """A sentence, or a pair if there is a second one, to predict and explain."""

    first: str
    second: str = ""
    effects: Literal["occlusion", "integrated_gradients"] = "occlusion"


class FindNeighbours(Asking):
    """A query, and a task whose dev sentences are searched; without one, own sentences, one a line."""

    query: str
    task: str = ""
    sentences: str = ""
    method: Method = "pca"


class AskContrast(Asking):
    """Sentences, one a line, and what to do with them. Other fields are the objective's parameters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    sentences: str
    objective: str
    dropout: float = Field(0.1, ge=0, le=0.9)
    seed: int = Field(0, ge=0, le=2**31)
    step: float = Field(0.1, ge=0, le=10)


class ListRows(Asking):
    """Which rows of a task's dev set to show, and in which order; an empty text stands for any label."""

    task: str
    gold: str = ""
    predicted: str = ""
    only_wrong: bool = False
    order: Literal["worst", "unsure", "row"] = "worst"
    start: int = Field(0, ge=0)


def add_page(app: FastAPI, dev_sets: Mapping[str, DevSet]) -> None:
    """Give a service its page at `/`, with these dev sets by task."""
    models = {name: served.model for name, served in app.state.service.models.items()}
    app.state.explorer = Explorer(models, dev_sets)
    app.include_router(router)


@router.get("/")
async def page() -> HTMLResponse:
    """The page without its views: it tells nothing about the models, as it needs no token."""
    return HTMLResponse(_render("page"), headers=HEADERS)


@router.get("/explore/assets/{name}")
async def asset(name: str) -> Response:
    """The page's script, or its stylesheet."""
    if name not in ASSETS:
        raise HTTPException(404, "Not Found")
    content = files("multitask.inference.explore").joinpath(name).read_bytes()
    return Response(content, media_type=ASSETS[name], headers={"X-Content-Type-Options": "nosniff"})


@router.get("/explore/views")
async def views(request: Request) -> HTMLResponse:
    """The four views, with the models, the dev sets, some rows to pick from, and the objectives."""
    dev_sets = _explorer(request).dev_sets
    content = _render(
        "views",
        models=service_of(request).models,
        corpora=[(name, f"{name}: {len(found.sentences)} dev sentences") for name, found in dev_sets.items()],
        examples={
            name: next(iter(found.rows.values())).texts[:EXAMPLES].tolist()
            for name, found in dev_sets.items()
            if found.rows
        },
        objectives={name: (describe(name), fields_of(kind)) for name, kind in without_labels().items()},
        most=MOST_SENTENCES,
        most_own=MOST_SENTENCES_OF_ONES_OWN,
    )
    return HTMLResponse(content)


@router.post("/explore/predict")
async def predict(request: Request, asked: ExplainRow) -> HTMLResponse:
    """Every task's prediction for a row, and the effect of each word on it."""
    service, explorer = service_of(request), _explorer(request)
    name, model = service.model(asked.model)
    texts = [text for text in (asked.first.strip(), asked.second.strip()) if text]
    if not texts:
        raise HTTPException(422, "no text; type a sentence")
    check_texts(service.limits, texts)
    words = words_of(texts)
    row: Sentence = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    by_occlusion = asked.effects == "occlusion"
    shorter = [without(texts, word) for word in words[:MOST_WORDS]] if by_occlusion else []
    found = await answer_in_time(request, model.predict([row, *shorter], None)) if model.model.tasks else {}
    if by_occlusion:
        effects = {task: occlusion(whole, others, len(words)) for task, (whole, *others) in found.items()}
    else:
        explained = {task: explained_number(predictions[0]) for task, predictions in found.items()}
        work = partial(integrated_gradients, model.model, texts, explained)
        effects = await answer_in_time(request, explorer.compute(work))
    tasks = [(model.model.tasks[task], predictions[0], effects[task]) for task, predictions in found.items()]
    spelled = [(word.column, texts[word.column][word.start : word.end]) for word in words]
    return _answer("predict", name, tasks=tasks, words=spelled)


@router.post("/explore/neighbours")
async def neighbours(request: Request, asked: FindNeighbours) -> HTMLResponse:
    """The sentences that are nearest to a query, and a map of the first sentences."""
    service, explorer = service_of(request), _explorer(request)
    name, _ = service.model(asked.model)
    labels = _dev_set(request, asked.task).sentences if asked.task else dict.fromkeys(_lines(asked.sentences), "")
    if not asked.task:
        check_texts(service.limits, labels, MOST_SENTENCES_OF_ONES_OWN)
    check_texts(service.limits, [asked.query])
    sentences = tuple(labels)

    def work() -> dict[str, Any]:
        embeddings, query = explorer.encode_corpus(name, sentences), explorer.encode(name, (asked.query,))[0]
        plane = explorer.map(name, sentences, asked.method)
        points = [*plane.points.tolist(), plane.place(query).tolist()]
        scaled = [_to_frame([point[axis] for point in points]) for axis in (0, 1)]
        shown = sentences[:MOST_POINTS]
        return {
            "nearest": [(cosine, sentences[row], labels[sentences[row]]) for row, cosine in nearest(query, embeddings)],
            "points": sorted(zip(*scaled, shown, map(labels.get, shown), strict=False)),
            "query": [axis[-1] for axis in scaled],
            "variance": plane.variance,
        }

    found = await answer_in_time(request, explorer.compute(work), COMPILING if asked.method == "umap" else 0.0)
    colours = _colours({label for *_, label in found["points"]})
    return _answer("neighbours", name, count=len(labels), colours=colours, **found)


def _to_frame(values: list[float], size: float = 400, margin: float = 12) -> list[float]:
    """Coordinates on the map."""
    low, extent = min(values), max(values) - min(values) or 1
    return [round(margin + (value - low) / extent * (size - 2 * margin), 1) for value in values]


def _colours(labels: set[str]) -> dict[str, str]:
    """The colour of each label in order: its own, or of many labels a shade between blue and red."""
    ordered = class_order(labels)
    if len(ordered) <= len(COLOURS):
        return dict(zip(ordered, COLOURS, strict=False))
    return {label: f"hsl({220 - 220 * i / (len(ordered) - 1):.0f} 65% 50%)" for i, label in enumerate(ordered)}


@router.post("/explore/contrast")
async def contrast_route(request: Request, asked: AskContrast) -> HTMLResponse:
    """Similarities of two dropout views, the components of each anchor's gradient, and what a step changes."""
    service, explorer = service_of(request), _explorer(request)
    name, _ = service.model(asked.model)
    sentences = different_sentences(_lines(asked.sentences))
    check_texts(service.limits, sentences)
    objective = objective_of(asked.objective, asked.__pydantic_extra__)

    def work() -> dict[str, Any]:
        found = contrast(objective, *explorer.views(name, sentences, asked.dropout, asked.seed), asked.step)
        weights = found.components.weights.fill_diagonal_(math.nan).tolist()  # a positive is no negative
        return {"found": found, "parts": found.components, "weights": weights}

    return _answer("contrast", name, sentences=sentences, **await answer_in_time(request, explorer.compute(work)))


@router.post("/explore/errors")
async def errors(request: Request, asked: ListRows) -> HTMLResponse:
    """A part of a dev set's rows with predictions."""
    name, dev_set = _dev_rows(request, asked)
    rows = dev_set.rows[name]
    chosen = chosen_rows(rows, asked)
    labels = {column: sorted(set(rows[column])) for column in ("gold", "predicted")}
    return _answer(
        "errors",
        name,
        asked=asked,
        dev_set=dev_set,
        rows=list(chosen[asked.start : asked.start + PAGE].itertuples()),
        chosen=len(chosen),
        wrong=int((rows.error > 0).sum()),
        loaded=len(rows),
        page=PAGE,
        labels={column: found if len(found) <= FEW_LABELS else [] for column, found in labels.items()},
        numbers=bool(rows.confidence.isna().all()),
    )


@router.post("/explore/errors.csv")
async def errors_file(request: Request, asked: ListRows) -> Response:
    """All chosen rows as CSV."""
    name, dev_set = _dev_rows(request, asked)
    written = csv_of(chosen_rows(dev_set.rows[name], asked), dev_set.columns)
    disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(asked.task)}-dev.csv"}
    return Response(written.encode(), media_type="text/csv; charset=utf-8", headers=disposition)


def chosen_rows(rows: DataFrame, asked: ListRows) -> DataFrame:
    """The rows that are asked for; rows that are equal in their order stay in file order."""
    for column, label in (("gold", asked.gold), ("predicted", asked.predicted)):
        if label in set(rows[column]):
            rows = rows[rows[column] == label]
    if asked.only_wrong:
        rows = rows[rows.error > 0]
    columns, ascending = ORDERS[asked.order]
    return rows.sort_values([*columns, "row"], ascending=[*ascending, True])


def _dev_rows(request: Request, asked: ListRows) -> tuple[str, DevSet]:
    """The name of a model and a dev set with its predictions. Raises HTTPException if there is none."""
    name, _ = service_of(request).model(asked.model)
    dev_set = _dev_set(request, asked.task)
    if name not in dev_set.rows:
        raise HTTPException(404, f"{name} has no task {asked.task}")
    return name, dev_set


def _dev_set(request: Request, task: str) -> DevSet:
    dev_sets = _explorer(request).dev_sets
    if task not in dev_sets:
        known = ", ".join(dev_sets) or "none (start the page with multitask explore)"
        raise HTTPException(404, f"no dev set of {task}; there are: {known}")
    return dev_sets[task]


def _explorer(request: Request) -> Explorer:
    explorer: Explorer = request.app.state.explorer
    return explorer


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@cache
def _environment() -> Environment:
    loader = PackageLoader("multitask", "inference/explore")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"fixed": _fixed, "shown": _shown, "signed": _signed, "largest": _largest}
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.html.jinja").render(values)


def _answer(view: str, model: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(_render("answers", view=view, model=model, **values))


def _fixed(number: float, digits: int = 2) -> str:
    """A number with so many digits behind the point, and no minus in front of zero."""
    return "–" if math.isnan(number) else f"{number:z.{digits}f}"


def _shown(number: float) -> str:
    """A number with three digits."""
    return "–" if math.isnan(number) else f"{number:.3g}"


def _signed(number: float) -> str:
    return f"{'−' if number < 0 else '+'}{abs(number):.2g}"


def _largest(words: list[tuple[int, str]], effects: list[float | None]) -> list[tuple[str, float]]:
    """The words with the largest effects."""
    known = [(word, effect) for (_, word), effect in zip(words, effects, strict=True) if effect is not None]
    return sorted(known, key=lambda each: -abs(each[1]))[:5]

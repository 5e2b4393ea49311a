"""The routes of the page."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from jinja2 import Environment, PackageLoader
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from minbert.errors import InputError
from multitask.inference.explore.contrast import MOST_SENTENCES, contrast, different_sentences, objective_forms
from multitask.inference.explore.dev_rows import Choice, DevRow, chosen_rows, csv_of
from multitask.inference.explore.explorer import DevSet, Explorer
from multitask.inference.explore.integrated_gradients import integrated_gradients
from multitask.inference.explore.messages import AskContrast, FindNeighbours, ListRows, PredictRow
from multitask.inference.explore.neighbours import MOST_POINTS, Corpus, nearest
from multitask.inference.explore.word_effects import MOST_WORDS, effects, explained_number, without, words_of
from multitask.inference.serve.messages import prediction_json
from multitask.inference.serve.routes import answer_in_time, check_texts, description, service_of
from multitask.models.predictions import Sentence
from multitask.objectives.config import ObjectiveConfig

PAGE = 50  # rows of the table of errors
EXAMPLES = 40  # dev rows to pick from
MOST_SENTENCES_OF_ONES_OWN = 2000
COMPILING = 300.0
"""Seconds that a map by UMAP may take longer than other requests: numba compiles the first one for up to minutes."""
ASSETS = ("page.css", "elements_and_requests.js", "views.js", "page.js")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

router = APIRouter(include_in_schema=False)


def add_page(app: FastAPI, dev_sets: Mapping[str, DevSet]) -> None:
    """Give a service its page at `/`, with these dev sets by task."""
    models = {name: served.model for name, served in app.state.service.models.items()}
    app.state.explorer = Explorer(models, dev_sets)
    app.include_router(router)


@router.get("/")
async def page() -> HTMLResponse:
    """The page. It tells nothing about the models, as it needs no token."""
    return HTMLResponse(_page(), headers=HEADERS)


@cache
def _page() -> str:
    environment = Environment(loader=PackageLoader("multitask", "inference/explore"), autoescape=True)
    template = environment.get_template("page.html.jinja")
    return template.render(
        objectives=objective_forms(), most=MOST_SENTENCES, most_own=f"{MOST_SENTENCES_OF_ONES_OWN:,}"
    )


@router.get("/explore/assets/{name}")
async def asset(name: str) -> Response:
    """One of the page's scripts, or its stylesheet."""
    if name not in ASSETS:
        raise HTTPException(404, "Not Found")
    content = files("multitask.inference.explore").joinpath(name).read_bytes()
    media_type = "text/css" if name.endswith(".css") else "text/javascript"
    return Response(content, media_type=media_type, headers={"X-Content-Type-Options": "nosniff"})


@router.get("/explore/setup")
async def setup(request: Request) -> Response:
    """The models with their tasks, the dev sets with some rows to pick from, and the objectives."""
    models = service_of(request).models
    return _json(
        {
            "models": {
                name: {task: description(declared).model_dump() for task, declared in served.model.tasks.items()}
                for name, served in models.items()
            },
            "dev_sets": {
                name: {
                    "examples": [row.texts for row in next(iter(found.rows.values()), [])[:EXAMPLES]],
                    "sentences": len(found.corpus.sentences),
                    "models": list(found.rows),
                }
                for name, found in _explorer(request).dev_sets.items()
            },
            "objectives": {form.name: asdict(form) for form in objective_forms()},
        }
    )


@router.post("/explore/predict")
async def predict(request: Request, asked: PredictRow) -> Response:
    """Every task's prediction for a row, and the effect of each word on it."""
    service, explorer = service_of(request), _explorer(request)
    name, model = service.model(asked.model)
    check_texts(service.limits, asked.texts)
    words = words_of(asked.texts)
    row: Sentence = asked.texts[0] if len(asked.texts) == 1 else (asked.texts[0], asked.texts[1])
    by_occlusion = asked.effects == "occlusion"
    shorter = [without(asked.texts, word) for word in words[:MOST_WORDS]] if by_occlusion else []
    found = await answer_in_time(request, model.predict([row, *shorter], None))
    explained = {task: explained_number(predictions[0]) for task, predictions in found.items()}
    tasks: dict[str, dict[str, Any]] = {
        task: {"prediction": prediction_json(predictions[0]), "explained": explained[task]}
        for task, predictions in found.items()
    }
    if by_occlusion:
        for task, (whole, *others) in found.items():
            tasks[task] |= {"effects": effects(whole, others)}
    else:
        work = partial(integrated_gradients, model.model, asked.texts, words, explained)
        for task, attribution in (await answer_in_time(request, explorer.compute(work))).items():
            tasks[task] |= asdict(attribution)
    shown = [{"column": word.column, "text": asked.texts[word.column][word.start : word.end]} for word in words]
    return _json({"model": name, "words": shown, "tasks": tasks})


@router.post("/explore/neighbours")
async def neighbours(request: Request, asked: FindNeighbours) -> Response:
    """The sentences that are nearest to a query, and a map of the first sentences."""
    service, explorer = service_of(request), _explorer(request)
    name, _ = service.model(asked.model)
    corpus = _corpus(request, asked)
    check_texts(service.limits, [asked.query])

    def work() -> dict[str, Any]:
        embeddings, query = explorer.encode_corpus(name, corpus.sentences), explorer.encode(name, (asked.query,))[0]
        plane = explorer.map(name, corpus.sentences, asked.method)
        return {
            "model": name,
            "nearest": [
                {"text": corpus.sentences[row], "label": corpus.labels[row], "cosine": cosine}
                for row, cosine in nearest(query, embeddings)
            ],
            "points": plane.points.round(4).tolist(),
            "query": plane.place(query).round(4).tolist(),
            "method": asked.method,
            "variance": plane.variance,
            "texts": corpus.sentences[:MOST_POINTS],
            "labels": corpus.labels[:MOST_POINTS],
            "sentences": len(corpus.sentences),
        }

    patience = COMPILING if asked.method == "umap" else 0.0
    return _json(await answer_in_time(request, explorer.compute(work), patience))


def _corpus(request: Request, asked: FindNeighbours) -> Corpus:
    """The sentences to search in. Raises InputError unless they are named in one way."""
    if (asked.task is None) == (asked.sentences is None):
        raise InputError("expected either a task or sentences")
    if asked.sentences is None:
        return _dev_set(request, str(asked.task)).corpus
    sentences = tuple(dict.fromkeys(text.strip() for text in asked.sentences if text.strip()))
    check_texts(service_of(request).limits, sentences, MOST_SENTENCES_OF_ONES_OWN)
    return Corpus(sentences, ("",) * len(sentences))


@router.post("/explore/contrast")
async def contrast_route(request: Request, asked: AskContrast) -> Response:
    """Similarities of two dropout views, the components of each anchor's gradient, and what a step changes."""
    service, explorer = service_of(request), _explorer(request)
    name, _ = service.model(asked.model)
    check_texts(service.limits, asked.sentences)
    sentences = different_sentences(asked.sentences)
    objective = ObjectiveConfig.of(asked.objective, **asked.parameters).build()
    if objective.takes_labels != "none":
        raise InputError(f"{objective.name} learns from labels; choose one of: {', '.join(_without_labels())}")

    def work() -> dict[str, Any]:
        views = explorer.views(name, sentences, asked.dropout, asked.seed)
        found = contrast(objective, *views, asked.step)
        parts = found.components
        anchors = ("dissipation", "ratio", "hardest_weight", "alignment_norm", "uniformity_norm", "closer", "weights")
        return {
            "model": name,
            "sentences": sentences,
            "similarity": found.similarity.tolist(),
            "similarity_after": found.similarity_after.tolist(),
            "losses": found.losses,
            "residual": parts.residual.item(),
            **{part: getattr(parts, part).tolist() for part in anchors},
        }

    return _json(await answer_in_time(request, explorer.compute(work)))


def _without_labels() -> list[str]:
    return [form.name for form in objective_forms()]


@router.post("/explore/errors")
async def errors(request: Request, asked: ListRows) -> Response:
    """A part of a dev set's rows with predictions."""
    name, dev_set = _dev_rows(request, asked)
    rows = dev_set.rows[name]
    chosen = _chosen(rows, asked)
    return _json(
        {
            "model": name,
            "rows": [asdict(row) for row in chosen[asked.start : asked.start + PAGE]],
            "chosen": len(chosen),
            "wrong": sum(row.error > 0 for row in rows),
            "loaded": len(rows),
            "total": dev_set.total,
            "page": PAGE,
            "columns": dev_set.columns,
            "gold": sorted({row.gold for row in rows}),
            "predicted": sorted({row.predicted for row in rows}),
            "numbers": bool(rows) and rows[0].confidence is None,
        }
    )


@router.post("/explore/errors.csv")
async def errors_file(request: Request, asked: ListRows) -> Response:
    """All chosen rows as CSV."""
    name, dev_set = _dev_rows(request, asked)
    written = csv_of(_chosen(dev_set.rows[name], asked), dev_set.columns)
    disposition = {"Content-Disposition": f'attachment; filename="{asked.task}-dev.csv"'}
    return Response(written.encode(), media_type="text/csv; charset=utf-8", headers=disposition)


def _chosen(rows: list[DevRow], asked: ListRows) -> list[DevRow]:
    return chosen_rows(rows, Choice(asked.gold, asked.predicted, asked.only_wrong, asked.order, asked.descending))


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


def _json(content: Any) -> Response:
    """Content as JSON; NaN, such as the ratio of an anchor without a push, becomes null."""
    return Response(to_json(content, inf_nan_mode="null"), media_type="application/json")

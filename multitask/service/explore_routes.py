"""The page: one route. Its links and forms are plain HTML, so it needs no script."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote

import numpy as np
from fastapi import APIRouter, Query, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from minbert.errors import InputError
from minbert.inference_layer import Bf16Model
from multitask.data.texts import visible_text
from multitask.models.multitask_model import MultitaskModel
from multitask.models.predictions import Sentence
from multitask.objectives import OBJECTIVES
from multitask.service.explain import (
    MOST_SENTENCES,
    MOST_WORDS,
    contrastive_step,
    dropout_views,
    explained_number,
    fields_of,
    integrated_gradients,
    objective_of,
    occlusion,
    without,
    without_labels,
    words_of,
)
from multitask.service.explorer import MOST_POINTS, ExploredSet, Explorer, Method, csv_of, rounded
from multitask.service.routes import answer_in_time, check_texts, service_of
from multitask.service.served_model import MOST_FIELDS
from multitask.tasks.labels import class_order
from multitask.use.search import search

ROWS_PER_PAGE = 50  # rows of the table of errors
FEW_LABELS = 50  # to choose from
NO_ROWS = DataFrame(columns=["gold", "predicted"])
MOST_OWN = 2000  # sentences
NEAREST = 10
COMPILING = 300.0
"""Seconds that a map by UMAP may take longer than other requests: numba compiles the first one for up to minutes."""
EXAMPLES = """Two dogs run on the beach.
Dogs are running by the sea.
A man is playing a guitar.
A man plays the flute.
The stock market fell on Monday."""
PALETTE = ["#0b72c4", "#d1571c", "#2a8c5a", "#a2429e", "#b08a00", "#138a92", "#c43b55", "#6a5acd", "#7a6a4f", "#5f8f1f"]
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",  # no script at all
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
ORDERS = {
    "worst": (["error", "confidence"], [False, False]),
    "unsure": (["confidence", "row"], [True, True]),
    "row": (["row"], [True]),
}

router = APIRouter(include_in_schema=False)


class View(BaseModel):
    """What a form asks: the fields of all views. Fields that are not given have an example's values."""

    model: str
    compare: str = ""

    async def answer(self, request: Request, name: str) -> dict[str, Any]:
        """What the template shows of a model."""
        raise NotImplementedError


class PredictView(View):
    """Every task's prediction for a sentence or a pair, and the effect of each word on it."""

    first: str = "A gem of a film, funny and never dull."
    second: str = ""
    effects: Literal["occlusion", "integrated_gradients"] = "occlusion"

    async def answer(self, request: Request, name: str) -> dict[str, Any]:
        service, explorer = service_of(request), _explorer(request)
        _, model = service.model(name)
        texts = [text for text in map(visible_text, (self.first, self.second)) if text]
        if not visible_text(self.first):
            raise InputError("no text; type a sentence" if not texts else "only a second text; type the first one, too")
        check_texts(service.limits, texts)
        words = words_of(texts)
        row: Sentence = texts[0] if len(texts) == 1 else (texts[0], texts[1])
        by_occlusion = self.effects == "occlusion"
        shorter = [without(texts, word) for word in words[:MOST_WORDS]] if by_occlusion else []
        found = await answer_in_time(request, model.predict([row, *shorter], None)) if model.model.tasks else {}
        if by_occlusion:
            effects = {task: occlusion(whole, others, len(words)) for task, (whole, *others) in found.items()}
        else:
            effects = {}
            for task, (whole, *_) in found.items():
                work = partial(integrated_gradients, model.model, texts, task, explained_number(whole))
                effects[task] = await answer_in_time(request, explorer.compute(work))
        tasks = [(model.model.tasks[task], predictions[0], effects[task]) for task, predictions in found.items()]
        return {"tasks": tasks, "words": [(column, word.group()) for column, word in words]}


class NeighboursView(View):
    """The sentences that are nearest to a query, and a map: of a task's dev sentences, or of own ones, one a line."""

    query: str = "Two dogs run on the beach."
    task: str = ""
    own: str = EXAMPLES
    method: Method = "pca"

    async def answer(self, request: Request, name: str) -> dict[str, Any]:
        service, explorer = service_of(request), _explorer(request)
        if not (query := visible_text(self.query)):
            raise InputError("no text; type a sentence")
        check_texts(service.limits, [query])
        if self.task:
            dev_set = _dev_set(request, self.task)
            labels, texts, asked = dev_set.sentences, dev_set.texts(name), dev_set.as_read(name, query)
        else:
            labels, asked = dict.fromkeys(_lines(self.own), ""), query
            texts = tuple(labels)
            check_texts(service.limits, texts, MOST_OWN)
        sentences = tuple(labels)

        def work() -> dict[str, Any]:
            embeddings, query = explorer.encode_corpus(name, texts), explorer.encode(name, (asked,))[0]
            plane = explorer.map(name, texts, self.method)
            points = np.vstack([plane.points, plane.place(query)])
            extent = np.ptp(points, axis=0)
            across, up = (12 + 376 * (points - points.min(axis=0)) / np.where(extent, extent, 1)).round(1).T.tolist()
            near = search(query, embeddings, NEAREST)
            shown = sentences[:MOST_POINTS]
            return {
                "nearest": [
                    (cosine, sentences[row], labels[sentences[row]])
                    for row, cosine in zip(near.indices[0], near.scores[0], strict=True)
                ],
                "points": sorted(zip(across, up, shown, map(labels.get, shown), strict=False)),
                "query": (across[-1], up[-1]),
                "variance": plane.variance,
            }

        found = await answer_in_time(request, explorer.compute(work), COMPILING if self.method == "umap" else 0.0)
        return {"count": len(labels), "colours": _colours({label for *_, label in found["points"]}), **found}


class ContrastView(View):
    """What an objective does to sentences, one a line. Further fields are parameters, such as infonce.temperature."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    sentences: str = EXAMPLES
    objective: str = "infonce"
    dropout: float = Field(0.1, ge=0, le=0.9)
    seed: int = Field(0, ge=0, le=2**31)
    step: float = Field(0.1, ge=0, le=10)

    async def answer(self, request: Request, name: str) -> dict[str, Any]:
        explorer, own = _explorer(request), f"{self.objective}."
        sentences = tuple(dict.fromkeys(_lines(self.sentences)))  # a repeated one would be a false negative
        if not 2 <= len(sentences) <= MOST_SENTENCES:
            raise InputError(f"{len(sentences)} different sentences; expected 2 to {MOST_SENTENCES}, one a line")
        check_texts(service_of(request).limits, sentences)
        given = {key.removeprefix(own): value for key, value in self.__pydantic_extra__.items() if key.startswith(own)}
        objective = objective_of(self.objective, given)

        def work() -> dict[str, Any]:
            views = dropout_views(explorer.encoders[name], sentences, self.dropout, self.seed)
            found = contrastive_step(objective, *views, self.step)
            weights = found.components.weights.fill_diagonal_(math.nan).tolist()  # a positive is no negative
            return {"sentences": sentences, "found": found, "parts": found.components, "weights": weights}

        return await answer_in_time(request, explorer.compute(work))


class Errors(View):
    """The rows of a task's dev set with a model's predictions; an empty text stands for any label."""

    task: str = ""
    gold: str = ""
    predicted: str = ""
    rows: Literal["wrong", "all"] = "wrong"
    order: Literal["worst", "unsure", "row"] = "worst"
    start: int = Field(0, ge=0)

    async def answer(self, request: Request, name: str) -> dict[str, Any]:
        dev_set, rows = self.dev_rows(request, name)
        chosen = self.chosen(rows)
        return {
            "asked": self,
            "dev_set": dev_set,
            "rows": list(chosen[self.start : self.start + ROWS_PER_PAGE].itertuples()),
            "chosen": len(chosen),
            "wrong": int((rows.error > 0).sum()),
            "loaded": len(rows),
            "page": ROWS_PER_PAGE,
            "numbers": bool(rows.confidence.isna().all()),
        }

    def dev_rows(self, request: Request, name: str) -> tuple[ExploredSet, DataFrame]:
        """The dev set and its rows with a model's predictions. Raises HTTPException if there are none."""
        dev_set = _dev_set(request, self.task)
        if name not in dev_set.rows:
            raise HTTPException(404, f"{name} has no task {self.task}")
        return dev_set, dev_set.rows[name]

    def chosen(self, rows: DataFrame) -> DataFrame:
        """The rows that are asked for; rows that are equal in their order stay in file order."""
        for column, label in (("gold", self.gold), ("predicted", self.predicted)):
            if label:
                rows = rows[rows[column] == label]
        if self.rows == "wrong":
            rows = rows[rows.error > 0]
        columns, ascending = ORDERS[self.order]
        return rows.sort_values([*columns, "row"], ascending=[*ascending, True])


VIEWS: dict[str, type[View]] = {
    "predict": PredictView,
    "neighbours": NeighboursView,
    "contrast": ContrastView,
    "errors": Errors,
}


async def _fields_of(request: Request) -> dict[str, str]:
    """The fields of a form, from the address and the body. Raises HTTPException if there are too many."""
    sent = request.url.query, (await request.body()).decode(errors="replace")
    fields = {"view"}.union(*(kind.model_fields for kind in VIEWS.values()))  # names with a dot are parameters
    try:
        pairs = [pair for text in sent for pair in parse_qsl(text, True, max_num_fields=MOST_FIELDS)]
    except ValueError:
        raise HTTPException(422, f"more than {MOST_FIELDS} fields") from None
    return {name: value for name, value in pairs if name in fields or "." in name}


@router.api_route("/", methods=["GET", "POST"])
async def page(request: Request) -> HTMLResponse:
    """A view's form, filled in, and its answers. Pages of other sites get the form alone: they make nothing compute."""
    served, dev_sets = service_of(request).models, _explorer(request).dev_sets
    models = list(served)
    other = models[1] if len(models) == 2 else ""
    asked_for = await _fields_of(request)
    # Models for inference have no gradients.
    for_inference = any(isinstance(served_model.model.encoder.model, Bf16Model) for served_model in served.values())
    lacking = {  # a page opens on what a model can do
        "predict": not any(served_model.model.tasks for served_model in served.values()),
        "contrast": for_inference,
        "errors": not _having(dev_sets, models),
    }
    views = [name for name in VIEWS if not lacking.get(name)]
    given = {"view": views[0], "model": models[0], "compare": other} | asked_for
    known = [given["model"]] if given["model"] in served else models
    given = {"task": next(iter([*_having(dev_sets, known), *dev_sets]), "")} | given
    if "first" not in given:
        given |= _example(known[0], served[known[0]].model, dev_sets)
    view = given.pop("view")
    if view not in VIEWS:
        raise HTTPException(404, f"no view {view}; there are: {', '.join(VIEWS)}")
    asked, answers, error, status = VIEWS[view].model_construct(None, **given), Markup(), "", 200
    try:
        if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            asked = VIEWS[view].model_validate(given)
            for name in dict.fromkeys([asked.model, asked.compare] if view != "errors" else [asked.model]):
                if name:
                    service_of(request).model(name)
                    answers += Markup(_render("answers", view=view, model=name, **await asked.answer(request, name)))
    except ValidationError as problem:
        first, status = problem.errors()[0], 422
        error = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except InputError as problem:
        error, status = str(problem), 422
    except HTTPException as problem:
        error, status = problem.detail, problem.status_code
    rows = dev_sets[given["task"]].rows.get(given["model"], NO_ROWS) if given["task"] in dev_sets else NO_ROWS
    labels = {column: class_order(rows[column]) for column in NO_ROWS}
    content = _render(
        "page",
        view=view,
        views=views,
        given=given,
        asked=asked,
        answers=answers,
        error=error,
        models=models,
        corpora=[(name, f"{name}: {len(found.sentences)} dev sentences") for name, found in dev_sets.items()],
        labels={column: [*found] if len(found) <= FEW_LABELS else [] for column, found in labels.items()},
        objectives={name: (OBJECTIVES.describe(name), fields_of(kind)) for name, kind in without_labels().items()},
        effects=["occlusion", *[("integrated_gradients", "integrated gradients")] * (not for_inference)],
        most=MOST_SENTENCES,
        most_own=MOST_OWN,
    )
    return HTMLResponse(content, status, HEADERS)


@router.get("/explore/errors.csv")
async def errors_file(request: Request, asked: Annotated[Errors, Query()]) -> Response:
    """All chosen rows as CSV."""
    dev_set, rows = asked.dev_rows(request, asked.model)
    disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(asked.task)}-dev.csv"}
    written = csv_of(asked.chosen(rows), dev_set.columns)
    return Response(written.encode(), media_type="text/csv; charset=utf-8", headers=disposition)


def _having(dev_sets: Mapping[str, ExploredSet], models: Sequence[str]) -> list[str]:
    """The tasks whose dev sets have predictions of any of the models."""
    return [task for task, dev_set in dev_sets.items() if not dev_set.rows.keys().isdisjoint(models)]


def _example(name: str, model: MultitaskModel, dev_sets: Mapping[str, ExploredSet]) -> dict[str, str]:
    """Texts that a model can predict: the first dev row of those that it predicts best, or an example of a pair."""
    if tasks := _having(dev_sets, [name]):
        rows = dev_sets[tasks[0]].rows[name]
        better = rows.error < rows.error.median()
        if not better.any():  # most errors are equal, as those of right classes are
            better = rows.error == rows.error.min()
        return dict(zip(("first", "second"), rows.texts[better].iloc[0], strict=False))
    if model.tasks and all(task.pair for task in model.tasks.values()):
        return dict(zip(("first", "second"), EXAMPLES.splitlines(), strict=False))
    return {}


def _dev_set(request: Request, task: str) -> ExploredSet:
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


def _colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label in order: its own, or of many labels a shade between blue and red."""
    ordered = class_order(labels)
    if len(ordered) <= len(PALETTE):
        return dict(zip(ordered, PALETTE, strict=False))
    return {label: f"hsl({220 - 220 * i / (len(ordered) - 1):.0f} 65% 50%)" for i, label in enumerate(ordered)}


@cache
def _environment() -> Environment:
    loader = PackageLoader("multitask", "service")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"shown": _shown, "rounded": rounded, "largest": _largest}
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.html.jinja").render(values)


def _shown(number: float, form: str = ".3g") -> str:
    return "–" if math.isnan(number) else format(number, form)


def _largest(words: list[tuple[int, str]], effects: list[float | None]) -> list[tuple[str, float]]:
    """The words with the largest effects."""
    known = [(word, effect) for (_, word), effect in zip(words, effects, strict=True) if effect is not None]
    return sorted(known, key=lambda each: -abs(each[1]))[:5]

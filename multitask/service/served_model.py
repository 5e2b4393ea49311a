"""A model that answers requests, and what requests and answers consist of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator
from pydantic_core import PydanticCustomError, to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from torch import Tensor

from minbert.config import Long
from minbert.errors import InputError
from multitask.base.options import Device, Precision
from multitask.base.runs import locate_model
from multitask.data.texts import in_words
from multitask.models.compute_in_batches import check_dimensions
from multitask.models.model_folder import has_heads
from multitask.models.multitask_model import MultitaskModel, tasks_for
from multitask.models.predictions import Prediction, Sentence, columns_of, grouped, interpret
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.service.batching import Batcher, Input, Metrics
from multitask.service.limits import Limits

ERROR_LETTERS = 600
"""Characters of an error that an answer shows."""
DIMENSIONS_HELP = "Keep so many numbers of each embedding, the first ones. Default: all."

MOST_FIELDS = 100
"""Fields of a request; each unknown one is an error of a kilobyte."""

Names = Annotated[list[str], Field(fail_fast=True)]
"""Without `fail_fast`, each wrong element is an error: a few bytes of a request would become kilobytes."""
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
PairsOfTexts = Annotated[list[tuple[str, str]], Field(min_length=1, fail_fast=True)]


class Message(BaseModel):
    """A message without fields that nobody knows."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and len(fields) > MOST_FIELDS:
            raise PydanticCustomError("too_many_fields", f"more than {MOST_FIELDS} fields")
        return fields


class Asking(Message):
    """A request to a model."""

    model: str | None = Field(None, description="Name of the model. Default: the first model of the service.")


class PredictRequest(Asking):
    """Rows to predict: sentences, or pairs of sentences."""

    texts: Texts | PairsOfTexts = Field(examples=[["A gem."]])
    tasks: Names | None = Field(None, description="Default: all tasks of the model that read such rows.")


class Class(Message):
    """The most probable class of a row."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Labels(Message):
    """The labels of a row that are above their thresholds."""

    labels: list[str]
    probabilities: dict[str, float]


class Number(Message):
    """The number of a row, in the unit of the task's labels."""

    value: float


class PredictAnswer(Message):
    """For each task, a prediction for each row."""

    model: str
    predictions: dict[str, list[Class | Labels | Number]]


class EmbedRequest(Asking):
    """Sentences to embed."""

    texts: Texts = Field(examples=[["Two dogs run.", "A cat sleeps."]])
    dimensions: StrictInt | None = Field(None, description=DIMENSIONS_HELP)
    normalize: StrictBool = Field(False, description="Scale every embedding to length 1.")


class EmbedAnswer(Message):
    """An embedding for each sentence."""

    model: str
    embeddings: list[list[float]]


class SimilarityRequest(Asking):
    """Two lists of sentences."""

    first: Texts = Field(examples=[["A cat sleeps."]])
    second: Texts = Field(examples=[["A kitten is asleep.", "Two dogs run."]])


class SimilarityAnswer(Message):
    """The cosine of each first sentence's embedding (a row) with each second sentence's (a column)."""

    model: str
    similarities: list[list[float]]


class OpenAIRequest(BaseModel):
    """A request in the shape of OpenAI's embeddings API; other fields of that API have no effect."""

    input: str | Texts = Field(examples=["Two dogs run."], description="Texts, not token ids.")
    model: str = Field(description="Name of the model.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: StrictInt | None = Field(None, description=DIMENSIONS_HELP)


class TaskDescription(Message):
    """A task: what it reads and predicts."""

    kind: str
    pair: bool = Field(description="Whether its rows are pairs of sentences.")
    labels: list[str] | None = Field(description="Names of the classes, or of the labels.")
    range: tuple[float, float] | None = Field(description="Lowest and highest value of a regression.")


class TasksAnswer(Message):
    """The tasks of each model by name."""

    models: dict[str, dict[str, TaskDescription]]


class Problem(Message):
    """Why there is no answer."""

    error: str


def json_response(content: Any) -> Response:
    """Content as JSON. FastAPI would validate it again and write thousands of numbers in Python."""
    return Response(to_json(content), media_type="application/json")


def problem(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON. Of a long one, the beginning says where, and the end what was expected."""
    # A request's own text may be a part of the error: it may be long, and not every text has a UTF-8 form.
    text = error if len(error) <= ERROR_LETTERS else f"{error[: ERROR_LETTERS // 2]} ... {error[-ERROR_LETTERS // 2 :]}"
    content = to_json({"error": text.encode("utf-8", "replace").decode()})
    return Response(content, status, headers, media_type="application/json")


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """A prediction as `Class`, `Labels` or `Number`."""
    if prediction.value is not None:
        return {"value": prediction.value}
    fields = ("labels",) if prediction.label is None else ("label", "probability")
    return {name: getattr(prediction, name) for name in (*fields, "probabilities")}


def load_served(name: str | Path, device: Device, precision: Precision, keep_layers: bool = False) -> MultitaskModel:
    """A fine-tuned model, or an encoder as a model without tasks. Raises InputError for no model or a damaged one."""
    folder = locate_model(name)
    if has_heads(folder):
        model = MultitaskModel.load(folder, device, precision, keep_layers)
    else:
        encoder = SentenceEncoder.load(folder, device=device, precision=precision, keep_layers=keep_layers)
        model = MultitaskModel(encoder, {}, HeadsConfig(sharing="none")).eval()
    if not np.isfinite(model.encoder.encode("A text.")).all():
        raise InputError(f"{name}: the model's embeddings are not finite; its weights are damaged")
    return model


class ServedModel:
    """A model in eval mode, and its queue."""

    def __init__(self, name: str, model: MultitaskModel, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self.model = model
        self.batcher = Batcher(model.encoder, limits.queue, metrics)
        metrics.waiting.labels(name).set_function(lambda: self.batcher.waiting)

    async def predict(self, rows: Sequence[Sentence], tasks: Sequence[str] | None) -> dict[str, list[Prediction]]:
        """Predict tasks for rows, as `MultitaskModel.predict_all`. Raises QueueFull if too many texts wait."""
        columns = columns_of(rows)
        names = list(dict.fromkeys(tasks_for(self.model, len(columns), tasks)))
        places: dict[str, slice] = {}  # of each task's inputs
        inputs: list[Input] = []
        longs: list[Long] = []  # how each is read if it has too many tokens
        for (words, joint, long), together in grouped({name: self.model.input_form(name) for name in names}).items():
            texts = in_words(words, columns)
            made = list(zip(*texts, strict=True)) if joint else list(chain.from_iterable(texts))
            places |= dict.fromkeys(together, slice(len(inputs), len(inputs) + len(made)))
            inputs += made
            longs += [long] * len(made)

        def finish(embeddings: Tensor, _tokens: int) -> dict[str, list[Prediction]]:
            return {name: self._predictions(name, embeddings[places[name]]) for name in names}

        return await self.batcher.run(inputs, finish, longs)

    def _predictions(self, name: str, embeddings: Tensor) -> list[Prediction]:
        task = self.model.tasks[name]
        estimates = task.estimate(self.model.head(name, embeddings).float().cpu().numpy())
        if not np.isfinite(estimates).all():
            raise RuntimeError(f"the model's outputs for {name} are not finite")
        return interpret(task, estimates)

    async def embed(
        self, texts: Sequence[str], normalize: bool, dimensions: int | None = None
    ) -> tuple[NDArray[np.float32], int]:
        """Embeddings, [texts, hidden or dimensions], and the number of tokens.

        Raises QueueFull if too many texts wait, and InputError for more dimensions than the model has.
        """
        check_dimensions(dimensions, self.model.encoder.width, self.name)

        def finish(embeddings: Tensor, tokens: int) -> tuple[NDArray[np.float32], int]:
            kept = embeddings[:, :dimensions]
            found = (torch.nn.functional.normalize(kept) if normalize else kept).cpu().numpy()
            if not np.isfinite(found).all():
                raise RuntimeError("the model's embeddings are not finite")
            return found, tokens

        return await self.batcher.run(list(texts), finish)


@dataclass(frozen=True)
class Service:
    """What the routes use."""

    models: Mapping[str, ServedModel]
    limits: Limits
    metrics: Metrics

    def model(self, name: str | None) -> tuple[str, ServedModel]:
        """A model and its name; the first one if no name is given. Raises HTTPException if there is none."""
        chosen = next(iter(self.models)) if name is None else name
        if chosen not in self.models:
            raise HTTPException(404, f'no model "{chosen}"; there are: {", ".join(self.models)}')
        return chosen, self.models[chosen]

"""What requests and answers consist of."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator
from pydantic_core import PydanticCustomError, to_json
from starlette.responses import Response

from multitask.models.predictions import Prediction

LONGEST_ERROR = 600
"""Characters of an error that an answer shows."""
DIMENSIONS = "Keep so many numbers of each embedding, the first ones. Default: all."

MOST_FIELDS = 100
"""Fields of a request; each unknown one is an error of a kilobyte."""

Names = Annotated[list[str], Field(fail_fast=True)]
"""Without `fail_fast`, each wrong element is an error: a few bytes of a request would become kilobytes."""
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
Pairs = Annotated[list[tuple[str, str]], Field(min_length=1, fail_fast=True)]


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

    texts: Texts | Pairs = Field(examples=[["A gem."]])
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
    dimensions: StrictInt | None = Field(None, description=DIMENSIONS)
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
    dimensions: StrictInt | None = Field(None, description=DIMENSIONS)


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
    text = error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR // 2]} ... {error[-LONGEST_ERROR // 2 :]}"
    content = to_json({"error": text.encode("utf-8", "replace").decode()})
    return Response(content, status, headers, media_type="application/json")


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """A prediction as `Class`, `Labels` or `Number`."""
    found = prediction
    if found.value is not None:
        return {"value": found.value}
    if found.label is None:
        return {"labels": found.labels, "probabilities": found.probabilities}
    return {"label": found.label, "probability": found.probability, "probabilities": found.probabilities}

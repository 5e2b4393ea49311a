"""What requests and answers consist of."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from pydantic_core import to_json
from starlette.responses import Response

from multitask.models.predictions import Prediction

Texts = Annotated[list[str], Field(min_length=1)]
Pairs = Annotated[list[tuple[str, str]], Field(min_length=1)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Asking(_Message):
    model: str | None = Field(None, description="Name of the model. Default: the first model of the service.")


class PredictRequest(_Asking):
    """Rows to predict: sentences, or pairs of sentences."""

    texts: Texts | Pairs = Field(examples=[["A gem."]])
    tasks: list[str] | None = Field(None, description="Default: all tasks of the model that read such rows.")


class Class(_Message):
    """The most probable class of a row."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Labels(_Message):
    """The labels of a row that are above their thresholds."""

    labels: list[str]
    probabilities: dict[str, float]


class Number(_Message):
    """The number of a row, in the unit of the task's labels."""

    value: float


class PredictAnswer(_Message):
    """For each task, a prediction for each row."""

    model: str
    predictions: dict[str, list[Class | Labels | Number]]


class EmbedRequest(_Asking):
    """Sentences to embed."""

    texts: Texts = Field(examples=[["Two dogs run.", "A cat sleeps."]])
    normalize: StrictBool = Field(False, description="Scale every embedding to length 1.")


class EmbedAnswer(_Message):
    """An embedding for each sentence."""

    model: str
    embeddings: list[list[float]]


class SimilarityRequest(_Asking):
    """Two lists of sentences."""

    first: Texts = Field(examples=[["A cat sleeps."]])
    second: Texts = Field(examples=[["A kitten is asleep.", "Two dogs run."]])


class SimilarityAnswer(_Message):
    """The cosine of each first sentence's embedding (a row) with each second sentence's (a column)."""

    model: str
    similarities: list[list[float]]


class OpenAIRequest(BaseModel):
    """A request in the shape of OpenAI's embeddings API; other fields of that API have no effect."""

    input: str | Texts = Field(examples=["Two dogs run."], description="Texts, not token ids.")
    model: str = Field(description="Name of the model.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: StrictInt | None = Field(None, description="Only the model's own number of dimensions.")


class OpenAIEmbedding(_Message):
    """An embedding of length 1: numbers, or their little-endian fp32 bytes in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(_Message):
    """The number of tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class OpenAIAnswer(_Message):
    """Embeddings in the shape of OpenAI's embeddings API."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage


class TaskDescription(_Message):
    """A task: what it reads and predicts."""

    kind: str
    pair: bool = Field(description="Whether its rows are pairs of sentences.")
    labels: list[str] | None = Field(description="Names of the classes, or of the labels.")
    range: tuple[float, float] | None = Field(description="Lowest and highest value of a regression.")


class TasksAnswer(_Message):
    """The tasks of each model by name."""

    models: dict[str, dict[str, TaskDescription]]


class Problem(_Message):
    """Why there is no answer."""

    error: str


def json_response(content: Any) -> Response:
    """Content as JSON. FastAPI would validate it again and write thousands of numbers in Python."""
    return Response(to_json(content), media_type="application/json")


def problem(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON."""
    # A request's own text may be a part of the error, and not every such text has a UTF-8 form.
    text = error.encode("utf-8", "replace").decode()
    return Response(to_json({"error": text}), status, headers, media_type="application/json")


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """A prediction as `Class`, `Labels` or `Number`."""
    if prediction.value is not None:
        return {"value": prediction.value}
    if prediction.label is None:
        return {"labels": prediction.labels, "probabilities": prediction.probabilities}
    return {
        "label": prediction.label,
        "probability": prediction.probability,
        "probabilities": prediction.probabilities,
    }

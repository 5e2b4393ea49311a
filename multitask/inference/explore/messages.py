"""What the page's requests consist of."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from multitask.inference.explore.dev_rows import Order
from multitask.inference.explore.neighbours import Method

Texts = Annotated[list[str], Field(min_length=1)]


class _Asking(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str | None = None


class PredictRow(_Asking):
    """A sentence or pair to predict and explain."""

    texts: Annotated[list[str], Field(min_length=1, max_length=2)]
    effects: Literal["occlusion", "integrated_gradients"] = "occlusion"


class FindNeighbours(_Asking):
    """A query, and a task's dev sentences or own ones to search in."""

    query: str
    task: str | None = None
    sentences: list[str] | None = None
    method: Method = "pca"


class AskContrast(_Asking):
    """Sentences and what to do with them."""

    sentences: Texts
    objective: str
    parameters: dict[str, float | str | None] = {}
    dropout: float = Field(0.1, ge=0, le=0.9)
    seed: int = Field(0, ge=0, le=2**31)
    step: float = Field(0.1, ge=0, le=10)


class ListRows(_Asking):
    """Which rows of a task's dev set to show, and in which order."""

    task: str
    gold: str | None = None
    predicted: str | None = None
    only_wrong: bool = False
    order: Order = "row"
    descending: bool = False
    start: int = Field(0, ge=0)

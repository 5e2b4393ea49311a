"""Scores of a model."""

from dataclasses import dataclass
from typing import Literal

from multitask.runtime.options import check_range


@dataclass(frozen=True)
class SuitesConfig:
    """Which of SentEval's tasks a model's frozen embeddings are scored on."""

    suites: tuple[Literal["sts", "transfer"], ...] = ("sts", "transfer")
    limit: int | None = None
    """Score at most so many pairs of each similarity task, and of each transfer task learn from and score about so many
    rows, always the same; all when left out."""

    def __post_init__(self) -> None:
        check_range(self, 100, ("limit",))

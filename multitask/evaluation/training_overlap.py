"""How much of a task's rows a model was trained on, and what it scores on the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from multitask.data.contamination import TrainedOn
from multitask.evaluation.senteval_files import Mask

AnyScores = TypeVar("AnyScores")


@dataclass(frozen=True)
class SeenRows:
    """Which of a task's scored rows a model was trained on.

    Args:
        columns: sentences of each column, [rows] each.
        pairs: pairs that were trained on as a pair, [rows]; None for single sentences.
    """

    columns: tuple[Mask, ...]
    pairs: Mask | None

    @classmethod
    def of(cls, trained_on: TrainedOn, columns: Sequence[Sequence[str]]) -> "SeenRows":
        """What of a task's sentences, a list a column, the model was trained on."""
        pairs = trained_on.pairs_seen(*columns) if len(columns) == 2 else None
        return cls(tuple(map(trained_on.sentences_seen, columns)), pairs)


@dataclass(frozen=True)
class ScoresWithOverlap(Generic[AnyScores]):
    """Scores of a task, and how much of it the model was trained on.

    Args:
        rows: scored sentences or pairs.
        scores: on all of them.
        sentences: different ones among them.
        sentences_seen: how many of these were trained on.
        rows_seen: rows that were trained on; of pairs those that were as a pair.
        clean: scores on the other rows; None where fewer than two are left.
        untouched: of pairs, scores on the rows with no sentence that was trained on; None as above.
    """

    rows: int
    scores: AnyScores
    sentences: int
    sentences_seen: int
    rows_seen: int
    clean: AnyScores | None
    untouched: AnyScores | None

    def summary(self, main: Callable[[AnyScores], float]) -> dict[str, Any]:
        """The counts, and of the scores the main number alone, as JSON types."""
        parts = {name: getattr(self, name) for name in ("clean", "untouched")}
        counts = {name: getattr(self, name) for name in ("rows", "rows_seen", "sentences", "sentences_seen")}
        return {**counts, **{name: None if part is None else main(part) for name, part in parts.items()}}


def scores_with_overlap(
    scores_of: Callable[[Mask], AnyScores], columns: Sequence[Sequence[str]], seen: SeenRows
) -> ScoresWithOverlap[AnyScores]:
    """A task's scores on all scored rows and on those that were not trained on.

    Args:
        scores_of: gives the scores on some of the rows.
        columns: sentences of the scored rows, a list a column.
        seen: which of them were trained on.
    """
    rows = len(columns[0])
    trained = seen.columns[0] if seen.pairs is None else seen.pairs
    touched = np.any(seen.columns, axis=0)
    was_seen = dict(zip(chain(*columns), chain(*seen.columns), strict=True))
    scores = scores_of(np.ones(rows, bool))

    def part(kept: Mask) -> AnyScores | None:
        if kept.all():
            return scores
        return scores_of(kept) if kept.sum() > 1 else None

    return ScoresWithOverlap(
        rows=rows,
        scores=scores,
        sentences=len(was_seen),
        sentences_seen=int(sum(was_seen.values())),
        rows_seen=int(trained.sum()),
        clean=part(~trained),
        untouched=None if seen.pairs is None else part(~touched),
    )


def any_seen(tasks: Mapping[str, ScoresWithOverlap[Any]]) -> bool:
    """Whether the model was trained on any sentence of any task."""
    return any(task.sentences_seen for task in tasks.values())

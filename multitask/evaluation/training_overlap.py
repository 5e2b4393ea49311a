"""Overlap with the training data: how many of a task's rows a model was trained on, and its scores on the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multitask.data.contamination import TrainedOn
from multitask.tasks.scores import Metric

Scores = Mapping[str, Any]
"""The scores of a task by name, as JSON types."""
Main = tuple[Metric, Callable[[Scores], float]]
"""The kind of a task's main score, and what selects it from the scores."""


@dataclass(frozen=True)
class ScoresWithOverlap:
    """Scores of a task, and how much of it the model was trained on. Scores on less than two rows are None."""

    rows: int  # number of scored sentences or pairs
    scores: Scores  # on all of them
    sentences: int  # number of different sentences
    sentences_seen: int  # how many of these the model was trained on
    rows_seen: int  # how many rows it was trained on; pairs count if it was trained on them as a pair
    clean: Scores | None  # on the other rows
    untouched: Scores | None  # on the pairs whose two sentences are both new to it

    @classmethod
    def of(
        cls, scores_of: Callable[[NDArray[np.bool_]], Scores], columns: Sequence[Sequence[str]], trained_on: TrainedOn
    ) -> "ScoresWithOverlap":
        """Score all rows, and those new to the model. `scores_of` maps a mask of rows to their scores."""
        seen = [trained_on.sentences_seen(column) for column in columns]
        pairs = trained_on.pairs_seen(*columns) if len(columns) == 2 else None
        trained = seen[0] if pairs is None else pairs
        was_seen = dict(zip(chain(*columns), chain(*seen), strict=True))
        scores = scores_of(np.ones(len(trained), bool))

        def part(kept: NDArray[np.bool_]) -> Scores | None:
            if kept.all():
                return scores
            return scores_of(kept) if kept.sum() > 1 else None

        return cls(
            rows=len(trained),
            scores=scores,
            sentences=len(was_seen),
            sentences_seen=int(sum(was_seen.values())),
            rows_seen=int(trained.sum()),
            clean=part(~trained),
            untouched=None if pairs is None else part(~np.any(seen, axis=0)),
        )

    def summary(self, main: Callable[[Scores], float]) -> dict[str, Any]:
        """The counts, and the main score on the other rows, as JSON types."""
        counts = {name: getattr(self, name) for name in ("rows", "rows_seen", "sentences", "sentences_seen")}
        parts = {"clean": self.clean, "untouched": self.untouched}
        return {**counts, **{name: None if scores is None else main(scores) for name, scores in parts.items()}}


def overlap_rows(
    tasks: Mapping[str, ScoresWithOverlap],
    measures: Callable[[Scores], Mapping[str, float | None]],
    shown: Callable[[float | None], str],
) -> list[list[str]]:
    """A table of how much of each task the model was trained on, and of its scores with and without these rows."""
    header = ["task", "sentences trained on", "rows trained on", "measure", "all rows", "other rows"]
    rows = [[*header, "no sentence trained on"]]
    for name, task in tasks.items():
        counts = [f"{task.sentences_seen:,} of {task.sentences:,}", f"{task.rows_seen:,} of {task.rows:,}"]
        for measure, value in measures(task.scores).items():
            others = [None if part is None else measures(part)[measure] for part in (task.clean, task.untouched)]
            rows.append([name, *counts, measure, *map(shown, [value, *others])])
    return rows


def any_seen(tasks: Mapping[str, ScoresWithOverlap]) -> bool:
    """Whether the model was trained on any sentence of any task."""
    return any(task.sentences_seen for task in tasks.values())

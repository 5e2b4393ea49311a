"""What the explorer shows of dev sets: a map of their sentences, and the rows that models get wrong."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from numpy.typing import NDArray
from pandas import DataFrame, concat
from sklearn.decomposition import PCA

from minbert.errors import InputError, install_with
from multitask.data.examples import Examples
from multitask.data.tables import as_text
from multitask.data.texts import Template
from multitask.data.write_tables import without_formula
from multitask.evaluation.calibration_and_errors import confidence_of, text_headers
from multitask.evaluation.embeddings import unit_vectors
from multitask.models.estimates import estimate, with_files_of, written
from multitask.models.multitask_model import MultitaskModel
from multitask.service.batching import QueueFull
from multitask.tasks.declarations import default_tasks, load_tasks
from multitask.tasks.kinds import Classification, MultiLabel, Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Task

MOST_POINTS = 400
UMAP_NEIGHBOURS = 15  # its default

Method = Literal["pca", "umap"]
MapPoints = NDArray[np.float64]


@dataclass(frozen=True)
class Map:
    """The plane in which sentences are shown."""

    points: MapPoints  # of the first sentences, [points, 2]
    place: Callable[[NDArray[np.float32]], MapPoints]  # a query, [hidden] -> [2]
    variance: float | None  # the share of the sentences' variance in the plane; None if distances have no meaning


def draw_map(embeddings: NDArray[np.float32], method: Method) -> Map:
    """The first sentences in a plane, by their embeddings scaled to length 1. A second call gives the same bits.

    `pca` gives the plane of the two principal components; `umap` one that keeps neighbours together, but neither
    distances nor directions (McInnes et al. 2018, arXiv 1802.03426). Raises InputError for fewer than 3 sentences, or
    if umap-learn is not installed.
    """
    if len(embeddings) < 3:
        raise InputError(f"{len(embeddings)} different sentences; expected at least 3 for a map")
    rows = unit_vectors(embeddings[:MOST_POINTS])
    if not np.ptp(rows, axis=0).any():  # all sentences are one point, which has no directions
        return Map(np.zeros((len(rows), 2)), lambda _: np.zeros(2), 0.0)
    plane = PCA(2, svd_solver="full") if method == "pca" else _umap(len(rows))
    points = plane.fit_transform(rows)
    variance = float(plane.explained_variance_ratio_.sum()) if method == "pca" else None
    return Map(points, lambda query: plane.transform(unit_vectors(query[None]))[0], variance)


def _umap(count: int) -> Any:
    try:
        from umap import UMAP
    except ModuleNotFoundError:
        raise InputError(f"UMAP needs umap-learn; {install_with('explore')}") from None
    # A seed allows one thread only. The spectral start, the default, needs more than a handful of sentences.
    return UMAP(n_neighbors=min(UMAP_NEIGHBOURS, count - 1), init="pca", random_state=0, n_jobs=1)


MOST_WAITING = 16

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ExploredSet:
    """The dev rows of a task."""

    columns: tuple[str, ...]  # names of the sentences' columns
    sentences: Mapping[str, str]  # its different sentences, each with its label; those of pairs have none
    column_of: Mapping[str, int]  # of each sentence, the first column that has it
    words: Mapping[str, tuple[Template, ...]]  # what a model has around each column; of "", those of the tasks file
    rows: Mapping[str, DataFrame]  # for each model that has the task, see `dev_rows`
    total: int  # rows of the file, of which the first ones may be taken

    def texts(self, model: str) -> tuple[str, ...]:
        """What a model reads of the sentences."""
        return tuple(self.as_read(model, sentence, column) for sentence, column in self.column_of.items())

    def as_read(self, model: str, sentence: str, column: int = 0) -> str:
        """A sentence with the words that a model has around a column."""
        return self.words.get(model, self.words[""])[column].text([sentence])


def load_dev_sets(models: Mapping[str, MultitaskModel], data: Path, most: int | None) -> dict[str, ExploredSet]:
    """The dev sets of all tasks of `data`, or of those that the models have, with their predictions.

    `most` is the largest number of rows of a task, the first ones of its file. Raises InputError for a missing or
    malformed file, or a model whose tasks differ from the tasks of `data`.
    """
    declared = load_tasks(data)
    wanted = {name for model in models.values() for name in model.tasks} & declared.keys() or default_tasks(data)
    return {name: _dev_set(name, task, models, most) for name, task in declared.items() if name in wanted}


def _dev_set(name: str, declared: Task, models: Mapping[str, MultitaskModel], most: int | None) -> ExploredSet:
    rows: dict[str, DataFrame] = {}
    having = {key: model for key, model in models.items() if name in model.tasks}
    # Declared labels may be in another order than a model's.
    tasks = {key: with_files_of(model.tasks[name], declared) for key, model in having.items()} or {"": declared}
    for key, task in tasks.items():
        everything = load_rows(task, "dev", labelled=True)
        part = everything if most is None else everything.take(np.arange(min(most, len(everything))))
        if key in having:
            model = having[key]
            estimates = estimate(model, {name: model.tokenised(name, part)})[name]
            rows[key] = dev_rows(task, estimates, part)
    if isinstance(task, Labelled) and not task.labels:
        task = replace(task, labels=part.classes)
    if task.pair:
        sentences = dict.fromkeys((text for column in part.sentences for text in column), "")
    else:
        sentences = dict(zip(part.sentences[0], _shown(task, part.gold), strict=True))
    first = {text: column for column, texts in reversed([*enumerate(part.sentences)]) for text in texts}
    column_of = {sentence: first[sentence] for sentence in sentences}
    words = {"": declared.files.words} | {key: model.tasks[name].files.words for key, model in having.items()}
    return ExploredSet(declared.files.text, sentences, column_of, words, rows, len(everything))


def dev_rows(task: Task, estimates: NDArray[np.float64], examples: Examples) -> DataFrame:
    """The rows of a labelled set in file order, with a model's predictions (`estimates`, see `Task.estimate`).

    Returns:
        `row`, its number in the file (see `Examples.numbers`), or from 0 if it has none; `texts`, a tuple; `gold`, its
        label, and `predicted`, the model's, as the page shows them; `confidence`, the probability of the prediction (of
        several labels a row that of the least certain one; NaN of numbers); `error`, the distance of a number from the
        label, otherwise 0 of a right and 1 of a wrong prediction.
    """
    labels, decided = examples.gold, task.decide(estimates)
    confidence = np.full(len(labels), np.nan)
    errors = np.abs(decided - labels)
    if isinstance(task, Classification | MultiLabel):
        confidence = confidence_of(task, estimates).reshape(len(labels), -1).min(axis=1)
        errors = (decided != labels).reshape(len(labels), -1).any(axis=1)
    return DataFrame(
        {
            "row": range(len(labels)) if examples.numbers is None else examples.numbers,
            "texts": list(zip(*examples.sentences, strict=True)),
            "gold": _shown(task, labels),
            "predicted": [rounded(task, v) for v in decided] if isinstance(task, Regression) else _shown(task, decided),
            "confidence": confidence,
            "error": errors.astype(np.float64),
        }
    )


def _shown(task: Task, labels: NDArray[Any]) -> list[str]:
    """Labels or decisions as people read them: names, and numbers as files have them."""
    if isinstance(task, MultiLabel):
        return ["|".join(compress(task.shown_names.values(), row)) for row in labels]
    names = task.shown_names if isinstance(task, Labelled) else {}
    return [names[label] if isinstance(label, str) else as_text(label) for label in written(task, labels)]


def rounded(task: Regression, value: float) -> str:
    """A predicted number with four digits of the task's range."""
    low, high = task.bounds
    return as_text(round(float(value), max(0, 3 - math.floor(math.log10(high - low)))))


def csv_of(rows: DataFrame, columns: Sequence[str]) -> str:
    """Rows of `dev_rows` as CSV with these columns of sentences. No text is a formula of spreadsheets."""
    texts = DataFrame(rows.texts.tolist(), rows.index, range(len(columns)))
    table = concat([texts, rows[["gold", "predicted"]]], axis=1).map(without_formula)
    table = concat([rows.row, table, rows[["confidence", "error"]]], axis=1)
    own = ("row", "gold", "predicted", "confidence", "error")
    header = map(without_formula, (own[0], *text_headers(columns, own), *own[1:]))
    return str(table.to_csv(index=False, header=list(header), lineterminator="\r\n"))  # RFC 4180


class Explorer:
    """What the page's routes use. Models, by name and in eval mode, compute in one thread, apart from the queues."""

    def __init__(self, models: Mapping[str, MultitaskModel], dev_sets: Mapping[str, ExploredSet]) -> None:
        self.dev_sets = dict(dev_sets)
        self.encoders = {name: model.encoder for name, model in models.items()}
        self._one_at_a_time = CapacityLimiter(1)
        self.encode_corpus = lru_cache(8)(self.encode)
        self.map = lru_cache(8)(self._map)

    async def compute(self, work: Callable[[], Answer]) -> Answer:
        """The result of this work, computed in a thread. Raises QueueFull if too much work waits for it."""
        if self._one_at_a_time.statistics().tasks_waiting >= MOST_WAITING:
            raise QueueFull(1)
        return await run_sync(work, limiter=self._one_at_a_time)

    def encode(self, model: str, sentences: tuple[str, ...]) -> NDArray[np.float32]:
        """Embeddings of sentences, [sentences, hidden]."""
        return self.encoders[model].encode(sentences)

    def _map(self, model: str, sentences: tuple[str, ...], method: Method) -> Map:
        return draw_map(self.encode_corpus(model, sentences), method)

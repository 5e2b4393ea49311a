"""What the page's requests share: the dev sets with predictions, embeddings that were computed, and one worker."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from multitask.data.examples import Examples
from multitask.evaluation.calibration_and_errors import written_label
from multitask.evaluation.task_predictions import estimate, located, tokenised
from multitask.inference.explore.contrast import dropout_views
from multitask.inference.explore.dev_rows import DevRow, dev_rows, shown_label
from multitask.inference.explore.neighbours import Corpus, Map, Method, draw_map
from multitask.inference.serve.batching import QueueFull
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.tasks.declarations import default_tasks, load_tasks
from multitask.tasks.kinds import Labelled
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Task

MOST_WAITING = 16

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class DevSet:
    """The dev rows of a task.

    Args:
        columns: names of the sentences' columns.
        corpus: its sentences, each once. Those of pairs have no labels.
        rows: for each model that has the task, the rows with its predictions.
        total: number of rows in the file, of which the first ones may be taken.
    """

    columns: tuple[str, ...]
    corpus: Corpus
    rows: Mapping[str, list[DevRow]] = field(default_factory=dict)
    total: int = 0


def load_dev_sets(models: Mapping[str, MultitaskModel], data: Path, most: int | None) -> dict[str, DevSet]:
    """The dev sets of all tasks of `data`, or of those that the models have, with their predictions.

    Args:
        models: by name, in eval mode.
        data: a tasks file, or the folder of the course's files.
        most: largest number of rows of a task, the first ones of its file; None: all.

    Raises:
        InputError: a missing or malformed file, or a model whose tasks differ from the tasks of `data`.
    """
    declared = load_tasks(data)
    wanted = {name for model in models.values() for name in model.tasks} & declared.keys() or default_tasks(data)
    return {name: _dev_set(name, task, models, most) for name, task in declared.items() if name in wanted}


def _dev_set(name: str, declared: Task, models: Mapping[str, MultitaskModel], most: int | None) -> DevSet:
    rows: dict[str, list[DevRow]] = {}
    task, everything = declared, load_rows(declared, "dev", labelled=True)
    for key, model in models.items():
        if name in model.tasks:
            task = located(model.tasks[name], declared)  # declared labels may be in another order than the model's
            everything = load_rows(task, "dev", labelled=True)
            part = _first(everything, most)
            estimates = estimate(model, {name: tokenised(model, name, part)}, model.runtime)[name]
            rows[key] = dev_rows(task, estimates, part)
    part = _first(everything, most)
    if isinstance(task, Labelled) and not task.labels:
        task = replace(task, labels=part.classes)
    labels = [shown_label(written_label(task, label)) for label in np.asarray(part.labels)]
    return DevSet(task.text, _corpus(part, labels), rows, len(everything))


def _first(examples: Examples, most: int | None) -> Examples:
    return examples if most is None else examples.take(np.arange(min(most, len(examples))))


def _corpus(examples: Examples, labels: list[str]) -> Corpus:
    if len(examples.sentences) == 1:
        different = dict(zip(examples.sentences[0], labels, strict=True))
        return Corpus(tuple(different), tuple(different.values()))
    sentences = tuple(dict.fromkeys(text for column in examples.sentences for text in column))
    return Corpus(sentences, ("",) * len(sentences))


class Explorer:
    """What the page's routes use. Models compute in one thread, apart from the queues of the service.

    Args:
        models: by name, in eval mode.
        dev_sets: by task.
    """

    def __init__(self, models: Mapping[str, MultitaskModel], dev_sets: Mapping[str, DevSet]) -> None:
        self.dev_sets = dict(dev_sets)
        self._encoders = {
            name: SentenceEncoder(model.encoder, model.tokenizer, model.pooling, model.runtime, model.max_length)
            for name, model in models.items()
        }
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._waiting = 0
        self.encode_corpus = lru_cache(8)(self.encode)
        self.map = lru_cache(8)(self._map)
        self.views = lru_cache(16)(self._views)

    async def compute(self, work: Callable[[], Answer]) -> Answer:
        """The result of this work, computed in the worker. Raises QueueFull if too much work waits for it."""
        if self._waiting >= MOST_WAITING:
            raise QueueFull(1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        finally:
            self._waiting -= 1

    def encode(self, model: str, sentences: tuple[str, ...]) -> NDArray[np.float32]:
        """Embeddings of sentences, [sentences, hidden]."""
        return self._encoders[model].encode(sentences)

    def _map(self, model: str, sentences: tuple[str, ...], method: Method) -> Map:
        """See `draw_map`."""
        return draw_map(self.encode_corpus(model, sentences), method)

    def _views(self, model: str, sentences: tuple[str, ...], dropout: float, seed: int) -> tuple[Tensor, Tensor]:
        """See `dropout_views`."""
        return dropout_views(self._encoders[model], sentences, dropout, seed)

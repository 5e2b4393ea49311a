"""A model behind the service: requests become inputs of its queue, and embeddings become answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from torch import Tensor

from multitask.data.texts import in_words
from multitask.inference.serve.batching import Batcher, Input
from multitask.inference.serve.limits import Limits
from multitask.inference.serve.metrics import Metrics
from multitask.models.model_folder import has_heads, stored_max_length
from multitask.models.multitask_model import MultitaskModel, load_model, tasks_for
from multitask.models.pooling import check_dimensions
from multitask.models.predictions import Prediction, Sentence, alike, columns_of, interpret
from multitask.runs.artefact import locate_model
from multitask.runtime.device import start
from multitask.runtime.options import Device, Precision


def load_served(name: str | Path, device: Device, precision: Precision) -> MultitaskModel:
    """A fine-tuned model, or an encoder as a model without tasks. Raises InputError for no model or a damaged one."""
    folder = locate_model(name)
    model = load_model(folder, {})
    if not has_heads(folder):
        model.max_length = min(stored_max_length(folder) or model.tokenizer.max_length, model.tokenizer.max_length)
    model.runtime = start(device, precision)
    return model.to(model.runtime.device)


class ServedModel:
    """A model in eval mode, and its queue."""

    def __init__(self, name: str, model: MultitaskModel, limits: Limits, metrics: Metrics) -> None:
        self.name = name
        self.model = model
        self.batcher = Batcher(model, limits.queue, metrics)
        metrics.waiting.labels(name).set_function(lambda: self.batcher.waiting)

    async def predict(self, rows: Sequence[Sentence], tasks: Sequence[str] | None) -> dict[str, list[Prediction]]:
        """Predict tasks for rows, as `MultitaskModel.predict_all`. Raises QueueFull if too many texts wait."""
        columns = columns_of(rows)
        names = list(dict.fromkeys(tasks_for(self.model, len(columns), tasks)))
        places: dict[str, slice] = {}  # of each task's inputs
        inputs: list[Input] = []
        for (words, joint), together in alike({name: self.model.reads(name) for name in names}).items():
            texts = in_words(words, columns)
            made = list(zip(*texts, strict=True)) if joint else list(chain.from_iterable(texts))
            places |= dict.fromkeys(together, slice(len(inputs), len(inputs) + len(made)))
            inputs += made

        def finish(embeddings: Tensor, _tokens: int) -> dict[str, list[Prediction]]:
            return {name: self._predictions(name, embeddings[places[name]]) for name in names}

        return await self.batcher.run(inputs, finish)

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
        check_dimensions(dimensions, self.model.encoder.config.hidden_size, self.name)

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

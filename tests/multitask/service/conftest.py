"""A tiny model with a task of every kind, a model whose batches wait for a gate, and servers in threads."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from fastapi import FastAPI
from torch import Tensor

from minbert.tokenizer import Ids
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import task_of

TASKS = {
    "mood": {"kind": "classification", "text": ["s"], "label": "l", "labels": ["bad", "fair", "good"]},
    "topics": {
        "kind": "multilabel",
        "text": ["s"],
        "label": "l",
        "labels": ["film", "food"],
        "thresholds": [0.5, 0.4],
        "long": "middle",
    },
    "stars": {"kind": "regression", "text": ["s"], "label": "l", "range": [1, 5], "long": "windows"},
    "same": {"kind": "pair_classification", "text": ["s", "t"], "label": "l", "labels": ["no", "yes"]},
    "similarity": {"kind": "cosine", "text": ["s", "like the film: {t}"], "label": "l", "range": [0, 5]},
}


class Gated(SentenceEncoder):
    """An encoder whose batches wait until `gate` is open; `batches` has the number of inputs of each batch."""

    gate: threading.Event
    batches: list[int]

    def embed(self, ids: Sequence[Ids], *given: Any, **named: Any) -> Tensor:
        self.batches.append(len(ids))
        assert self.gate.wait(60)
        return super().embed(ids, *given, **named)


def build(encoder: Path, kind: type[SentenceEncoder] = SentenceEncoder, length: int | None = 24) -> MultitaskModel:
    """The paired tasks read their sentences in both ways: `same` jointly, `similarity` separately."""
    torch.manual_seed(3)
    tasks = {name: task_of(name, declaration) for name, declaration in TASKS.items()}
    heads = HeadsConfig("separate", "joint", similarity_pairs="embeddings")
    model = MultitaskModel(kind.read(encoder, "mean", length), tasks, heads)
    for parameter in model.heads.parameters():  # far from their start, so that texts get different predictions
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.fixture(scope="session")
def model(tiny_encoder) -> MultitaskModel:
    return build(tiny_encoder)


@pytest.fixture
def gated_model(tiny_encoder) -> Iterator[MultitaskModel]:
    model = build(tiny_encoder, Gated)
    model.encoder.gate, model.encoder.batches = threading.Event(), []
    yield model
    model.encoder.gate.set()


@pytest.fixture
def gated(gated_model) -> Gated:
    return gated_model.encoder


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of a server of this application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=20))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started or not thread.is_alive())
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; a minute is for ever."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

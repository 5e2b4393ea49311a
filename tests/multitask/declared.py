"""A small model with a task of every kind, for tests of what is done with predictions."""

from pathlib import Path

import torch

from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import task_of
from multitask.tasks.task import Task

DECLARATIONS = {
    "topic": {"kind": "classification", "text": "question", "label": "type", "labels": ["ABBR", "DESC", "ENTY"]},
    "tags": {"kind": "multilabel", "text": "question", "label": "tags", "labels": ["a", "b"], "thresholds": [0.4, 0.6]},
    "stars": {"kind": "regression", "text": "question", "label": "stars", "range": [1.0, 5.0]},
    "same": {"kind": "pair_classification", "text": ["one", "two"], "label": "same", "labels": ["no", "yes"]},
    "entails": {"kind": "pair_classification", "text": ["one", "two"], "label": "nli", "labels": ["e", "n", "c"]},
    "distance": {"kind": "pair_regression", "text": ["one", "two"], "label": "far", "range": [0.0, 2.0]},
    "similar": {"kind": "cosine", "text": ["one", "two"], "label": "score", "range": [0.0, 5.0]},
}


def declared_tasks() -> dict[str, Task]:
    """A task of every kind, by name."""
    return {name: task_of(name, declaration) for name, declaration in DECLARATIONS.items()}


def model_of_every_kind(tiny_encoder: Path, heads: HeadsConfig | None = None) -> MultitaskModel:
    """A random model with a head for each of these tasks, in eval mode."""
    torch.manual_seed(3)
    return MultitaskModel(SentenceEncoder.read(tiny_encoder, "mean"), declared_tasks(), heads or HeadsConfig()).eval()

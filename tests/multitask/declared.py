"""A small model with a task of every kind, for tests of what is done with predictions; and tasks of one's own."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas
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


def tasks_file(folder: Path, columns: Mapping[str, Sequence[Any]], **tasks: Mapping[str, Any]) -> Path:
    """A file that declares these tasks on one table, rows.csv, which is the training and the dev set of each."""
    pandas.DataFrame(columns).to_csv(folder / "rows.csv", index=False)
    lines: list[str] = []
    for name, fields in tasks.items():
        declared = {"train": "rows.csv", "dev": "rows.csv"} | fields
        lines += [f"[tasks.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in declared.items())]
    (folder / "tasks.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "tasks.toml"

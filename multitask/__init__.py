"""Contrastive pre-training and multi-task fine-tuning of one small BERT on sentence tasks."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multitask.models.multitask_model import MultitaskModel
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.stages.finetune import finetune
    from multitask.stages.settings import FinetuneConfig
    from multitask.tasks.declarations import load_tasks

__all__ = ["FinetuneConfig", "MultitaskModel", "SentenceEncoder", "finetune", "load_tasks"]

_HOMES = {
    "FinetuneConfig": "stages.settings",
    "MultitaskModel": "models.multitask_model",
    "SentenceEncoder": "models.sentence_encoder",
    "finetune": "stages.finetune",
    "load_tasks": "tasks.declarations",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that a command line that only prints its help does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

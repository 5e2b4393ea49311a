"""A BERT and RoBERTa encoder written from scratch on torch: configuration, model, tokenizer, checkpoints."""

import importlib
from typing import TYPE_CHECKING, Any

from minbert.errors import InputError

if TYPE_CHECKING:
    from minbert.config import BertConfig
    from minbert.model import BertModel
    from minbert.packing import PackedBatch
    from minbert.tokenizer import load_tokenizer

__all__ = ["BertConfig", "BertModel", "InputError", "PackedBatch", "load_tokenizer"]

_HOMES = {"BertConfig": "config", "BertModel": "model", "PackedBatch": "packing", "load_tokenizer": "tokenizer"}


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that a command line that only prints its help does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

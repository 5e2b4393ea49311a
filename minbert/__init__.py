"""A BERT and RoBERTa encoder written from scratch on torch: configuration, model, tokenizer, checkpoints."""

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.model import BertModel
from minbert.packing import PackedBatch
from minbert.tokenizer import load_tokenizer

__all__ = ["BertConfig", "BertModel", "InputError", "PackedBatch", "load_tokenizer"]

"""A task's examples with their tokens: training and evaluation take their rows from here."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minbert.tokenizer import Ids, Tokenizer
from multitask.data.examples import Examples, Rows
from multitask.data.tokenize_and_truncate import Tokens, tokenise

logger = logging.getLogger("multitask")


@dataclass(frozen=True)
class LabelledData:
    """The examples of one split of one task, tokenised."""

    examples: Examples
    columns: tuple[Tokens, ...]  # one per sentence column, or a single joint one

    @classmethod
    def tokenised(cls, examples: Examples, tokenizer: Tokenizer, max_length: int | None, joint: bool) -> "LabelledData":
        """Tokenise examples, pairs as one input if `joint`; a warning counts the texts that are cut."""
        if joint and len(examples.sentences) == 2:
            first, second = examples.sentences
            columns = [tokenise(first, tokenizer, max_length, second)]
        else:
            columns = [tokenise(sentences, tokenizer, max_length) for sentences in examples.sentences]
        if cut := sum(tokens.cut for tokens in columns):
            length = tokenizer.max_length if max_length is None else max_length
            texts = sum(map(len, columns))
            logger.warning("%s: cut %d of %d texts to %d tokens (--max-length)", examples.source, cut, texts, length)
        return cls(examples, tuple(columns))

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each row, over all its sentences, [rows]."""
        return np.sum([tokens.lengths for tokens in self.columns], axis=0)

    def sequences(self, rows: Rows) -> tuple[list[Ids], list[Ids]]:
        """Token ids and token types of the rows' first sentences, then of their second ones unless encoded jointly."""
        ids = [tokens[row] for tokens in self.columns for row in rows]
        types = [tokens.types_of(row) for tokens in self.columns for row in rows]
        return ids, types

"""A task's examples with their tokens: training and evaluation take their rows from here."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.tokenizer import Ids, Tokenizer
from multitask.data.read_task_files import Examples, Schema, Split, read_examples
from multitask.data.shuffle_and_batch import Rows
from multitask.data.tokenize_and_truncate import Tokens, tokenise


@dataclass(frozen=True)
class LabelledData:
    """The examples of one split of one task, tokenised."""

    examples: Examples
    columns: tuple[Tokens, ...]  # one per sentence column, or a single joint one

    @classmethod
    def load(
        cls, folder: Path, schema: Schema, split: Split, tokenizer: Tokenizer, max_length: int | None, joint: bool
    ) -> "LabelledData":
        """Read, check and tokenise a split.

        Args:
            folder: the data folder.
            schema: the task's file format.
            split: test splits have no labels.
            tokenizer: the start weights' tokenizer.
            max_length: cut sentences to this many tokens; None for the encoder's limit.
            joint: encode the two sentences of a pair as one input.

        Raises:
            InputError: a missing or malformed file.
        """
        examples = read_examples(schema.path(folder, split), schema, labelled=split != "test")
        return cls.tokenised(examples, tokenizer, max_length, joint)

    @classmethod
    def tokenised(cls, examples: Examples, tokenizer: Tokenizer, max_length: int | None, joint: bool) -> "LabelledData":
        """Tokenise examples that have been read; the arguments are those of `load`."""
        source = f"{examples.fingerprint} {len(examples)}"  # reading the same file without labels drops no rows
        if joint and len(examples.sentences) == 2:
            first, second = examples.sentences
            return cls(examples, (tokenise(first, tokenizer, max_length, f"{source} joint", second),))
        return cls(
            examples,
            tuple(
                tokenise(sentences, tokenizer, max_length, f"{source} column {index}")
                for index, sentences in enumerate(examples.sentences)
            ),
        )

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

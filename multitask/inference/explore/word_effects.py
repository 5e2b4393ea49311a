"""Which words matter to a prediction, by occlusion: how much it changes without each word.

Source: Li et al. 2016, "Understanding Neural Networks through Representation Erasure", arXiv 1612.08220. Unlike
gradients, the effects are differences of predictions that everyone can check. They do not add up to the prediction;
those of `integrated_gradients` do.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from multitask.models.predictions import Prediction, Sentence

MOST_WORDS = 120
"""Each word costs a prediction. Words after these are shown without an effect."""


class Word(NamedTuple):
    """A word of a row, without the spaces around it."""

    column: int  # 0, or 1 in the second sentence of a pair
    start: int
    end: int


def words_of(texts: Sequence[str]) -> list[Word]:
    """The words of a row's texts in order, as they are separated by spaces."""
    return [
        Word(column, found.start(), found.end())
        for column, text in enumerate(texts)
        for found in re.finditer(r"\S+", text)
    ]


def without(texts: Sequence[str], word: Word) -> Sentence:
    """The row without a word: a sentence, or the two of a pair."""
    left = list(texts)
    text = left[word.column]
    left[word.column] = f"{text[: word.start].rstrip()} {text[word.end :].lstrip()}".strip()
    return left[0] if len(left) == 1 else (left[0], left[1])


def explained_number(whole: Prediction) -> str:
    """The name of the number that effects are on: the class or label whose probability it is, or "value"."""
    if whole.value is not None:
        return "value"
    return whole.label or max(whole.probabilities, key=lambda label: whole.probabilities[label])


def effects(whole: Prediction, partial: Sequence[Prediction]) -> list[float]:
    """How much a prediction loses without each word: its `explained_number` minus that of the row without the word.

    Args:
        whole: the prediction for the whole row.
        partial: the predictions for the row without each word.
    """
    if whole.value is not None:
        return [whole.value - (part.value or 0) for part in partial]
    name = explained_number(whole)
    return [whole.probabilities[name] - part.probabilities[name] for part in partial]

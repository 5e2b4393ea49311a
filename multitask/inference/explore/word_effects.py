"""Which words matter to a prediction, by occlusion: how much it changes without each word.

Source: Li et al. 2016, "Understanding Neural Networks through Representation Erasure", arXiv 1612.08220. Unlike
gradients, the effects are differences of predictions that everyone can check. They do not add up to the prediction.
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


def effects(whole: Prediction, partial: Sequence[Prediction]) -> tuple[str, list[float]]:
    """How much a prediction loses without each word.

    Args:
        whole: the prediction for the whole row.
        partial: the predictions for the row without each word.

    Returns:
        The name of the number that is compared (the class or label whose probability it is, or "value"), and for each
        word its value for the whole row minus its value without the word.
    """
    if whole.value is not None:
        return "value", [whole.value - (part.value or 0) for part in partial]
    name = whole.label or max(whole.probabilities, key=lambda label: whole.probabilities[label])
    return name, [whole.probabilities[name] - part.probabilities[name] for part in partial]

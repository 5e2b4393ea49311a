"""The template grammar of all sample texts, and what each split may use.

In `[big|large] {animal}`, the brackets hold alternatives and the braces name a slot. All choices come from the
`random.Random` that is passed in.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Item = TypeVar("Item")

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_WRONG_A = re.compile(
    r"\b([Aa]) (?=(?:[aeiouAEIOU](?!ne\b|uro|ni[oqtv]|se[df]?\b|su|te[nr]|ku)|hour|honest|11\b|18\b|8))"
)


def expand(template: str, rng: random.Random, **slots: str) -> str:
    """Fill the slots, then choose one alternative of every `[a|b]`, including those inside a slot's value."""
    text = template
    for name, value in slots.items():
        text = text.replace("{" + name + "}", value)
    while _ALTERNATIVES.search(text):
        text = _ALTERNATIVES.sub(lambda match: rng.choice(match.group(1).split("|")), text)
    return text


def tidy(text: str) -> str:
    """Correct articles (`a apple`), doubled spaces, spaces before punctuation, and the case of the first letter."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.;?!])", r"\1", text)
    text = _WRONG_A.sub(r"\1n ", text)
    return text[0].upper() + text[1:]


def lines(block: str) -> list[str]:
    """The non-empty lines of a block of text, stripped."""
    return [line.strip() for line in block.splitlines() if line.strip()]


def available(items: Sequence[Item], split: Split, every: int = 4) -> list[Item]:
    """The items that a split may use: training leaves out every `every`-th item, dev and test use all."""
    if split != "train":
        return list(items)
    return [item for index, item in enumerate(items) if index % every != every - 1]


def own_values(items: Sequence[Item], split: Split) -> list[Item]:
    """A split's own part of a list: the last two items are for test, the two before for dev, the rest for training."""
    return list({"train": items[:-4], "dev": items[-4:-2], "test": items[-2:]}[split])


@dataclass(frozen=True)
class Example:
    """One row: its sentences, and its label if the task has labels."""

    sentences: tuple[str, ...]
    label: float | None = None


def collect(make: Callable[[], Example], count: int, taken: set[str], classes: int = 1) -> list[Example]:
    """Generate distinct examples that share no sentence with earlier ones.

    Args:
        make: generates a random example.
        count: how many examples to return.
        taken: sentences that may not occur; the new examples' sentences are added to it.
        classes: if above 1, every label gets the same number of examples.
    """
    chosen: dict[frozenset[str], Example] = {}
    per_label: Counter[float | None] = Counter()
    while len(chosen) < count:
        example = make()
        words = frozenset(example.sentences)
        full = classes > 1 and per_label[example.label] == count // classes
        if len(words) == len(example.sentences) and not words & taken and words not in chosen and not full:
            chosen[words] = example
            per_label[example.label] += 1
    taken.update(*chosen)
    return list(chosen.values())

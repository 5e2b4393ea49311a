"""Question pairs: duplicates ask the same in other words, the other pairs ask different questions, mostly related."""

import random
from dataclasses import dataclass

from .grammar import Example, Split, expand, own_values, tidy
from .questions_home import FAMILIES as HOME
from .questions_world import FAMILIES as WORLD

LIGHT_CHANGES = (
    ("What is", "What's"),
    ("How do I ", "How can I "),
    ("How can I ", "How could I "),
    ("Can I ", "May I "),
    ("Is there a way", "Is there any way"),
    ("Should I ", "Ought I to "),
    ("Which ", "What "),
    ("How do you ", "How does one "),
    ("does it cost", "would it cost"),
    ("Is it possible to ", "Can one "),
)


@dataclass(frozen=True)
class Family:
    """Questions about one kind of thing. The wordings in `intents[i]` all ask the same; a value replaces `{x}`."""

    topic: str
    values: tuple[str, ...]
    intents: tuple[tuple[str, ...], ...]

    def ask(self, rng: random.Random, intent: int, value: str, avoid: int = -1) -> tuple[int, str]:
        """Choose a wording other than number `avoid`. Returns its number and the question."""
        form = rng.choice([number for number in range(len(self.intents[intent])) if number != avoid])
        return form, tidy(expand(self.intents[intent][form], rng, x=value))


def _parse(block: str) -> Family:
    header, *rest = block.strip().splitlines()
    topic, values = header.split(": ")
    intents: list[list[str]] = []
    for line in rest:
        if line.startswith("+"):
            intents.append([])
        intents[-1].append(line.lstrip("+ "))
    return Family(topic, tuple(values.split("; ")), tuple(map(tuple, intents)))


ALL_FAMILIES = [_parse(block) for text in (HOME, WORLD) for block in text.strip().split("\n\n")]


def pool(split: Split) -> list[tuple[Family, list[str]]]:
    """The families and values that a split may use. Two of every nine families belong to dev or test alone."""
    families = []
    for index, family in enumerate(ALL_FAMILIES):
        owner = {7: "dev", 8: "test"}.get(index % 9)
        if owner is None:
            families.append((family, own_values(family.values, split)))
        elif owner == split:
            families.append((family, list(family.values)))
    return families


def _reworded_lightly(question: str) -> str:
    """The question with the first small change that applies, or unchanged."""
    for old, new in LIGHT_CHANGES:
        if old in question:
            return question.replace(old, new)
    return question


def make_pair(rng: random.Random, split: Split) -> Example:
    """A question pair with its label: 1.0 for duplicates, else 0.0."""
    choices = pool(split)
    family, values = rng.choice(choices)
    value = rng.choice(values)
    intent = rng.randrange(len(family.intents))
    form, first = family.ask(rng, intent, value)
    kind = rng.random()
    label = 0.0
    if kind < 0.40:
        label = 1.0
        second = _reworded_lightly(first) if rng.random() < 0.25 else first
        if second == first:
            second = family.ask(rng, intent, value, avoid=form)[1]
    elif kind < 0.64:
        other_intent = rng.choice([number for number in range(len(family.intents)) if number != intent])
        second = family.ask(rng, other_intent, value)[1]
    elif kind < 0.90:
        other_value = rng.choice([other for other in values if other != value])
        same_wording = tidy(expand(family.intents[intent][form], rng, x=other_value))
        second = same_wording if rng.random() < 0.35 else family.ask(rng, intent, other_value)[1]
    else:
        other, other_values = rng.choice([entry for entry in choices if entry[0] is not family])
        second = other.ask(rng, rng.randrange(len(other.intents)), rng.choice(other_values))[1]
    return Example((first, second), label)

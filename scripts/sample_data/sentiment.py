"""Opinions of one or two clauses, from very negative (0) to very positive (4).

The label follows from the clauses' levels and from how they are joined.
"""

import random
import re
from dataclasses import dataclass

from .grammar import Example, Split, available, expand, lines, tidy
from .opinion_words import CLAUSES, VERDICTS

Level = int  # -2 very negative ... 2 very positive
LEVELS: tuple[Level, ...] = (-2, -1, 0, 1, 2)
BOTH = ("{a}, and {b}.", "{A}; {b}.", "{A}. {B}.", "What I remember is that {a} and that {b}.")
CONTRAST = (
    "{A}, but {b}.",
    "Although {a}, {b}.",
    "{A}; still, {b}.",
    "{B}, even though {a}.",
    "{A}. Even so, {b}.",
    "Granted, {a}, yet {b}.",
)
ALONE = (
    "{A}.",
    "{A}.",
    "I must say that {a}.",
    "To be honest, {a}.",
    "Let me put it plainly: {a}.",
    "If you ask me, {a}.",
)


@dataclass(frozen=True)
class Domain:
    """A kind of thing that people have opinions on, with clauses by level."""

    nouns: tuple[str, ...]
    clauses: dict[Level, tuple[str, ...]]


def by_level(rows: list[str]) -> dict[Level, tuple[str, ...]]:
    """Group rows of the form `level text` by level."""
    table: dict[Level, list[str]] = {level: [] for level in LEVELS}
    for row in rows:
        level, text = row.split(" ", 1)
        table[int(level)].append(text)
    return {level: tuple(texts) for level, texts in table.items()}


def _parse_domain(block: str) -> Domain:
    header, *rows = lines(block)
    return Domain(tuple(header.split(": ")[1].split("; ")), by_level(rows))


DOMAINS = [_parse_domain(block) for block in CLAUSES.strip().split("\n\n")]
VERDICTS_BY_LEVEL = by_level(lines(VERDICTS))


@dataclass(frozen=True)
class Opinion:
    """A clause with its level. A verdict judges the whole thing, any other clause one aspect."""

    text: str
    level: Level
    is_verdict: bool


def _stands_alone(text: str) -> bool:
    """Whether a verdict cannot follow a conjunction, because it has no verb or contains a contrast."""
    return text.startswith(("a ", "not a ", "what a ", "stay ", "never ", "words ")) or ", yet " in text


@dataclass(frozen=True)
class Speaker:
    """What an opinion is generated from: random numbers, the split, and what it is about."""

    rng: random.Random
    split: Split
    domain: Domain
    noun: str

    def opinion(self, level: Level, *, verdict: bool) -> Opinion:
        """A random clause of this level."""
        table = VERDICTS_BY_LEVEL if verdict else self.domain.clauses
        text = expand(self.rng.choice(available(table[level], self.split, every=3)), self.rng, x=self.noun)
        return Opinion(text, level, verdict)


def _long_words(text: str) -> set[str]:
    """A clause's content words. Two clauses that share one could contradict each other."""
    return {word for word in re.findall(r"[a-z]+", text) if len(word) > 4} - {"about", "could", "would", "every"}


def _fill(form: str, first: str, second: str = "") -> str:
    for slot, text in (("a", first), ("b", second)):
        if text:
            form = form.replace("{" + slot + "}", text).replace("{" + slot.upper() + "}", tidy(text))
    return tidy(form)


def _joined_level(first: Opinion, second: Opinion) -> float:
    """The level of two joined clauses: the second counts more, most of all if it is a verdict.

    A neutral first clause changes nothing.
    """
    if first.level == 0:
        return second.level
    weight = 0.8 if second.is_verdict else 0.6
    return (1 - weight) * first.level + weight * second.level


def _label(level: float) -> float:
    return float(min(max(round(level), -2), 2) + 2)


def _single(speaker: Speaker, level: Level) -> Example:
    said = speaker.opinion(level, verdict=speaker.rng.random() < 0.5)
    form = "{A}." if _stands_alone(said.text) else speaker.rng.choice(ALONE)
    if level == 0 and not said.is_verdict:
        form = "{A}."
    return Example((_fill(form, said.text),), _label(level))


def _joined(speaker: Speaker, *, contrast: bool) -> Example | None:
    """Two joined clauses, or None if people would not agree on the label."""
    rng = speaker.rng
    first = speaker.opinion(rng.choice(LEVELS), verdict=False)
    second = speaker.opinion(rng.choice(LEVELS), verdict=rng.random() < 0.5)
    if _stands_alone(second.text) or _long_words(first.text) & _long_words(second.text):
        return None
    if (first.level * second.level < 0) != contrast or abs(first.level) > abs(second.level):
        return None
    if contrast and second.is_verdict and abs(first.level) == 2:
        return None
    level = _joined_level(first, second)
    if abs(level - round(level)) > 0.4:
        return None
    return Example((_fill(rng.choice(CONTRAST if contrast else BOTH), first.text, second.text),), _label(level))


def make_opinion(rng: random.Random, split: Split) -> Example:
    """An opinion with its class. All five classes are about equally frequent."""
    target = float(rng.randrange(5))
    while True:
        domain = rng.choice(DOMAINS)
        speaker = Speaker(rng, split, domain, rng.choice(domain.nouns))
        kind = rng.random()
        if kind < 0.3:
            example: Example | None = _single(speaker, rng.choice(LEVELS))
        else:
            example = _joined(speaker, contrast=kind > 0.6)
        if example is not None and example.label == target:
            return example

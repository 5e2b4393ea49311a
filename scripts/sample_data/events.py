"""News-like reports: wordings of each event, sentences that follow from it, and sentences that contradict it."""

import random
import re
from dataclasses import dataclass

from .event_words import EVENTS, SLOTS
from .grammar import Split, available, expand, tidy

SLOT_VALUES = {name: tuple(values.split("; ")) for name, values in SLOTS.items()}


@dataclass(frozen=True)
class Event:
    """A kind of event. All wordings report the same facts; some leave one out."""

    group: str
    wordings: tuple[str, ...]
    entailed: tuple[str, ...]
    contradicting: tuple[str, ...]

    def slots(self) -> list[str]:
        """Names of the facts, in the order in which the most complete wording mentions them."""
        return re.findall(r"{(\w+)}", max(self.wordings, key=lambda wording: wording.count("{")))


def tell(wording: str, facts: dict[str, str], rng: random.Random) -> str:
    """Fill the facts into a wording."""
    return tidy(expand(wording, rng, **facts))


def missing(wording: str, facts: dict[str, str]) -> int:
    """How many of the facts the wording leaves out."""
    return sum("{" + name + "}" not in wording for name in facts)


def _parse_event(block: str) -> Event:
    header, *rows = block.strip().splitlines()
    return Event(
        group=header.split()[0],
        wordings=tuple(row for row in rows if row[0] not in ">!"),
        entailed=tuple(row[2:] for row in rows if row[0] == ">"),
        contradicting=tuple(row[2:] for row in rows if row[0] == "!"),
    )


ALL_EVENTS = [_parse_event(block) for block in EVENTS.strip().split("\n\n")]


def make_event(rng: random.Random, split: Split) -> tuple[Event, dict[str, str]]:
    """Choose an event and its facts. Every eighth event and every fifth value of a slot is kept out of training."""
    event = rng.choice(available(ALL_EVENTS, split, every=8))
    return event, {name: rng.choice(available(SLOT_VALUES[name], split, every=5)) for name in event.slots()}

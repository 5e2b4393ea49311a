"""Sentence pairs with graded similarity. The gold score follows from the facts that two sentences share.

The scale is that of the SemEval STS tasks: 5 same meaning, 4 minor details differ, 3 an important detail differs,
2 some details shared, 1 same topic, 0 unrelated.
"""

import random
from dataclasses import replace

from . import events, paraphrase
from .grammar import Example, Split, available
from .scenes import Scene, adjectives, make_scene

EVENT_COST = {"day": 0.8, "number": 1.2, "few": 1.2, "share": 1.2, "sum": 1.4}
OTHER_FACT_COST = 2.2
LEFT_OUT_COST = 0.6


def _score(value: float, rng: random.Random) -> float:
    """The value with noise of up to 0.2, in steps of 0.2, like the mean of a few annotators."""
    value += rng.choice((-0.2, 0.0, 0.0, 0.2))
    return round(min(max(value, 0.0), 5.0) * 5) / 5


def _changed(scene: Scene, rng: random.Random, split: Split) -> tuple[Scene, float]:
    """A changed scene, and how much of the meaning the change removes, in points of the scale."""
    theme = scene.theme
    agent = rng.choice([other for other in theme.agents if other != scene.agent])
    place = rng.choice([other for other in theme.places if other != scene.place])
    things = [other for other in available(scene.action.things, split) if other != scene.thing]
    action = rng.choice([other for other in theme.actions if other is not scene.action])
    plain = replace(scene, adjective="", clothes="")
    detail_cost = 0.5 if scene.adjective or scene.clothes else 0.0
    other = rng.choice([other for other in adjectives(theme, scene.agent) if other != scene.adjective])
    in_adjective = replace(scene, adjective=other, clothes="")
    elsewhere = 1.2 if scene.place else 0.8
    something_else = replace(scene, action=action, thing=rng.choice(available(action.things, split)))
    return rng.choice(
        [
            (plain, detail_cost),
            (replace(plain, place=""), detail_cost + (0.6 if scene.place else 0.0)),
            (in_adjective, 1.0 if scene.adjective else 0.7),
            (replace(scene, place=place), elsewhere),
            (replace(plain, place=place), elsewhere + detail_cost * 0.8),
            (replace(plain, agent=agent), 1.6 + detail_cost * 0.6),
            (replace(scene, thing=rng.choice(things)), 2.0),
            (replace(plain, agent=agent, place=place), 2.4),
            (replace(plain, thing=rng.choice(things), place=place), 2.8),
            (replace(plain, agent=agent, thing=rng.choice(things)), 3.0),
            (something_else, 3.2),
            (replace(something_else, place=place), 3.6),
            (replace(something_else, agent=agent, adjective="", clothes=""), 3.8),
            (replace(something_else, agent=agent, place=place, adjective="", clothes=""), 4.2),
        ]
    )


def _scene_pair(rng: random.Random, split: Split) -> Example:
    scene = make_scene(rng, split)
    kind = rng.random()
    if kind < 0.17:
        other, cost = scene, 0.0
    elif kind < 0.90:
        other, cost = _changed(scene, rng, split)
    else:
        other = make_scene(rng, split)
        if other.theme is scene.theme:
            return _scene_pair(rng, split)
        cost = 4.6 if other.agent == scene.agent else 4.9
    first, second = scene.tell(rng), other.tell(rng)
    pair = (first, second) if rng.random() < 0.5 else (second, first)
    return Example(pair, _score(5 - cost, rng))


def _other_facts(facts: dict[str, str], rng: random.Random, split: Split) -> dict[str, str]:
    """The facts with one to three of them replaced."""
    changed = rng.sample(sorted(facts), k=min(rng.choice((1, 1, 2, 3)), len(facts)))
    values = events.SLOT_VALUES
    return facts | {
        name: rng.choice([value for value in available(values[name], split, every=5) if value != facts[name]])
        for name in changed
    }


def _event_pair(rng: random.Random, split: Split) -> Example:
    event, facts = events.make_event(rng, split)
    wording, other_wording = rng.sample(event.wordings, 2)
    other_facts = facts
    kind = rng.random()
    if kind < 0.75:
        if kind > 0.30:
            other_facts = _other_facts(facts, rng, split)
            other_wording = rng.choice(event.wordings)
        told = [name for name in facts if "{" + name + "}" in wording and "{" + name + "}" in other_wording]
        cost = sum(EVENT_COST.get(name, OTHER_FACT_COST) for name in told if facts[name] != other_facts[name])
        left_out = abs(events.missing(wording, facts) - events.missing(other_wording, facts))
        cost = min(cost, 3.4) + LEFT_OUT_COST * left_out
    else:
        other_event, other_facts = events.make_event(rng, split)
        if other_event is event:
            return _event_pair(rng, split)
        other_wording = rng.choice(other_event.wordings)
        cost = 4.3 if event.group == other_event.group else 4.9
        where = [name for name in ("place", "town", "firm", "team") if name in facts and name in other_facts]
        if where and rng.random() < 0.5:
            other_facts = other_facts | {name: facts[name] for name in where}
            cost -= 0.5
    return Example(
        (events.tell(wording, facts, rng), events.tell(other_wording, other_facts, rng)), _score(5 - cost, rng)
    )


def _question_pair(rng: random.Random, split: Split) -> Example:
    """Two questions: with the same meaning, with another value or intent, or with both different."""
    family, values = rng.choice(paraphrase.pool(split))
    value, other_value = rng.sample(values, 2)
    intent, other_intent = rng.sample(range(len(family.intents)), 2)
    form, first = family.ask(rng, intent, value)
    second, similarity = rng.choice(
        [
            (family.ask(rng, intent, value, avoid=form)[1], 4.8),
            (family.ask(rng, intent, value, avoid=form)[1], 4.8),
            (family.ask(rng, intent, other_value)[1], 2.6),
            (family.ask(rng, other_intent, value)[1], 1.6),
            (family.ask(rng, other_intent, other_value)[1], 0.8),
        ]
    )
    return Example((first, second), _score(similarity, rng))


def make_pair(rng: random.Random, split: Split) -> Example:
    """A sentence pair with a score from 0.0 to 5.0."""
    kind = rng.random()
    if kind < 0.55:
        return _scene_pair(rng, split)
    return _event_pair(rng, split) if kind < 0.87 else _question_pair(rng, split)

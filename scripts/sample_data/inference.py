"""Triplets of a premise, a sentence that follows from it and a sentence that contradicts it."""

import random
from dataclasses import replace

from . import events
from .grammar import Example, Split, expand, tidy
from .scenes import Scene, make_scene

PEOPLE_DO_NOT = (
    "{who} {be} fast asleep.",
    "{who} {be} taking a nap.",
    "{who} {be} swimming in the sea.",
    "{who} {be} sitting still and doing nothing.",
    "{who} {be} lying on the floor with closed eyes.",
    "{who} stopped {doing} a long time ago.",
    "{who} {be} driving a car.",
    "Nobody is {doing}.",
    "There is no one {place}.",
)
ANIMALS_DO_NOT = (
    "{who} stopped {doing} a long time ago.",
    "{who} {be} nowhere to be seen.",
    "{who} {be} locked up in a cage.",
    "There are no animals {place}.",
)
GENERAL = (
    "Someone is {general}.",
    "{who} {be} {general}.",
    "{who} {be} awake.",
    "There {be} {who} {place}.",
    "{who} {be} {doing}.",
    "{who} {be} {doing}.",
)


def _definite(scene: Scene) -> str:
    article, noun = scene.agent.split(" ", 1)
    return f"the two {noun}" if article == "two" else f"the {noun}"


def _fill(form: str, scene: Scene, who: str, rng: random.Random) -> str:
    doing = f"{scene.action.verb} {scene.thing}"
    slots = {"who": who, "be": scene.verb_form, "doing": doing, "general": scene.action.general, "place": scene.place}
    return tidy(expand(form, rng, **slots))


def _entailed(scene: Scene, rng: random.Random) -> str:
    forms = [form for form in GENERAL if scene.place or "{place}" not in form]
    if not scene.theme.has_people:
        forms = [form.replace("Someone", "An animal") for form in forms if "awake" not in form]
    form = rng.choice(forms)
    if form.startswith("There"):
        return _fill(form, scene, scene.agent, rng)
    return _fill(form, scene, rng.choice((scene.agent, _definite(scene))), rng)


def _contradicting(scene: Scene, rng: random.Random, split: Split) -> str:
    who = _definite(scene)
    if rng.random() < 0.35:
        forms = PEOPLE_DO_NOT if scene.theme.has_people else ANIMALS_DO_NOT
        return _fill(rng.choice([form for form in forms if scene.place or "{place}" not in form]), scene, who, rng)
    if rng.random() < 0.5:
        thing = rng.choice([other for other in scene.action.things if other != scene.thing])
        return _fill("{who} {be} {doing}.", replace(scene, thing=thing), who, rng)
    other = make_scene(rng, split)
    while other.theme.has_people != scene.theme.has_people or other.action.general == scene.action.general:
        other = make_scene(rng, split)
    return _fill("{who} {be} {doing}.", replace(scene, action=other.action, thing=other.thing), who, rng)


def make_triplet(rng: random.Random, split: Split) -> Example:
    """A triplet without a label: premise, entailed sentence, contradicting sentence."""
    if rng.random() < 0.6:
        scene = make_scene(rng, split)
        return Example((scene.tell(rng), _entailed(scene, rng), _contradicting(scene, rng, split)))
    event, facts = events.make_event(rng, split)
    wordings = [wording for wording in event.wordings if events.missing(wording, facts) <= 1]
    chosen = (rng.choice(wordings), rng.choice(event.entailed), rng.choice(event.contradicting))
    premise, entailed, contradicting = (events.tell(text, facts, rng) for text in chosen)
    return Example((premise, entailed, contradicting))

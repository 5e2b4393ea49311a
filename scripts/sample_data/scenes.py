"""Described scenes: someone does something to something somewhere, in several wordings."""

import random
from dataclasses import dataclass

from .grammar import Split, available, expand, tidy
from .scene_words import ADJECTIVES, ANIMAL_ADJECTIVES, CLOTHES, PEOPLE, THEMES


@dataclass(frozen=True)
class Action:
    """A verb, its possible objects, and a general word for the action."""

    verb: str
    things: tuple[str, ...]
    general: str


@dataclass(frozen=True)
class Theme:
    """The agents, places and actions that go together."""

    name: str
    agents: tuple[str, ...]
    places: tuple[str, ...]
    actions: tuple[Action, ...]

    @property
    def has_people(self) -> bool:
        """Whether the agents are people; otherwise they are animals."""
        return self.agents == tuple(PEOPLE.split("; "))


@dataclass(frozen=True)
class Scene:
    """The facts of a scene. `adjective`, `clothes` and `place` may be empty."""

    theme: Theme
    agent: str
    adjective: str
    clothes: str
    action: Action
    thing: str
    place: str

    @property
    def verb_form(self) -> str:
        """`are` for two agents, otherwise `is`."""
        return "are" if self.agent.startswith("two") else "is"

    def who(self) -> str:
        """The agent with adjective and clothes."""
        article, noun = self.agent.split(" ", 1)
        single, _, plural = self.clothes.partition(" / ")
        return f"{article} {self.adjective} {noun} {plural if article == 'two' or noun == 'couple' else single}"

    def tell(self, rng: random.Random) -> str:
        """One sentence with all facts."""
        doing = f"{self.action.verb} {self.thing}"
        forms = [f"{self.who()} {self.verb_form} {doing} {self.place}."]
        if not self.clothes:
            forms.append(f"There {self.verb_form} {self.who()} {doing} {self.place}.")
        if self.place:
            forms.append(f"{self.place}, {self.who()} {self.verb_form} {doing}.")
        return tidy(expand(rng.choice(forms), rng))


def _parse_theme(block: str) -> Theme:
    header, *rows = block.strip().splitlines()
    name, _, facts = header.partition(": ")
    agents, places = facts.split(" | ")
    actions = []
    for row in rows:
        verb, _, tail = row.partition(": ")
        things, general = tail.split(" > ")
        actions.append(Action(verb, tuple(things.split("; ")), general))
    agents = PEOPLE if agents == "people" else agents
    return Theme(name, tuple(agents.split("; ")), tuple(places.split("; ")), tuple(actions))


ALL_THEMES = [_parse_theme(block) for block in THEMES.split("\n\n")]


def adjectives(theme: Theme, agent: str) -> list[str]:
    """The adjectives that fit this agent."""
    if not theme.has_people:
        return ANIMAL_ADJECTIVES.split("; ")
    child = "boy" in agent or "girl" in agent
    return [word for word in ADJECTIVES.split("; ") if not (child and ("elderly" in word or word == "young"))]


def make_scene(rng: random.Random, split: Split) -> Scene:
    """A random scene with some details. One object of each verb and the last theme are kept out of training."""
    theme = rng.choice(available(ALL_THEMES, split, every=len(ALL_THEMES)))
    action = rng.choice(theme.actions)
    agent = rng.choice(theme.agents)
    detail = rng.random()
    return Scene(
        theme=theme,
        agent=agent,
        adjective=rng.choice(adjectives(theme, agent)) if detail < 0.45 else "",
        clothes=rng.choice(CLOTHES.split("; ")) if theme.has_people and detail > 0.75 else "",
        action=action,
        thing=rng.choice(available(action.things, split)),
        place=rng.choice(theme.places) if rng.random() < 0.75 else "",
    )

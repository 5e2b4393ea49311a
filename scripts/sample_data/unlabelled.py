"""Unlabelled sentences: of the tasks' kinds, and encyclopedic ones on places, people, trades, plants and animals."""

import random

from . import events, inference, paraphrase
from .grammar import Example, Split, expand, lines, tidy
from .scenes import make_scene
from .sentiment import make_opinion

FACTS = lines("""
{town} is a [small|quiet|lively] town on the river {river}, best known for its {trade}.
The oldest mill in {town} was built in {year} and still [stands|turns] on the bank of the {river}.
Until {year}, most families in {town} lived from {trade}, and some of the old [workshops|warehouses] can still be seen.
A railway line reached {town} in {year}, which [doubled|tripled] the number of inhabitants within a generation.
The bridge over the {river} at {town} was [swept away|damaged] by a flood in {year} and rebuilt in stone.
{name} was born in {town} in {year}, the [third|fourth|youngest] child of a family of {trader}s.
After years as a {trader}, {name} turned to writing and published a first book in {year}.
{name} is remembered for a study of {subject}, which appeared in {year} and was translated into {few} languages.
In {year}, {name} opened a school in {town} where girls could learn {subject} for the first time.
The museum of {town} shows how {trade} changed between {year} and today.
The {plant} grows in [damp|sunny|stony] places and flowers from {month} to {month2}.
The leaves of the {plant} are used against [coughs|fever|sore throats] in many villages along the {river}.
Farmers near the {river} plant {plant} between the rows, because it keeps [insects|snails] away.
The {beast} feeds mostly at night and may travel more than {few} miles in search of food.
A female {beast} has between two and {few} young, which leave her after [a few months|the first winter].
The {beast} was once common along the {river}, but no animal has been seen there since {year}.
{subject} has been taught in {town} since {year}, at first [in a barn|in the old mill|to a handful of pupils].
Students of {subject} often find the first year hard, because so much has to be learned by heart.
The {tool} was improved by {name}, a {trader} from {town}, in the winter of {year}.
Without the {tool}, {trade} would have remained slow and dangerous work.
A good {tool} lasts for decades if it is kept dry and oiled [twice a year|every spring].
The winters along the {river} are [mild and wet|long and dry], and the warmest month is usually {month2}.
In {month2}, the people of {town} [celebrate|mark] the end of the harvest with a market and a boat race on the {river}.
When {name} moved to {town}, the only work to be found was in {trade}.
According to a law of {year}, nobody was allowed to sell a {tool} in {town} without the council's permission.
""")

WORDS = {
    "town": "Harrow Bridge; Elmstead; Port Callan; Oldmere; Saint Aubry; Kirkwold; Vallenza; Nordhafen; Ostrova",
    "river": "Senn; Wether; Alder; Marne Brook; Lisk; Orvane; Teal; Dray",
    "trade": "glass blowing; boat building; paper making; salt mining; weaving; printing; rope making; fishing",
    "trader": "baker; miller; tailor; sailor; clockmaker; printer; weaver; farmer",
    "name": "Ada Lindqvist; Tomas Hale; Miriam Okafor; Jean Castell; Rosa Varga; Samuel Pryce; Ines Duarte; Henrik Moe",
    "subject": "astronomy; botany; geometry; grammar; medicine; music theory; navigation; geology",
    "plant": "wild thyme; marsh mallow; sea kale; yarrow; lady's mantle; bog myrtle; common sage; dog rose",
    "beast": "pine marten; stone curlew; grey hare; water vole; fire salamander; horned owl; polecat; river crab",
    "tool": "hand loom; water pump; ship's compass; seed drill; printing press; lathe; spinning wheel; pocket watch",
    "month": "March; April; May; June",
    "month2": "July; August; September",
    "few": "three; four; five; six; seven; nine",
}
LINKS = ("{a}, while {b}.", "{a}, and {b}.", "{a}; at the same moment, {b}.", "While {a}, {b}.")


def _fact(rng: random.Random) -> str:
    slots = {name: rng.choice(values.split("; ")) for name, values in WORDS.items()}
    return tidy(expand(rng.choice(FACTS), rng, year=str(rng.randrange(1841, 1939)), **slots))


def _two_scenes(rng: random.Random, split: Split) -> str:
    first, second = (make_scene(rng, split).tell(rng).rstrip(".") for _ in range(2))
    form = rng.choice(LINKS)
    return tidy(form.replace("{a}", first[0].lower() + first[1:]).replace("{b}", second[0].lower() + second[1:]))


def make_caption(rng: random.Random, split: Split) -> Example:
    """A described scene, like a caption."""
    return Example((tidy(make_scene(rng, split).tell(rng)),))


def make_report(rng: random.Random, split: Split) -> Example:
    """A news-like report of an event."""
    event, facts = events.make_event(rng, split)
    return Example((events.tell(rng.choice(event.wordings), facts, rng),))


def make_sentence(rng: random.Random, split: Split) -> Example:
    """One sentence of a random kind."""
    return Example((_sentence(rng, split),))


def _sentence(rng: random.Random, split: Split) -> str:
    kind = rng.randrange(10)
    if kind < 4:
        return _fact(rng)
    if kind == 4:
        return _two_scenes(rng, split)
    if kind == 5:
        return rng.choice(inference.make_triplet(rng, split).sentences)
    if kind == 6:
        return make_report(rng, split).sentences[0]
    if kind == 7:
        return rng.choice(paraphrase.make_pair(rng, split).sentences)
    return make_opinion(rng, split).sentences[0]

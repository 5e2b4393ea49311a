"""Long film reviews, positive (1) or negative (0). Each also makes one or two points for the other side."""

import random

from .grammar import Example, Split, available, expand, lines, tidy
from .sentiment import DOMAINS, VERDICTS_BY_LEVEL, Domain

FILM: Domain = DOMAINS[0]

OPENINGS = lines("""
I saw this {x} last night with [two friends|my brother|my parents], and none of us knew what to expect.
My local cinema showed this {x} for [one week|three nights] only, so I went on the last evening.
A colleague had been talking about this {x} for months before I finally sat down to watch it.
I came across this {x} by accident, on a rainy Sunday when nothing else was on.
There was a long queue when this {x} opened here, and I was part of it.
I had read the book years ago, so I was curious about the {x}.
This {x} has been on my list since it came out [two|five|ten] years ago.
My [wife|husband] chose this {x} for our evening, and I had no say in it.
I watched this {x} on a plane, half asleep at first.
Let me begin by saying that I do not usually go for this kind of {x}.
""")

HEROES = lines("""
a retired lighthouse keeper
a young nurse from the country
two brothers who have not spoken in years
a chess teacher with a secret
a [widowed|divorced] train driver
a young repairer of clocks
an accountant without a job
a team of divers
a violin maker and her son
a small-town judge
""")

EVENTS = lines("""
returns to the island of [childhood summers|old memories]
inherits a house full of letters
is asked to find a missing painting
gets stuck in a snowed-in hotel
moves to a city by the sea
takes a job at a failing theatre
is mistaken for someone else
wins a boat in a card game
""")

TURNS = lines("""
learns that nothing there is as it seems
has to choose between money and an old promise
meets a stranger who knows far too much
finds out what really happened [thirty|twenty] years earlier
sets off on a journey that takes most of the {x}
is drawn into a quarrel between two families
must tell the truth before the first ship leaves
""")

PRAISE = lines("""
I laughed, I cried, and I forgot to eat my popcorn.
The two hours went by like ten minutes.
Days later I still find myself thinking about that last scene.
What could have been a cheap story becomes something tender and true.
The silence in the room during the farewell said everything.
You believe every word these people say to each other.
The child who plays the daughter steals every scene without seeming to try.
It trusts its audience, which is rarer than it should be.
The old theme has been done a hundred times, and yet it feels new here.
The costumes, the light and the music all serve the story.
I have since watched it twice more and noticed new things each time.
The villain is no monster, just a man with reasons, and that makes him frightening.
Even the smallest parts are played with care.
People clapped at the end, which never happens in our town.
""")

BLAME = lines("""
I checked my watch four times, and I was not the only one.
The two hours felt like five.
By the next morning I had forgotten how it ended.
What could have been a tender story becomes a parade of clichés.
The silence in the room was that of people who had dozed off.
Nobody on this earth talks like these characters do.
The child who plays the daughter recites her lines like a shopping list.
It explains everything three times, as if we were fools.
The theme has been done a hundred times, and it was better every time before.
The music tells us what to feel because the pictures cannot.
I tried to watch it a second time to be fair and gave up after half an hour.
The villain does evil things for no reason, apart from the need for a plot.
Even good actors look lost in it.
A few people laughed at the end, though it was meant to be sad.
""")

GRANTED = {
    1: ("To be fair, {a}.", "I admit that {a}.", "One can complain that {a}.", "Yes, {a}.", "It is true that {a}."),
    0: ("To be fair, {a}.", "I admit that {a}.", "One can say in its favour that {a}.", "Yes, {a}.", "At least {a}."),
}
RECEPTION = {
    1: lines("""
    Some critics called it dull and shallow, and I cannot understand why.
    My brother found it boring, but he checks his phone during every {x}.
    The bad reviews almost kept me away; I am glad that they did not.
    Compared with the awful sequel, this one is a jewel.
    I was prepared for a disaster, and I got something quite different.
    """),
    0: lines("""
    Some critics called it brilliant and moving, and I cannot understand why.
    My brother loved it, but he loves every {x} that has a car chase.
    The good reviews drew me in; I should have stayed at home.
    Compared with the wonderful original, this one is a shadow.
    I was prepared for a masterpiece, and I got something quite different.
    """),
}


def _summary(rng: random.Random, noun: str) -> str:
    hero, event, turn = rng.choice(HEROES), rng.choice(EVENTS), rng.choice(TURNS)
    if hero.startswith("two"):
        return expand(f"It tells the story of {hero}: one of them {event} and {turn}.", rng, x=noun)
    if hero.startswith(("a team", "a violin maker and")):
        return expand(f"It is about {hero}, and how one person {event} and {turn}.", rng, x=noun)
    return expand(f"The story follows {hero} who {event} and {turn}.", rng, x=noun)


def make_review(rng: random.Random, split: Split) -> Example:
    """A review of 80 to 250 words, with its class."""
    label = rng.randrange(2)
    sign = 1 if label else -1
    noun = rng.choice([noun for noun in FILM.nouns if noun != "comedy"])

    subjects: set[str] = set()

    def clauses(level: int, count: int) -> list[str]:
        """Clauses on subjects that the review has not mentioned yet, so that it cannot contradict itself."""
        texts = available(FILM.clauses[level], split, every=3)
        texts = [text for text in rng.sample(texts, len(texts)) if text.split()[1] not in subjects][:count]
        subjects.update(text.split()[1] for text in texts)
        return [expand(text, rng) for text in texts]

    own_side = available(PRAISE if label else BLAME, split, every=3)
    neutral = [tidy(text + ".") for text in clauses(0, rng.choice((1, 2)))]
    opinions = [tidy(text + ".") for text in clauses(sign, rng.choice((1, 2, 3)))]
    opinions += [tidy(text + ".") for text in clauses(2 * sign, rng.choice((0, 1, 1)))]
    opinions += rng.sample(own_side, rng.choice((1, 2, 3)))
    granted = zip(rng.sample(GRANTED[label], 2), clauses(-sign, rng.choice((1, 2))), strict=False)
    opinions += [form.replace("{a}", text) for form, text in granted]
    if rng.random() < 0.6:
        opinions.append(expand(rng.choice(RECEPTION[label]), rng, x=noun))
    rng.shuffle(opinions)
    verdict = expand(rng.choice(available(VERDICTS_BY_LEVEL[rng.choice((1, 2)) * sign], split, every=3)), rng, x=noun)
    opening = expand(rng.choice(OPENINGS), rng, x=noun)
    parts = [opening, *neutral, _summary(rng, noun), *opinions, tidy(verdict + ".")]
    review = " ".join(parts)
    return Example((review,), float(label)) if 80 <= len(review.split()) <= 250 else make_review(rng, split)

"""Messages of customers with a topic and an urgency, for tasks that a user declares."""

import random

from .grammar import expand, lines, tidy

TOPICS = {
    "delivery": lines("""
    my [parcel|package|order] [has not arrived|is a week late|went to the wrong house]
    the [driver|courier] left the [box|parcel] [in the rain|with a stranger|at the wrong door]
    I would like to know [when my order leaves the warehouse|where my parcel is now|which day you deliver]
    the tracking page [shows nothing|has not changed for days|says my order is abroad]
    """),
    "payment": lines("""
    I was charged [twice|too much|for something I never bought]
    the [invoice|bill] shows [another amount|a wrong address|last year's price]
    my [card|bank] was [refused|rejected] [at the checkout|again this morning]
    I am still waiting for my [refund|money back|credit note]
    """),
    "account": lines("""
    I cannot [log in|reset my password|change my email address]
    somebody else [used|logged in to] my account
    the [app|site] [forgets my password|asks for a code that never comes|locked me out]
    please [delete|close|merge] my [account|two profiles]
    """),
    "returns": lines("""
    the [shoes are|jacket is|lamp is] [too small|broken|not what I ordered] and I want to send [them|it] back
    how do I return [a gift|something I opened|an item without its box]
    the return label [does not print|is missing|has the wrong address]
    I sent the [coat|kettle|chair] back [two weeks ago|last month] and heard nothing
    """),
}
URGENCY = {
    1: lines("""
    There is no hurry at all.
    Whenever you find the time is fine.
    """),
    2: lines("""
    An answer [this month|some time next week] would be nice.
    It is not very pressing.
    """),
    3: lines("""
    Please [answer|let me know] [this week|in the next days].
    I hope to hear from you soon.
    """),
    4: lines("""
    I need [an answer|this] by tomorrow.
    This is [quite|rather] urgent.
    """),
    5: lines("""
    I need help right now!
    This must be solved today, [immediately|at once]!
    """),
}
OPENERS = ["", "", "Hello,", "Good morning,", "Dear team,", "Hi there,"]


def make_message(rng: random.Random) -> tuple[str, str, int]:
    """A message, its topic, and its urgency from 1 to 5."""
    topic, urgency = rng.choice(list(TOPICS)), rng.choice(list(URGENCY))
    opener = rng.choice(OPENERS)
    question = expand(rng.choice(TOPICS[topic]), rng)
    sentence = f"{opener} {question}" if opener else question
    mark = "?" if question.startswith("how") else "."
    return f"{tidy(sentence + mark)} {expand(rng.choice(URGENCY[urgency]), rng)}", topic, urgency

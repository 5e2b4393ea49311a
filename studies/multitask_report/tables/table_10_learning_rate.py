"""Table 10 (report, section 6.5): learning rate of the contrastive pre-training on the three given sets.

Labels are the report's rates where the preset's default is the report's 1e-5, otherwise the preset's own beside them.
The fine-tuning keeps its own rate.
"""

from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table

PUBLISHED = {
    1: Published(0.637, 0.497, 0.806, 0.609),
    2: Published(0.664, 0.516, 0.815, 0.661),
    3: Published(0.658, 0.496, 0.799, 0.680),
}


def table(recipes: Recipes) -> Table:
    """One, two and three times the default rate."""
    default = recipes.supervised.optimizer.learning_rate

    def label(rate: int) -> str:
        own, reported = (f"{rate * base:.0e}".replace("e-0", "e-") for base in (default, 1e-5))
        return reported if own == reported else f"{own} (report: {reported})"

    return Table(
        "10",
        "Learning rate of the contrastive pre-training",
        "Pre-training on the 3 given sets; the fine-tuning is the same.",
        tuple(
            Row(label(rate), recipes.finetune(recipes.given(rate=rate)), published)
            for rate, published in PUBLISHED.items()
        ),
        reference=label(2),
    )

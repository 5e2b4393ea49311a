"""Table 8 (report, section 6.5): epochs of the contrastive pre-training on NLI. Three are Table 2's row."""

from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """One epoch and three."""
    return Table(
        "8",
        "Longer contrastive pre-training on NLI",
        "Epochs of the pre-training; the fine-tuning is the same.",
        (
            Row("1 epoch", recipes.finetune(recipes.nli(epochs=1)), Published(0.630, 0.500, 0.730, 0.658)),
            Row("3 epochs", recipes.finetune(recipes.nli(epochs=3)), Published(0.661, 0.500, 0.746, 0.735)),
        ),
        reference="3 epochs",
    )

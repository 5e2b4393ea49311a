"""Table 9 (report, section 6.5): epochs of the contrastive pre-training on the three given sets.

The learning rate is not said; here the default one. Neither row's numbers are in another table.
"""

from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """Two epochs and three."""
    two, three = (recipes.finetune(recipes.given(rate=1, epochs=epochs)) for epochs in (2, 3))
    return Table(
        "9",
        "Longer contrastive pre-training on the 3 given sets",
        "Epochs of the pre-training, at the default learning rate; the fine-tuning is the same.",
        (
            Row("2 epochs", two, Published(0.591, 0.406, 0.697, 0.671)),
            Row("3 epochs", three, Published(0.610, 0.360, 0.724, 0.748)),
        ),
        reference="3 epochs",
    )

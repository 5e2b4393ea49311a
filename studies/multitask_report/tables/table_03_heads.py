"""Table 3 (report, section 6.1): what the prediction heads share.

The report does not say what the fine-tuning started from. Its best row (0.539) is close to the baseline without
contrastive pre-training (0.540), so: from the start weights themselves. The bold row is then that baseline.
"""

from dataclasses import replace

from multitask.models.config import Sharing
from studies.engine.recipes import Node, Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """Fine-tuning without pre-training, under three sharings."""

    def heads(sharing: Sharing) -> Node:
        config = replace(recipes.multitask, heads=replace(recipes.multitask.heads, sharing=sharing))
        return recipes.finetune(recipes.start, config)

    return Table(
        "3",
        "MLP networks in the prediction heads",
        "What the heads of paraphrase and similarity share. Fine-tuned from the start weights, without pre-training.",
        (
            Row("All different", heads("separate"), Published(0.530, 0.496, 0.732, 0.361)),
            Row("Shared heads", heads("shared"), Published(0.494, 0.497, 0.625, 0.361)),
            Row("Shared 1st linear layer", heads("shared_first_layer"), Published(0.539, 0.514, 0.734, 0.370)),
        ),
        reference="Shared 1st linear layer",
    )

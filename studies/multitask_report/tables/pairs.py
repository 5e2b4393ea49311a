"""Beyond the report: other ways to compare a pair than transforming each sentence by itself."""

from dataclasses import replace

from multitask.models.config import HeadsConfig
from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """The report's heads beside two others."""
    report = recipes.multitask.heads

    def heads(config: HeadsConfig) -> Node:
        return recipes.finetune(recipes.start, replace(recipes.multitask, heads=config))

    return Table(
        "pairs",
        "Other ways to compare a pair",
        "Not in the report. Residual transforms begin as the identity; pair features are |x-y|, x*y and x+y, read by "
        "an MLP for each task.",
        (
            Row("Shared 1st linear layer", heads(report)),
            Row("Shared 1st linear layer, residual", heads(replace(report, residual=True))),
            Row("Pair features", heads(replace(report, sharing="separate", pairs="features"))),
        ),
        reference="Shared 1st linear layer",
    )

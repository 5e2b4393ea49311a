"""How losses depend on the number of sentences, at one pass over them."""

from dataclasses import replace

from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table
from studies.gradient_paradigm.tables.objectives import OBJECTIVES

SIZES = (1024, 4096, 16384, 65536, None)
REFERENCE = 4096
LABELS = ("InfoNCE", "VICReg, modified")


def table(recipes: Recipes) -> Table:
    """The first so many sentences, each seen once."""
    return Table(
        "data-sizes",
        "Data size of unsupervised pre-training",
        "Beyond the papers. One pass over the first so many sentences; more sentences are more steps.",
        tuple(
            Row(
                f"{label}, {'all' if size is None else f'{size:,}'}",
                recipes.pretrain(
                    recipes.untuned, replace(recipes.views, objective=OBJECTIVES[label], train_limit=size)
                ),
            )
            for label in LABELS
            for size in SIZES
        ),
        reference=f"{LABELS[0]}, {REFERENCE:,}",
        columns=("similarity",),
        on_request=True,
    )

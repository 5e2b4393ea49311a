"""How losses depend on the number of negatives: batches of 16 to 1,024, by gradient caching."""

from dataclasses import replace
from math import sqrt

from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, Table
from studies.gradient_paradigm.tables.objectives import OBJECTIVES

SIZES = (16, 32, 64, 128, 256, 512, 1024)
REFERENCE = 128  # the papers'
LABELS = ("InfoNCE", "VICReg, modified")
CHUNK = 64  # rows that are encoded at a time


def table(recipes: Recipes) -> Table:
    """The same sentences in batches of different sizes."""

    def trained(label: str, size: int) -> Node:
        views = recipes.views
        rate = views.optimizer.learning_rate * sqrt(size / views.batch_size)
        optimizer = replace(views.optimizer, learning_rate=rate)
        config = replace(views, objective=OBJECTIVES[label], batch_size=size, optimizer=optimizer)
        return recipes.pretrain(recipes.untuned, replace(config, chunk=CHUNK if size > CHUNK else None))

    return Table(
        "batch-sizes",
        "Batch size of unsupervised pre-training",
        "Beyond the papers. The same number of sentences, so larger batches take fewer steps; the learning rate grows "
        "with the square root of the batch.",
        tuple(Row(f"{label}, {size}", trained(label, size)) for label in LABELS for size in SIZES),
        reference=f"{LABELS[0]}, {REFERENCE}",
        columns=("similarity",),
        on_request=True,
    )

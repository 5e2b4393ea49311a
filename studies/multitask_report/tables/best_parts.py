"""The best recipe without each of its parts, at the preset's size."""

from dataclasses import replace

from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table
from studies.multitask_report.tables.best import BEST


def table(recipes: Recipes) -> Table:
    """Fine-tunings that each undo one choice."""
    size = recipes.multitask
    best = replace(
        BEST, epochs=size.epochs, epoch_size=size.epoch_size, optimizer=size.optimizer, keep_task_bests=False
    )
    variants = {
        "Best": best,
        "Equal weights": replace(best, task_weights=None),
        "Bilinear paraphrase": replace(best, heads=replace(best.heads, pairs="embeddings")),
        "Transforms begin at random": replace(best, heads=replace(best.heads, residual=False)),
        "Dropout within the encoder": replace(best, encoder_dropout=None),
    }
    return Table(
        "best-parts",
        "The best recipe without each of its parts",
        "Beyond the report. Every row is one change of the best recipe, at the preset's size.",
        tuple(Row(label, recipes.finetune(recipes.start, config)) for label, config in variants.items()),
        reference="Best",
        on_request=True,
    )

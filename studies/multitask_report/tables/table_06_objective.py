"""Table 6 (report, sections 4.2, 6.4): how the three tasks share the steps.

The row of the average loss has the numbers of Table 2's baseline, so all three are fine-tuned without pre-training.
The report's epoch round robin trains "on each entire dataset sequentially"; where a preset sets an epoch's size, that
is the size here too, the same for every row.
"""

from dataclasses import replace

from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """Fine-tuning without pre-training, under three schedulers."""
    epoch, batch, average = (
        recipes.finetune(recipes.start, replace(recipes.multitask, scheduler=scheduler))
        for scheduler in ("epoch_round_robin", "batch_round_robin", "average")
    )
    return Table(
        "6",
        "The multi-task objective",
        "Fine-tuned from the start weights: one task after another in every epoch, in turn by batch, or all in every "
        "step.",
        (
            Row("Epoch round robin", epoch, Published(0.493, 0.507, 0.519, 0.453)),
            Row("Batch round robin", batch, Published(0.491, 0.510, 0.520, 0.442)),
            Row("Multi-task average loss", average, Published(0.540, 0.490, 0.726, 0.404)),
        ),
        reference="Multi-task average loss",
    )

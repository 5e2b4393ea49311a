"""Table 7 (report, sections 4.2, 6.4): PCGrad (Yu et al. 2020, arXiv 2001.06782) instead of the average loss.

The row of the average loss has the numbers of Table 5's "NLI before 3 given", so both start from that pre-training.
The tasks' gradients are averaged after the projection, as in the code that the report took
(https://github.com/WeiChengTseng/Pytorch-PCGrad), and so that both rows make steps of the same scale.
"""

from dataclasses import replace

from multitask.schedulers.config import SchedulerConfig
from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """Fine-tuning under two ways to make one gradient of three."""
    start = recipes.given(start=recipes.nli())
    surgery = replace(recipes.multitask, scheduler="pcgrad", scheduling=SchedulerConfig(reduction="mean"))
    return Table(
        "7",
        "Gradient surgery",
        "Fine-tuned from the pre-training on NLI and then the 3 given sets.",
        (
            Row("Gradient surgery", recipes.finetune(start, surgery), Published(0.625, 0.480, 0.800, 0.596)),
            Row("Multi-task average loss", recipes.finetune(start), Published(0.628, 0.476, 0.794, 0.614)),
        ),
        reference="Multi-task average loss",
    )

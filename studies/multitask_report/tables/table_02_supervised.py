"""Table 2 (report, section 5.4.2): supervised fine-tuning from different pre-trainings, and an ensemble.

The single-task row "comes from 3 different models", each scored on the task that it was trained on. The report does
not say which models are in the ensemble: here those of this table, and of each task the best on the dev set. The
course's test labels are not published, so the test row has the report's numbers only; prediction files for the test
sets are written beside the report.
"""

from dataclasses import replace

from studies.engine.recipes import Recipes
from studies.engine.record import MAIN_TASKS, Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """The report's main results."""
    none, nli, given = (recipes.finetune(start) for start in (recipes.start, recipes.nli(), recipes.given()))
    single = [recipes.finetune(recipes.given(), replace(recipes.multitask, tasks=(task,))) for task in MAIN_TASKS]
    return Table(
        "2",
        "Supervised methods",
        "The rows are named by their contrastive pre-training. The single-task row has a model for each task, all from "
        "the pre-training of 3 given. The ensemble takes for each task the model of this table that is best on its dev "
        "set. The test row cannot be computed here: the labels of the test sets are not published.",
        (
            Row("None (baseline)", none, Published(0.540, 0.490, 0.726, 0.404)),
            Row("NLI", nli, Published(0.661, 0.500, 0.746, 0.735)),
            Row("3 given", given, Published(0.664, 0.516, 0.815, 0.661)),
            Row("3 given (single task)", recipes.ensemble(*single), Published(None, 0.502, 0.836, 0.642)),
            Row("Ensemble (dev)", recipes.ensemble(none, nli, given, *single), Published(0.706, 0.521, 0.836, 0.761)),
            Row("Ensemble (test)", None, Published(0.701, 0.521, 0.830, 0.753)),
        ),
        reference="3 given",
    )

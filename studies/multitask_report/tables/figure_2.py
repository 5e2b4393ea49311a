"""Figure 2 (report, section 5.4.2): overall dev score of the supervised models after every fine-tuning epoch.

"It takes all major models only a few fine-tuning epochs": Table 2's three models of all tasks. The figure's values are
not printed in the report.
"""

from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """The fine-tunings of Table 2, as curves."""
    return Table(
        "figure2",
        "Overall dev score of the supervised models",
        "After every epoch of fine-tuning.",
        (
            Row("None (baseline)", recipes.finetune(recipes.start)),
            Row("NLI", recipes.finetune(recipes.nli())),
            Row("3 given", recipes.finetune(recipes.given())),
        ),
        kind="curves",
    )

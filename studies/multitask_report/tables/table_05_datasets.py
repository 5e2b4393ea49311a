"""Table 5 (report, section 6.3): the data of the contrastive pre-training.

Both "NLI" and "3 given" are bold in the report; the others are compared with "3 given", the better of the two. One
pre-training after another starts from the last's encoder; each has its own epochs and a projection of its own.
"""

from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """Two pre-trainings, alone and in both orders."""
    nli, given = recipes.nli(), recipes.given()
    return Table(
        "5",
        "Data of the contrastive pre-training",
        "One pre-training, or two one after the other, then fine-tuning.",
        (
            Row(
                "NLI before 3 given",
                recipes.finetune(recipes.given(start=nli)),
                Published(0.628, 0.476, 0.794, 0.614),
            ),
            Row(
                "3 given before NLI",
                recipes.finetune(recipes.nli(start=given)),
                Published(0.604, 0.431, 0.790, 0.592),
            ),
            Row("NLI", recipes.finetune(nli), Published(0.661, 0.500, 0.746, 0.735)),
            Row("3 given", recipes.finetune(given), Published(0.664, 0.516, 0.815, 0.661)),
        ),
        reference="3 given",
    )

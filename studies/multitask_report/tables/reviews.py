"""Beyond the report: the course's fourth task, long reviews, positive or negative."""

from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """One fine-tuning on reviews alone."""
    return Table(
        "reviews",
        "Long reviews",
        "Not in the report: binary sentiment of whole film reviews, trained alone.",
        (Row("Reviews", recipes.finetune(recipes.start, recipes.reviews)),),
        columns=("reviews",),
    )

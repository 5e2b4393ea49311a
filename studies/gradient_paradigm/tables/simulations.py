"""The gradient study's simulations and checks of conjectures (arXiv 2402.18281, section 3.1): no model is trained."""

from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """One artefact, the same for every seed."""
    return Table(
        "simulations",
        "Simulations of the gradient study",
        "",
        (Row("Simulations", recipes.simulations()),),
        columns=(),
        kind="simulations",
    )

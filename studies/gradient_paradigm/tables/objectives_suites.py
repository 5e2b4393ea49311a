"""The objectives of unsupervised pre-training on SentEval's tasks (arXiv 2402.18281, section 4: STS and transfer)."""

from studies.engine.recipes import Recipes
from studies.engine.suite_tables import suites_table
from studies.engine.tables import Table
from studies.gradient_paradigm.tables.objectives import models


def table(recipes: Recipes) -> Table:
    """The models of the table of objectives."""
    return suites_table(
        recipes,
        "objectives-suites",
        "Objectives of unsupervised pre-training: similarity and transfer",
        "The models are those of the table of objectives.",
        models(recipes),
    )

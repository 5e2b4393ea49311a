"""The objectives of unsupervised pre-training on SentEval's tasks (arXiv 2402.18281, section 4: STS and transfer)."""

from multitask.experiments.recipes import Recipes
from multitask.experiments.suites import suites_table
from multitask.experiments.tables import Table
from multitask.experiments.tables.objectives import models


def table(recipes: Recipes) -> Table:
    """The models of the table of objectives."""
    return suites_table(
        recipes,
        "objectives-suites",
        "Objectives of unsupervised pre-training: similarity and transfer",
        "The models are those of the table of objectives.",
        models(recipes),
    )

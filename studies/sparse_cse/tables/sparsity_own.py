"""The procedure of arXiv 2311.03881: train contrastively, score, prune, rewind to where training began, train again."""

from studies.engine.recipes import Recipes
from studies.engine.suite_tables import suites_table
from studies.engine.tables import Table
from studies.sparse_cse.tables.sparsity import WHOLE, curve


def table(recipes: Recipes) -> Table:
    """An encoder of one's own, whole and at every share."""
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    return suites_table(
        recipes,
        "sparsity-own",
        "Sparsity of an encoder of one's own",
        "An encoder that is trained contrastively here is pruned by the gradient of alignment and uniformity or at "
        "random; what is left is rewound to the weights that training began with, and trained as before. Each layer "
        "keeps a head.",
        {WHOLE: whole, **curve(recipes, whole, recipes.untuned)},
    )

"""Which score tells best what to remove? Controls that arXiv 2311.03881 lacks, at a low and at a moderate share."""

from dataclasses import replace

from multitask.experiments.recipes import Recipes
from multitask.experiments.suites import suites_table
from multitask.experiments.tables import Table
from multitask.experiments.tables.sparsity import WHOLE

SHARES = (0.1, 0.3)
UNIFORMITY_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def table(recipes: Recipes) -> Table:
    """The start weights without a share, by every score; kinds of units and ways to remove them by the paper's."""
    base = recipes.pruning
    configs = {
        **{f"λ = {weight:g}": replace(base, uniformity_weight=weight) for weight in UNIFORMITY_WEIGHTS},
        "loss of similarity": replace(base, score="task"),
        "magnitude": replace(base, score="magnitude"),
        "at random": replace(base, score="random"),
        "signed": replace(base, signed=True),
        "normalised in layers": replace(base, normalize=True),
        "each layer alike": replace(base, scope="layer"),
        "in three rounds": replace(base, rounds=3),
        "heads only": replace(base, what="heads"),
        "neurons only": replace(base, what="neurons"),
    }
    return suites_table(
        recipes,
        "sparsity-scores",
        "Scores that decide what is pruned",
        "Beyond the paper. A share of the start weights' heads and neurons is removed, and what is left is trained "
        "contrastively. λ is the weight of uniformity in the score.",
        {
            WHOLE: recipes.pretrain(recipes.start, recipes.recovery),
            **{
                f"{share:.0%}, {name}": recipes.pretrain(
                    recipes.prune(recipes.start, replace(config, share=share)), recipes.recovery
                )
                for share in SHARES
                for name, config in configs.items()
            },
        },
    )

"""Does an encoder without its least useful heads and neurons embed better? Score against sparsity (arXiv 2311.03881).

The start weights are pruned as they are, each share of them by the paper's score and, as a control that the paper
lacks, at random; what is left is trained contrastively, as its whole counterpart is. Every seed has a random draw of
its own.
"""

from collections.abc import Sequence
from dataclasses import replace

from multitask.runs.artefact import Weights
from studies.engine.recipes import Node, Recipes
from studies.engine.suite_tables import suites_table
from studies.engine.tables import Table

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 0.99)
SCORED, RANDOM, WHOLE = "by score", "at random", "Nothing removed"


def label(criterion: str, share: float) -> str:
    """Of a pruning's row."""
    return f"{share:.0%} {criterion}"


def curve(
    recipes: Recipes, model: Node | Weights, rewind_to: Node | Weights | None = None, shares: Sequence[float] = SHARES
) -> dict[str, Node]:
    """A model's prunings of every share by both criteria, each trained; rewound, if so, before that."""
    criteria = {SCORED: recipes.pruning, RANDOM: replace(recipes.pruning, score="random")}
    return {
        label(criterion, share): recipes.pretrain(
            recipes.prune(model, replace(config, share=share), rewind_to), recipes.recovery
        )
        for criterion, config in criteria.items()
        for share in shares
    }


def table(recipes: Recipes) -> Table:
    """The start weights, whole and at every share."""
    return suites_table(
        recipes,
        "sparsity",
        "Sparsity of the start weights",
        "The start weights are pruned by the gradient of alignment and uniformity or at random, and what is left is "
        "trained contrastively. Shares are those of the neurons and of the heads, of which each layer keeps one.",
        {WHOLE: recipes.pretrain(recipes.start, recipes.recovery), **curve(recipes, recipes.start)},
    )

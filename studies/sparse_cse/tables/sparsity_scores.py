"""Which score tells best what to remove? Controls that arXiv 2311.03881 lacks, at a low and at a moderate share."""

from dataclasses import replace
from typing import Any

from studies.engine.recipes import Node, Recipes
from studies.engine.suite_tables import suites_table
from studies.engine.tables import Table
from studies.sparse_cse.tables.sparsity import RANDOM, WHOLE

SHARES = (0.1, 0.3)
UNIFORMITY_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
CHANGES: dict[str, dict[str, Any]] = {
    **{f"λ = {weight:g}": {"uniformity_weight": weight} for weight in UNIFORMITY_WEIGHTS},
    "loss of similarity": {"score": "task"},
    "loss of sentiment": {"score": "task", "task": "sentiment"},
    "magnitude": {"score": "magnitude"},
    RANDOM: {"score": "random"},
    "signed": {"signed": True},
    "normalised in layers": {"normalize_scores": True},
    "each layer alike": {"scope": "layer"},
    "in three rounds": {"rounds": 3},
    "heads only": {"what": "heads"},
    "neurons only": {"what": "neurons"},
}
NAMES = tuple(CHANGES)


def label(share: float, name: str) -> str:
    """Of a row."""
    return f"{share:.0%}, {name}"


def table(recipes: Recipes) -> Table:
    """The start weights without a share, by every score; kinds of units and ways to remove them by the paper's."""

    def left(share: float, change: dict[str, Any]) -> Node:
        config = replace(recipes.pruning, share=share, **change)
        if "task" not in change:
            return recipes.pretrain(recipes.prune(recipes.start, config), recipes.recovery)
        tuned = recipes.finetune(recipes.start)  # only there is a head whose loss can be asked
        return recipes.pretrain(recipes.prune(tuned, config, recipes.start), recipes.recovery)

    return suites_table(
        recipes,
        "sparsity-scores",
        "Scores that decide what is pruned",
        "Beyond the paper. A share of the start weights' heads and neurons is removed, and what is left is trained "
        "contrastively. λ is the weight of uniformity in the score. The loss of similarity is that of "
        "the start weights' cosine, that of sentiment the three tasks' model's, whose units are then rewound to them.",
        {
            WHOLE: recipes.pretrain(recipes.start, recipes.recovery),
            **{label(share, name): left(share, change) for share in SHARES for name, change in CHANGES.items()},
        },
    )

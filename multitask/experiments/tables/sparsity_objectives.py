"""Does the score know what is harmful under other objectives than the contrastive one? A control beyond 2311.03881."""

from collections.abc import Iterator
from dataclasses import replace

from multitask.config import ObjectiveConfig
from multitask.experiments.recipes import Node, Recipes
from multitask.experiments.suites import suites_table
from multitask.experiments.tables import Table
from multitask.experiments.tables.objectives import OBJECTIVES
from multitask.experiments.tables.sparsity import RANDOM, SCORED, WHOLE, label

SHARES = (0.05, 0.2)
TRAINED_UNDER = {
    "InfoNCE": OBJECTIVES["InfoNCE"],
    "alignment and uniformity": ObjectiveConfig("align_uniform"),  # what the score is the gradient of
    "VICReg, modified": OBJECTIVES["VICReg, modified"],
}


def table(recipes: Recipes) -> Table:
    """Encoders of one's own, each trained, pruned, rewound and trained again under its objective."""

    def rows(name: str, objective: ObjectiveConfig) -> Iterator[tuple[str, Node]]:
        recovery = replace(recipes.recovery, objective=objective)
        whole = recipes.pretrain(recipes.untuned, recovery)
        yield f"{name}, {WHOLE.lower()}", whole
        for share in SHARES:
            for criterion, score in ((SCORED, recipes.pruning.score), (RANDOM, "random")):
                config = replace(recipes.pruning, share=share, score=score)
                pruned = recipes.prune(whole, config, recipes.untuned)
                yield f"{name}, {label(criterion, share)}", recipes.pretrain(pruned, recovery)

    return suites_table(
        recipes,
        "sparsity-objectives",
        "Sparsity of encoders trained under other objectives",
        "Beyond the paper. An encoder that is trained here under an objective is pruned by the gradient of alignment "
        "and uniformity or at random; what is left is rewound and trained under that objective again.",
        {row: model for name, objective in TRAINED_UNDER.items() for row, model in rows(name, objective)},
    )

"""Unsupervised pre-training under different objectives (arXiv 2402.18281, section 4), scored without any trained head.

Do losses without negatives fail on semantic similarity, and do the three components repair them? The settings of each
objective are those of the paper's scripts; batch, projection and length too (128, linear, 32 tokens).
"""

from dataclasses import replace

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, Table

OBJECTIVES = {
    "InfoNCE": ObjectiveConfig("infonce"),
    "MET": ObjectiveConfig("met"),
    "Gradient form": ObjectiveConfig("gradient"),
    "MHE": ObjectiveConfig.of("mhe", uniformity_weight=10.0),
    "MHE, modified": ObjectiveConfig.of("mhe", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.75),
    "MHS": ObjectiveConfig.of("mhs", uniformity_weight=1.0),
    "MHS, modified": ObjectiveConfig.of("mhs", uniformity_weight=1.0, dissipation=0.30, ratio=1.75),
    "Barlow Twins": ObjectiveConfig.of("barlow_twins", uniformity_weight=30.0),
    "Barlow Twins, modified": ObjectiveConfig.of(
        "barlow_twins", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.5
    ),
    "VICReg": ObjectiveConfig.of("vicreg", uniformity_weight=30.0),
    "VICReg, modified": ObjectiveConfig.of("vicreg", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.5),
}


SLOWER = {"MHS": 0.5}
"""Shares of the learning rate, where it is not the others'."""


def models(recipes: Recipes) -> dict[str, Node]:
    """One encoder that is not tuned contrastively, then each objective on the same sentences."""
    trained = {}
    for label, objective in OBJECTIVES.items():
        optimizer = recipes.views.optimizer
        optimizer = replace(optimizer, learning_rate=SLOWER.get(label, 1.0) * optimizer.learning_rate)
        config = replace(recipes.views, objective=objective, optimizer=optimizer)
        trained[label] = recipes.pretrain(recipes.untuned, config)
    return trained


def table(recipes: Recipes) -> Table:
    """Scored on the dev set of similarity."""
    return Table(
        "objectives",
        "Objectives of unsupervised pre-training",
        "Similarity is the cosine of two embeddings. Each row is trained on dropout views of the same sentences, from "
        "the same encoder; where the start weights are contrastively tuned, masked language modelling on the "
        "sentences comes first. Plain MHS has half of the others' learning rate, as in the paper's scripts.",
        tuple(Row(label, model) for label, model in models(recipes).items()),
        reference="InfoNCE",
        columns=("similarity",),
        on_request=True,
    )

"""SparseCSE's tables: does an encoder without its least useful heads and neurons embed better (arXiv 2311.03881)?

Encoders are pruned by the paper's score and, as a control that the paper lacks, at random; what is left is trained
contrastively, as its whole counterpart is. Every seed has a random draw of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minbert.config import ModelType
from multitask.objectives.config import ObjectiveConfig
from multitask.runs.artefact import Weights
from studies.engine.experiments import Experiment, Line, suites_experiment
from studies.engine.recipes import Node, Recipes
from studies.engine.table import Row, key_of
from studies.gradient_paradigm.tables_of_losses import OBJECTIVES
from studies.gradient_paradigm.tables_of_sweeps import SHAPES, from_scratch

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 0.99)
CRITERIA = {"score": "by score", "random": "at random"}
"""What decides which heads and neurons are removed."""
WHOLE = "whole"


def pruned(share: float, criterion: str) -> str:
    """The key of the row that lacks a share of its heads and neurons."""
    return key_of({"share": share, "criterion": criterion})


def _curve(
    recipes: Recipes, model: Node | Weights, rewind_to: Node | Weights | None = None, shares: Sequence[float] = SHARES
) -> Iterator[Line]:
    """A model's prunings of every share by both criteria, each trained; rewound, if so, before that."""
    configs = {"score": recipes.pruning, "random": replace(recipes.pruning, score="random")}
    for criterion, config in configs.items():
        for share in shares:
            row = Row.at({"share": share, "criterion": criterion}, f"{share:.0%} {CRITERIA[criterion]}")
            left = recipes.prune(model, replace(config, share=share), rewind_to)
            yield row, recipes.pretrain(left, recipes.recovery)


def sparsity(recipes: Recipes) -> Experiment:
    """The start weights as they are, whole and at every share."""
    whole = recipes.pretrain(recipes.start, recipes.recovery)
    return suites_experiment(
        recipes,
        "sparsity",
        "Sparsity of the start weights",
        "The start weights are pruned by the gradient of alignment and uniformity or at random, and what is left is "
        "trained contrastively. Shares are those of the neurons and of the heads, of which each layer keeps one.",
        [(Row(WHOLE, "Nothing removed"), whole), *_curve(recipes, recipes.start)],
    )


def sparsity_own(recipes: Recipes) -> Experiment:
    """The paper's procedure: train contrastively, score, prune, rewind to where training began, train again."""
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    return suites_experiment(
        recipes,
        "sparsity-own",
        "Sparsity of an encoder of one's own",
        "An encoder that is trained contrastively here is pruned by the gradient of alignment and uniformity or at "
        "random; what is left is rewound to the weights that training began with, and trained as before. Each layer "
        "keeps a head.",
        [(Row(WHOLE, "Nothing removed"), whole), *_curve(recipes, whole, recipes.untuned)],
    )


@dataclass(frozen=True)
class Encoder:
    """How an encoder is trained: its name, its objective, its shape where that is not the start weights'."""

    name: str
    objective: ObjectiveConfig
    shape: tuple[ModelType, str] | None = None


ENCODERS = {
    "infonce": Encoder("InfoNCE", OBJECTIVES["infonce"]),
    "align_uniform": Encoder("alignment and uniformity", ObjectiveConfig("align_uniform")),  # the score's own loss
    "vicreg-modified": Encoder("VICReg, modified", OBJECTIVES["vicreg-modified"]),
    "infonce-4x256": Encoder("InfoNCE, BERT, 4 layers of 256", OBJECTIVES["infonce"], ("bert", "4x256")),
}
ENCODER_SHARES = (0.05, 0.2)


def sparsity_encoders(recipes: Recipes) -> Experiment:
    """Does the score know what is harmful in encoders of other objectives and shapes? Controls beyond the paper.

    Each encoder is trained, pruned, rewound and trained again under its objective.
    """
    lines: list[Line] = []
    for key, encoder in ENCODERS.items():
        start = recipes.untuned if encoder.shape is None else from_scratch(recipes, SHAPES[encoder.shape])
        trained_so = replace(recipes, recovery=replace(recipes.recovery, objective=encoder.objective))
        whole = recipes.pretrain(start, trained_so.recovery)
        lines.append((Row.at({"encoder": key}, f"{encoder.name}: nothing removed"), whole))
        for row, left in _curve(trained_so, whole, start, ENCODER_SHARES):
            lines.append((Row.at({"encoder": key, **row.point}, f"{encoder.name}: {row.label}"), left))
    return suites_experiment(
        recipes,
        "sparsity-encoders",
        "Sparsity of encoders of other objectives and shapes",
        "Beyond the paper. An encoder that is trained here is pruned by the gradient of alignment and uniformity or at "
        "random; what is left is rewound and trained again as before.",
        lines,
    )


@dataclass(frozen=True)
class Change:
    """What differs from the paper's pruning: its name and the changed settings."""

    name: str
    settings: dict[str, Any]


SCORES = {
    **{
        f"lambda-{weight:g}": Change(f"λ = {weight:g}", {"uniformity_weight": weight})
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
    },
    "similarity": Change("loss of similarity", {"score": "task"}),
    "sentiment": Change("loss of sentiment", {"score": "task", "task": "sentiment"}),
    "magnitude": Change("magnitude", {"score": "magnitude"}),
    "random": Change("at random", {"score": "random"}),
    "signed": Change("signed", {"signed": True}),
    "normalised": Change("normalised in layers", {"normalize_scores": True}),
    "layer": Change("each layer alike", {"scope": "layer"}),
    "rounds": Change("in three rounds", {"rounds": 3}),
    "heads": Change("heads only", {"what": "heads"}),
    "neurons": Change("neurons only", {"what": "neurons"}),
}
SCORE_SHARES = (0.1, 0.3)


def sparsity_scores(recipes: Recipes) -> Experiment:
    """Which score tells best what to remove? Controls that the paper lacks, at a low and at a moderate share.

    The start weights without a share, by every score; kinds of units and ways to remove them by the paper's score.
    """

    def left(share: float, settings: dict[str, Any]) -> Node:
        config = replace(recipes.pruning, share=share, **settings)
        if "task" not in settings:
            return recipes.pretrain(recipes.prune(recipes.start, config), recipes.recovery)
        tuned = recipes.finetune(recipes.start)  # only there is a head whose loss can be asked
        return recipes.pretrain(recipes.prune(tuned, config, recipes.start), recipes.recovery)

    whole = recipes.pretrain(recipes.start, recipes.recovery)
    return suites_experiment(
        recipes,
        "sparsity-scores",
        "Scores that decide what is pruned",
        "Beyond the paper. A share of the start weights' heads and neurons is removed, and what is left is trained "
        "contrastively. λ is the weight of uniformity in the score. The loss of similarity is that of "
        "the start weights' cosine, that of sentiment the three tasks' model's, whose units are then rewound to them.",
        [
            (Row(WHOLE, "Nothing removed"), whole),
            *(
                (
                    Row.at({"share": share, "criterion": key}, f"{share:.0%}, {change.name}"),
                    left(share, change.settings),
                )
                for share in SCORE_SHARES
                for key, change in SCORES.items()
            ),
        ],
    )


TABLES = (sparsity, sparsity_own, sparsity_encoders, sparsity_scores)

"""SparseCSE's tables: does an encoder without its least useful heads and neurons embed better (arXiv 2311.03881)?

Encoders are pruned by the paper's score and, as a control that the paper lacks, at random. A pruned encoder is trained
contrastively in the same way as the whole encoder. Every seed has its own random draw.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from minbert.config import ModelType
from multitask.base.runs import Weights
from multitask.experiments.table_definitions import Experiment, GridLine, Node, Row, row_key
from multitask.training.settings import ObjectiveConfig
from studies.engine.recipes import Recipes, read_tables, suites_experiment
from studies.gradient_paradigm.condition_tables import SHAPES, encoder_from_scratch
from studies.gradient_paradigm.tables import LOSSES

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 0.99)
CRITERIA = {"score": "by score", "random": "at random"}  # the criteria that decide which heads and neurons are removed
WHOLE = "whole"
NOTHING_REMOVED = Row(WHOLE, "Nothing removed")
MEASURED = (
    "Alignment and uniformity are those of the embeddings of the STS Benchmark's test pairs; lower is better. The row "
    "with nothing removed is the whole encoder after the same training."
)
DESCRIBED = read_tables(__file__)  # titles and notes of the tables


def pruned(share: float, criterion: str) -> str:
    """The key of the row without a share of heads and neurons."""
    return row_key({"share": share, "criterion": criterion})


def _curve(
    recipes: Recipes, model: Node | Weights, rewind_to: Node | Weights | None = None, shares: Sequence[float] = SHARES
) -> Iterator[GridLine]:
    """A model pruned by every share and both criteria, rewound if `rewind_to` is given, then trained."""
    configs = {"score": recipes.pruning, "random": replace(recipes.pruning, score="random")}
    for criterion, config in configs.items():
        for share in shares:
            row = Row.at({"share": share, "criterion": criterion}, f"{share:.0%} {CRITERIA[criterion]}")
            left = recipes.prune(model, replace(config, share=share), rewind_to)
            yield row, recipes.pretrain(left, recipes.recovery)


def _table(recipes: Recipes, key: str, lines: Iterable[GridLine]) -> Experiment:
    """A table on SentEval's tasks that also measures the embeddings."""
    measured = replace(recipes, suites=replace(recipes.suites, geometry=True))
    described = DESCRIBED[key]
    return suites_experiment(measured, **{**described, "note": f"{described['note'].strip()} {MEASURED}"}, lines=lines)


def sparsity(recipes: Recipes) -> Experiment:
    """The start weights, whole and at every share."""
    whole = recipes.pretrain(recipes.start, recipes.recovery)
    lines = [(NOTHING_REMOVED, whole), *_curve(recipes, recipes.start)]
    return _table(recipes, "sparsity", lines)


def sparsity_own(recipes: Recipes) -> Experiment:
    """The paper's procedure: train contrastively, score, prune, rewind to where training began, train again."""
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    lines = [(NOTHING_REMOVED, whole), *_curve(recipes, whole, recipes.untuned)]
    return _table(recipes, "sparsity-own", lines)


@dataclass(frozen=True)
class Encoder:
    """An encoder's name, objective, shape if it is not the start weights' shape, and the momentum of its positives'."""

    name: str
    objective: ObjectiveConfig
    shape: tuple[ModelType, str] | None = None
    momentum: float | None = None


ENCODERS = {
    "infonce": Encoder("InfoNCE", LOSSES["infonce"]),
    "align_uniform": Encoder("alignment and uniformity", ObjectiveConfig("align_uniform")),  # the score's own loss
    "vicreg-modified": Encoder("VICReg, modified", LOSSES["vicreg-modified"]),
    "infonce-4x256": Encoder("InfoNCE, BERT, 4 layers of 256", LOSSES["infonce"], ("bert", "4x256")),
    "infonce-roberta": Encoder("InfoNCE, RoBERTa, 4 layers of 256", LOSSES["infonce"], ("roberta", "4x256")),
    "moco": Encoder("MoCo v2, momentum 0.995", LOSSES["infonce"], momentum=0.995),
    "byol": Encoder("BYOL, momentum 0.995", ObjectiveConfig("byol"), momentum=0.995),
}
ENCODER_SHARES = (0.05, 0.2)


def sparsity_encoders(recipes: Recipes) -> Experiment:
    """Does the score find harmful units in encoders of other objectives and shapes? Controls beyond the paper.

    Each encoder is trained, pruned, rewound and trained again under its objective.
    """
    lines: list[GridLine] = []
    for key, encoder in ENCODERS.items():
        start = recipes.untuned if encoder.shape is None else encoder_from_scratch(recipes, SHAPES[encoder.shape])
        recovery = replace(recipes.recovery, objective=encoder.objective, momentum=encoder.momentum)
        trained_so = replace(recipes, recovery=recovery)
        whole = recipes.pretrain(start, trained_so.recovery)
        lines.append((Row.at({"encoder": key}, f"{encoder.name}: nothing removed"), whole))
        for row, left in _curve(trained_so, whole, start, ENCODER_SHARES):
            lines.append((Row.at({"encoder": key, **row.point}, f"{encoder.name}: {row.label}"), left))
    return _table(recipes, "sparsity-encoders", lines)


PRUNING_CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    changes.pop("key"): (changes.pop("label"), changes) for changes in DESCRIBED["sparsity-scores"].pop("scores")
}
"""Names of the changes of the paper's pruning, and the changed settings, by key."""
SCORE_SHARES = (0.1, 0.3)


def sparsity_scores(recipes: Recipes) -> Experiment:
    """Which score selects best what to remove? Controls that the paper lacks, at a low and at a moderate share.

    The start weights are pruned by every score. Kinds of units and ways of removal vary with the paper's score.
    """

    def left(share: float, settings: dict[str, Any]) -> Node:
        config = replace(recipes.pruning, share=share, **settings)
        if "task" not in settings:
            return recipes.pretrain(recipes.prune(recipes.start, config), recipes.recovery)
        tuned = recipes.finetune(recipes.start)  # a loss of sentiment needs a trained head
        return recipes.pretrain(recipes.prune(tuned, config, recipes.start), recipes.recovery)

    whole = recipes.pretrain(recipes.start, recipes.recovery)
    lines: list[GridLine] = [(NOTHING_REMOVED, whole)]
    for share in SCORE_SHARES:
        for key, (name, settings) in PRUNING_CHANGES.items():
            lines.append((Row.at({"share": share, "criterion": key}, f"{share:.0%}, {name}"), left(share, settings)))
    return _table(recipes, "sparsity-scores", lines)


REWINDING_SHARES = (0.1, 0.2, 0.5)


def sparsity_rewinding(recipes: Recipes) -> Experiment:
    """Does an encoder need rewinding? The same encoder is pruned and rewound, or pruned and not rewound.

    Without rewinding, what is left was trained before pruning, and is scored as it is or trained again. The whole
    encoder is trained again, too, so that no row is better for its longer training alone.
    """
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    lines: list[GridLine] = [
        (NOTHING_REMOVED, whole),
        (Row("whole-again", "Nothing removed, trained again"), recipes.pretrain(whole, recipes.recovery)),
    ]
    for share in REWINDING_SHARES:
        config = replace(recipes.pruning, share=share)
        kept = recipes.prune(whole, config)
        rewound = recipes.pretrain(recipes.prune(whole, config, recipes.untuned), recipes.recovery)
        rows = {
            "rewound": ("rewound and trained again", rewound),
            "trained": ("not rewound, trained again", recipes.pretrain(kept, recipes.recovery)),
            "kept": ("not rewound, as it is", kept),
        }
        for key, (name, model) in rows.items():
            lines.append((Row.at({"share": share, "after": key}, f"{share:.0%}: {name}"), model))
    return _table(recipes, "sparsity-rewinding", lines)


MOMENTS = (0, 1, 2)  # epochs of three


def sparsity_moments(recipes: Recipes) -> Experiment:
    """Does it matter to which moment of its training an encoder is rewound?"""
    states: list[Node | Weights] = [recipes.untuned]
    states += [recipes.pretrain(recipes.untuned, replace(recipes.recovery, epochs=n)) for n in (1, 2, 3)]
    *_, whole = states
    assert isinstance(whole, Node)
    lines: list[GridLine] = [(NOTHING_REMOVED, whole)]
    for share, moment in product(REWINDING_SHARES, MOMENTS):
        left = recipes.prune(whole, replace(recipes.pruning, share=share), states[moment])
        row = Row.at({"share": share, "epochs": moment}, f"{share:.0%}, rewound to epoch {moment}")
        lines.append((row, recipes.pretrain(left, whole.config)))
    return _table(recipes, "sparsity-moments", lines)


LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
LAMBDA_SHARES = (0.05, 0.1, 0.2, 0.5)


def sparsity_lambda(recipes: Recipes) -> Experiment:
    """Does the best share depend on λ, in an encoder that is trained here?"""
    whole = recipes.pretrain(recipes.untuned, recipes.recovery)
    lines: list[GridLine] = [(NOTHING_REMOVED, whole)]
    for share, weight in product(LAMBDA_SHARES, LAMBDAS):
        config = replace(recipes.pruning, share=share, uniformity_weight=weight)
        left = recipes.prune(whole, config, recipes.untuned)
        row = Row.at({"share": share, "lambda": weight}, f"{share:.0%}, λ = {weight:g}")
        lines.append((row, recipes.pretrain(left, recipes.recovery)))
    return _table(recipes, "sparsity-lambda", lines)


TABLES = (
    sparsity,
    sparsity_own,
    sparsity_rewinding,
    sparsity_moments,
    sparsity_lambda,
    sparsity_encoders,
    sparsity_scores,
)

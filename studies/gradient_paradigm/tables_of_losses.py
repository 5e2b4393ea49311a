"""Tables that compare losses: objectives, decoupled losses, components switched on and off, components mixed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from multitask.objectives.config import ObjectiveConfig
from studies.engine.experiments import Experiment, Line, experiment, suites_experiment
from studies.engine.recipes import Recipes
from studies.engine.table import Row

WITHOUT_NEGATIVES = ("mhe", "mhs", "barlow_twins", "vicreg")
MODIFIED = {name: f"{name}-modified" for name in WITHOUT_NEGATIVES}
"""Keys of the losses without negatives when they have the three components."""
LABELS = {
    "infonce": "InfoNCE",
    "met": "MET",
    "gradient": "Gradient form",
    "mhe": "MHE",
    "mhs": "MHS",
    "barlow_twins": "Barlow Twins",
    "vicreg": "VICReg",
}
LABELS |= {MODIFIED[name]: f"{LABELS[name]}, modified" for name in WITHOUT_NEGATIVES}
OBJECTIVES = {
    "infonce": ObjectiveConfig("infonce"),
    "met": ObjectiveConfig("met"),
    "gradient": ObjectiveConfig("gradient"),
    "mhe": ObjectiveConfig.of("mhe", uniformity_weight=10.0),
    "mhe-modified": ObjectiveConfig.of("mhe", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.75),
    "mhs": ObjectiveConfig.of("mhs", uniformity_weight=1.0),
    "mhs-modified": ObjectiveConfig.of("mhs", uniformity_weight=1.0, dissipation=0.30, ratio=1.75),
    "barlow_twins": ObjectiveConfig.of("barlow_twins", uniformity_weight=30.0),
    "barlow_twins-modified": ObjectiveConfig.of(
        "barlow_twins", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.5
    ),
    "vicreg": ObjectiveConfig.of("vicreg", uniformity_weight=30.0),
    "vicreg-modified": ObjectiveConfig.of("vicreg", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.5),
}
"""The settings of the scripts of arXiv 2402.18281."""
SLOWER = {"mhs": 0.5}
"""Shares of the learning rate, where it is not the others'."""


def objective_lines(recipes: Recipes) -> Iterator[Line]:
    """One encoder that is not tuned contrastively, then each objective on the same sentences."""
    for key, objective in OBJECTIVES.items():
        optimizer = recipes.views.optimizer
        optimizer = replace(optimizer, learning_rate=SLOWER.get(key, 1.0) * optimizer.learning_rate)
        config = replace(recipes.views, objective=objective, optimizer=optimizer)
        yield Row(key, LABELS[key], {"objective": key}), recipes.pretrain(recipes.untuned, config)


def objectives(recipes: Recipes) -> Experiment:
    """Unsupervised pre-training under different objectives (arXiv 2402.18281, section 4), without any trained head.

    Do losses without negatives fail on semantic similarity, and do the three components repair them? Batch, projection
    and length are those of the paper's scripts too (128, linear, 32 tokens).
    """
    return experiment(
        "objectives",
        "Objectives of unsupervised pre-training",
        "Similarity is the cosine of two embeddings. Each row is trained on dropout views of the same sentences, from "
        "the same encoder; where the start weights are contrastively tuned, masked language modelling on the "
        "sentences comes first. Plain MHS has half of the others' learning rate, as in the paper's scripts.",
        objective_lines(recipes),
        reference="infonce",
        columns=("similarity",),
        on_request=True,
    )


def objectives_suites(recipes: Recipes) -> Experiment:
    """The models of the table of objectives on SentEval's tasks (arXiv 2402.18281, section 4: STS and transfer)."""
    return suites_experiment(
        recipes,
        "objectives-suites",
        "Objectives of unsupervised pre-training: similarity and transfer",
        "The models are those of the table of objectives.",
        objective_lines(recipes),
    )


DECOUPLING = {
    "infonce": "InfoNCE",
    "align_uniform": "Alignment and uniformity",
    "dcl": "Decoupled contrastive loss",
    "dcl_positive": "Decoupled, cut at zero",
    "met": "MET",
    "mat": "MAT",
    "mpt": "MPT",
}
"""Labels of the losses in the table of decoupled losses."""
EPOCHS = 3  # over the same sentences


def decoupled(recipes: Recipes) -> Experiment:
    """Do decoupled losses overfit where contrastive ones do not? Long training on few sentences.

    Source: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence
    Representations", ICLR 2023. `align_uniform` and `dcl` have no gradient dissipation; `infonce` has; `met`, `mat` and
    `mpt` imitate it by a margin, `dcl_positive` by a loss that ends at zero.
    """
    views = replace(recipes.views, epochs=EPOCHS)
    return experiment(
        "decoupled",
        "Contrastive and decoupled losses over several epochs",
        f"Similarity is the cosine of two embeddings; {EPOCHS} epochs over the same sentences. Scores are those of the "
        "best state of each training; the curves show how far it falls afterwards.",
        (
            (
                Row(name, label, {"objective": name}),
                recipes.pretrain(recipes.untuned, replace(views, objective=ObjectiveConfig(name))),
            )
            for name, label in DECOUPLING.items()
        ),
        reference="infonce",
        columns=("similarity",),
        on_request=True,
    )


@dataclass(frozen=True)
class Settings:
    """The paper's settings of the components of a loss without negatives."""

    uniformity_weight: float  # without the weight component
    ratio: float
    weight: float | None = 0.05


SETTINGS = {
    "mhe": Settings(10.0, 1.75),
    "mhs": Settings(1.0, 1.75, weight=None),  # its weight is on the hardest negative alone already
    "barlow_twins": Settings(30.0, 1.5),
    "vicreg": Settings(30.0, 1.5),
}
DISSIPATION = 0.30
COMPONENTS = ("dissipation", "weight", "ratio")


def components(recipes: Recipes) -> Experiment:
    """Do the three components act by themselves or together? All their subsets on the four losses without negatives.

    Source: arXiv 2402.18281, section 4 adds all three at once; which of them matter, and whether they interact, it
    leaves open. The weight of the spreading part belongs to the weight component: the paper's scripts use a large one
    where all pairs count alike and 1 where the closest dominate, so both change together here.
    """
    return experiment(
        "components",
        "Components of losses without negatives, switched on and off",
        "Beyond the papers. Similarity is the cosine of two embeddings. Each row is trained on dropout views of the "
        "same sentences from the same encoder. With the weight the spreading part counts once, without it as often as "
        "the paper's plain loss has it (MHE 10, others 30 times): the weight's effect is that of both. MHS has its "
        "weight on the hardest negative already. All rows have the same learning rate, plain MHS too.",
        (
            (
                Row.at({"loss": loss, "components": on}, f"{LABELS[loss]}, {' + '.join(on) or 'plain'}"),
                recipes.self_supervised(objective),
            )
            for loss, settings in SETTINGS.items()
            for on, objective in _subsets(loss, settings)
        ),
        columns=("similarity",),
        on_request=True,
    )


def _subsets(loss: str, settings: Settings) -> Iterator[tuple[tuple[str, ...], ObjectiveConfig]]:
    """Every subset of the components that the loss can have, with the objective that has them."""
    weights = (None,) if settings.weight is None else (None, settings.weight)
    for values in product((None, DISSIPATION), weights, (None, settings.ratio)):
        on = {name: value for name, value in zip(COMPONENTS, values, strict=True) if value is not None}
        uniformity_weight = 1.0 if "weight" in on else settings.uniformity_weight
        yield tuple(on), ObjectiveConfig.of(loss, uniformity_weight=uniformity_weight, **on)


MIXED = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
DISSIPATIONS = ("infonce", "mpt", "met")  # soft, and two gates; that of arccon is close to that of infonce
WEIGHTS = ("infonce", "met")  # a softmax, or all on the hardest negative: there are no others among the losses
RATIOS = ("infonce", "arccon", "met")  # 1, and two that depend on angles


def mixed(recipes: Recipes) -> Experiment:
    """Do components of different losses go together? Dissipation of one, weight of another, ratio of a third."""

    def line(dissipation: str, weight: str, ratio: str) -> Line:
        objective = ObjectiveConfig.of("mixed", dissipation_of=dissipation, weight_of=weight, ratio_of=ratio)
        label = ", ".join(MIXED[loss] for loss in (dissipation, weight, ratio))
        row = Row.at({"dissipation": dissipation, "weight": weight, "ratio": ratio}, label)
        return row, recipes.self_supervised(objective)

    lines = [line(*losses) for losses in product(DISSIPATIONS, WEIGHTS, RATIOS)]
    return experiment(
        "mixed",
        "Components of different losses, mixed",
        "Beyond the papers. Similarity is the cosine of two embeddings. A row names the losses whose dissipation, "
        "weight and ratio make up the gradient; each row is trained on dropout views of the same sentences from the "
        "same encoder. The losses' own constant factors, such as InfoNCE's 1/τ, are left out, so that rows are alike; "
        "as AdamW's ε and clipping are not scaled with them, a row of one loss alone is close to that loss, not equal.",
        lines,
        reference=lines[0][0].key,
        columns=("similarity",),
        on_request=True,
    )


TABLES = (objectives, objectives_suites, decoupled, components, mixed)

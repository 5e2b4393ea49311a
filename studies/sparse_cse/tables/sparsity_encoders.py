"""Does the score know what is harmful in encoders of other objectives and shapes? Controls beyond arXiv 2311.03881."""

from dataclasses import dataclass, replace

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Node, Recipes
from studies.engine.suite_tables import suites_table
from studies.engine.tables import Table
from studies.gradient_paradigm.tables.objectives import OBJECTIVES
from studies.gradient_paradigm.tables.shapes import SHAPES, from_scratch
from studies.sparse_cse.tables.sparsity import WHOLE, curve

SHARES = (0.05, 0.2)


@dataclass(frozen=True)
class Encoder:
    """How an encoder is trained: under which objective, of which shape where it is not the start weights'."""

    objective: ObjectiveConfig
    shape: str | None = None


ENCODERS = {
    "InfoNCE": Encoder(OBJECTIVES["InfoNCE"]),
    "alignment and uniformity": Encoder(ObjectiveConfig("align_uniform")),  # what the score is the gradient of
    "VICReg, modified": Encoder(OBJECTIVES["VICReg, modified"]),
    "InfoNCE, BERT, 4 layers of 256": Encoder(OBJECTIVES["InfoNCE"], "BERT, 4 layers of 256"),
}


def row(name: str, part: str) -> str:
    """The label of an encoder that is whole, or of what is left of it."""
    return f"{name}: {part.lower()}"


def table(recipes: Recipes) -> Table:
    """Encoders of one's own, each trained, pruned, rewound and trained again under its objective."""
    models: dict[str, Node] = {}
    for name, encoder in ENCODERS.items():
        start = recipes.untuned if encoder.shape is None else from_scratch(recipes, SHAPES[encoder.shape])
        trained_so = replace(recipes, recovery=replace(recipes.recovery, objective=encoder.objective))
        whole = recipes.pretrain(start, trained_so.recovery)
        models[row(name, WHOLE)] = whole
        left = curve(trained_so, whole, start, SHARES)
        models |= {row(name, part): model for part, model in left.items()}
    return suites_table(
        recipes,
        "sparsity-encoders",
        "Sparsity of encoders of other objectives and shapes",
        "Beyond the paper. An encoder that is trained here is pruned by the gradient of alignment and uniformity or at "
        "random; what is left is rewound and trained again as before.",
        models,
    )

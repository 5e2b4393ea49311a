"""Do the components act alike in encoders of other sizes, BERT's and RoBERTa's?

Each is trained from scratch with a vocabulary of its own, then under each objective.
"""

from dataclasses import replace

from minbert.config import ModelType
from multitask.stages.mlm import MlmConfig, ShapeConfig
from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, Table
from studies.gradient_paradigm.tables.objectives import OBJECTIVES

SIZES = {
    "2 layers of 128": ShapeConfig(128, 2, 2, 512),
    "4 layers of 256": ShapeConfig(256, 4, 4, 1024),
    "6 layers of 384": ShapeConfig(384, 6, 6, 1536),
}
ARCHITECTURES: dict[str, ModelType] = {"BERT": "bert", "RoBERTa": "roberta"}
SHAPES = {
    f"{name}, {size}": replace(shape, model_type=family)
    for name, family in ARCHITECTURES.items()
    for size, shape in SIZES.items()
}
LABELS = ("InfoNCE", "VICReg", "VICReg, modified")


def from_scratch(recipes: Recipes, shape: ShapeConfig) -> Node:
    """Masked language modelling from random weights."""
    return recipes.mlm(recipes.start, replace(recipes.masked or MlmConfig(), from_scratch=True, shape=shape))


def table(recipes: Recipes) -> Table:
    """Encoders from random weights, then dropout views of the same sentences."""
    starts = {name: from_scratch(recipes, shape) for name, shape in SHAPES.items()}
    return Table(
        "shapes",
        "Family and size of the encoder in unsupervised pre-training",
        "Beyond the papers. Each encoder is trained from random weights by masked language modelling on the sentences, "
        "then on dropout views of them. BERT has an uncased WordPiece vocabulary, RoBERTa one of byte pairs, both "
        "learned from the sentences.",
        tuple(
            Row(f"{name}, {label}", recipes.self_supervised(OBJECTIVES[label], start))
            for name, start in starts.items()
            for label in LABELS
        ),
        columns=("similarity",),
        on_request=True,
    )

"""Do decoupled losses overfit where contrastive ones do not?

Source: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations",
ICLR 2023. `align_uniform` and `dcl` have no gradient dissipation; `infonce` has; `met`, `mat` and `mpt` imitate it by a
margin, `dcl_positive` by a loss that ends at zero.
"""

from dataclasses import replace

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table

OBJECTIVES = {
    "InfoNCE": "infonce",
    "Alignment and uniformity": "align_uniform",
    "Decoupled contrastive loss": "dcl",
    "Decoupled, cut at zero": "dcl_positive",
    "MET": "met",
    "MAT": "mat",
    "MPT": "mpt",
}
EPOCHS = 3  # over the same sentences


def table(recipes: Recipes) -> Table:
    """Long training on few sentences."""
    views = replace(recipes.views, epochs=EPOCHS)
    rows = tuple(
        Row(label, recipes.pretrain(recipes.untuned, replace(views, objective=ObjectiveConfig(name))))
        for label, name in OBJECTIVES.items()
    )
    return Table(
        "decoupled",
        "Contrastive and decoupled losses over several epochs",
        f"Similarity is the cosine of two embeddings; {EPOCHS} epochs over the same sentences. Scores are those of the "
        "best state of each training; the curves show how far it falls afterwards.",
        rows,
        reference="InfoNCE",
        columns=("similarity",),
        on_request=True,
    )

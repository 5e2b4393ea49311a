"""Do components of different losses go together? Dissipation of one, weight of another, ratio of a third."""

from itertools import product

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table

NAMES = {"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET"}
DISSIPATIONS = ("infonce", "mpt", "met")  # soft, and two gates; that of arccon is close to that of infonce
WEIGHTS = ("infonce", "met")  # a softmax, or all on the hardest negative: there are no others among the losses
RATIOS = ("infonce", "arccon", "met")  # 1, and two that depend on angles


def table(recipes: Recipes) -> Table:
    """One encoder that is not tuned contrastively, then each mixture on the same sentences."""

    def row(*losses: str) -> Row:
        dissipation, weight, ratio = losses
        objective = ObjectiveConfig.of("mixed", dissipation_of=dissipation, weight_of=weight, ratio_of=ratio)
        return Row(", ".join(NAMES[loss] for loss in losses), recipes.self_supervised(objective))

    rows = tuple(row(*losses) for losses in product(DISSIPATIONS, WEIGHTS, RATIOS))
    return Table(
        "mixed",
        "Components of different losses, mixed",
        "Beyond the papers. Similarity is the cosine of two embeddings. A row names the losses whose dissipation, "
        "weight and ratio make up the gradient; each row is trained on dropout views of the same sentences from the "
        "same encoder. The losses' own constant factors, such as InfoNCE's 1/τ, are left out, so that rows are alike; "
        "as AdamW's ε and clipping are not scaled with them, a row of one loss alone is close to that loss, not equal.",
        rows,
        reference=rows[0].label,
        columns=("similarity",),
        on_request=True,
    )

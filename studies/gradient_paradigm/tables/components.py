"""Do the three components act by themselves or together? All their subsets on the four losses without negatives.

Source: arXiv 2402.18281, section 4 adds all three at once; which of them matter, and whether they interact, it leaves
open. The weight of the spreading part belongs to the weight component: the paper's scripts use a large one where all
pairs count alike and 1 where the closest dominate, so both change together here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table


@dataclass(frozen=True)
class Loss:
    """A loss without negatives and the paper's settings of its components."""

    objective: str
    uniformity_weight: float  # without the weight component
    ratio: float
    weight: float | None = 0.05


LOSSES = {
    "MHE": Loss("mhe", 10.0, 1.75),
    "MHS": Loss("mhs", 1.0, 1.75, weight=None),  # its weight is on the hardest negative alone already
    "Barlow Twins": Loss("barlow_twins", 30.0, 1.5),
    "VICReg": Loss("vicreg", 30.0, 1.5),
}
DISSIPATION = 0.30
COMPONENTS = ("dissipation", "weight", "ratio")


def switched_on(objective: ObjectiveConfig) -> list[str]:
    """Names of its components."""
    return [name for name in COMPONENTS if name in dict(objective.parameters)]


def cells(loss: Loss) -> Iterator[tuple[str, ObjectiveConfig]]:
    """Every subset of the components that the loss can have, by the names of those that are on."""
    weights = (None,) if loss.weight is None else (None, loss.weight)
    for dissipation, weight, ratio in product((None, DISSIPATION), weights, (None, loss.ratio)):
        given = {"dissipation": dissipation, "weight": weight, "ratio": ratio}
        on = {name: value for name, value in given.items() if value is not None}
        uniformity_weight = loss.uniformity_weight if weight is None else 1.0
        objective = ObjectiveConfig.of(loss.objective, uniformity_weight=uniformity_weight, **on)
        yield " + ".join(switched_on(objective)) or "plain", objective


def table(recipes: Recipes) -> Table:
    """One encoder that is not tuned contrastively, then each loss with each subset on the same sentences."""
    rows = tuple(
        Row(f"{label}, {names}", recipes.self_supervised(objective))
        for label, loss in LOSSES.items()
        for names, objective in cells(loss)
    )
    return Table(
        "components",
        "Components of losses without negatives, switched on and off",
        "Beyond the papers. Similarity is the cosine of two embeddings. Each row is trained on dropout views of the "
        "same sentences from the same encoder. With the weight the spreading part counts once, without it as often as "
        "the paper's plain loss has it (MHE 10, others 30 times): the weight's effect is that of both. MHS has its "
        "weight on the hardest negative already. All rows have the same learning rate, plain MHS too.",
        rows,
        columns=("similarity",),
        on_request=True,
    )

"""One component of the gradient form varied at a time (arXiv 2402.18281, section 3.2), the others at their defaults."""

from multitask.objectives.config import ObjectiveConfig
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table

DEFAULTS = "m 0.30, τ 0.05, r 1"
VARIED = {
    **{f"m {m:.2f}": ObjectiveConfig.of("gradient", dissipation=m) for m in (0.05, 0.10, 0.20, 0.45, 0.60, 2.00)},
    **{f"τ {t:.3g}": ObjectiveConfig.of("gradient", weight=t) for t in (0.01, 0.02, 0.10, 0.20, 0.50, 1.00)},
    **{f"r {r:.3g}": ObjectiveConfig.of("gradient", ratio=r) for r in (0.25, 0.50, 0.75, 1.25, 1.50, 2.00)},
}


def swept(name: str) -> dict[float, str]:
    """Labels of the rows along one component (m, τ or r), by its value in rising order."""
    default = dict(part.split() for part in DEFAULTS.split(", "))[name]
    varied = {float(label.split()[1]): label for label in VARIED if label.split()[0] == name}
    return dict(sorted({**varied, float(default): DEFAULTS}.items()))


def table(recipes: Recipes) -> Table:
    """One encoder that is not tuned contrastively, then the gradient form with each setting on the same sentences."""
    settings = {DEFAULTS: ObjectiveConfig("gradient"), **VARIED}
    rows = tuple(Row(label, recipes.self_supervised(objective)) for label, objective in settings.items())
    return Table(
        "gradient",
        "The gradient form, one component varied at a time",
        "Similarity is the cosine of two embeddings. m: margin of the dissipation; τ: temperature of the weight; r: "
        "ratio. No gap exceeds 2, so m 2 is no dissipation. Each row is trained on "
        "dropout views of the same sentences from the same encoder.",
        rows,
        reference=DEFAULTS,
        columns=("similarity",),
        on_request=True,
    )

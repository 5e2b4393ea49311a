"""What the gradient papers say of their tables' rows, for synthetic stores."""

from multitask.experiments.table_definitions import Row
from studies.engine.recipes import GROUPS, STS
from studies.gradient_paradigm.tables import DEFAULTS, MODIFIED, NON_CONTRASTIVE, swept

WITHOUT_DISSIPATION = ("align_uniform", "dcl")
ENDS = {end for parameter in DEFAULTS for end in (min(swept(parameter).items())[1], max(swept(parameter).items())[1])}


def as_published(key: str, row: Row, task: str) -> float:
    """Contrastive and modified losses are good, the others not; optima lie within the ranges."""
    if key in ("objectives", "objectives-long"):
        return 0.4 if row.key in NON_CONTRASTIVE else 0.9
    if key == "objectives-suites" and task in GROUPS[STS]:
        return 0.4 if row.key in NON_CONTRASTIVE else 0.8
    if key == "objectives-suites":
        return 0.8 if row.key in MODIFIED.values() else 0.75
    if key == "gradient":
        return 0.4 if row.key in ENDS else 0.9
    if key == "decoupled":
        return 0.5 if row.key in WITHOUT_DISSIPATION else 0.9
    if key == "components":
        components = row.point["components"]
        assert isinstance(components, tuple)
        return 0.4 + 0.15 * len(components)
    return 0.8


def falls_as_published(row: Row, seed: int) -> float:
    """Decoupled losses overfit."""
    return 0.2 if row.key in WITHOUT_DISSIPATION else 0.0


def probed_as_published(row: Row) -> dict[str, float]:
    """What the probe would see at the end of training."""
    ratio = row.point.get("ratio", 1.0)
    decoupled = row.key in WITHOUT_DISSIPATION
    return {
        "distance gap": 0.9 if row.key == "margin=2" else 0.5,
        "dissipated anchors": 0.5,
        "hardest negative push": 0.8,
        "closer to positive": 0.3 + 0.3 * (ratio if isinstance(ratio, float) else 1.0),
        "alignment": 0.2 if decoupled else 0.5,
        "uniformity": -2.0,
        "alignment gradient": 0.9 if decoupled else 0.1,
        "uniformity gradient": 0.9 if decoupled else 0.1,
        "median ratio": 1.0,
    }

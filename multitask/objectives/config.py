"""An objective by name, with parameters."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ObjectiveConfig:
    """A contrastive or non-contrastive objective by name; a parameter left out takes the objective's own default."""

    objective: str = "infonce"
    """infonce, mnrl, arccon, mpt, met, mat, dcl, dcl_positive, align_uniform, gradient, mhe, mhs, barlow_twins,
    vicreg or mixed."""
    temperature: float | None = None
    scale: float | None = None
    angle: float | None = None
    margin: float | None = None
    alpha: float | None = None
    t: float | None = None
    hard_negative_weight: float | None = None
    uniformity_weight: float | None = None
    power: float | None = None
    dissipation: float | None = None
    weight: float | None = None
    ratio: float | None = None
    dissipation_of: str | None = None
    """mixed takes this component from infonce, arccon, mpt, met or mat; the next two likewise."""
    weight_of: str | None = None
    ratio_of: str | None = None

    @classmethod
    def of(cls, name: str, **parameters: float | str) -> Self:
        """An objective by name, e.g. `ObjectiveConfig.of("gradient", dissipation=0.3)`."""
        return cls(name, **parameters)  # type: ignore[arg-type]

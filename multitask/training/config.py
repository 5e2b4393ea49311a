"""Settings of the optimizer."""

from dataclasses import dataclass
from typing import Literal

from multitask.runtime.options import check_range


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its learning rate."""

    learning_rate: float = 1e-5
    """Peak learning rate of the encoder."""
    head_learning_rate: float | None = None
    """Peak learning rate of the heads; the encoder's when left out."""
    schedule: Literal["constant", "linear"] = "constant"
    """After the warm-up: stay, or fall to zero at the last step."""
    warmup: float = 0.0
    """Share of all steps over which the learning rate rises."""
    weight_decay: float = 0.01
    """Decoupled weight decay; never on biases and norms."""
    clip: float | None = 1.0
    """Largest gradient norm; None for no clipping."""

    def __post_init__(self) -> None:
        check_range(self, 0, ("learning_rate", "head_learning_rate", "weight_decay"))
        check_range(self, 0, ("warmup",), most=1)
        check_range(self, 1e-9, ("clip",))

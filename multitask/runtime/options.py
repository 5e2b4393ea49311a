"""Where a run computes and what it leaves behind."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minbert.errors import InputError

Device = Literal["auto", "cpu", "cuda"]


Precision = Literal["auto", "fp32", "bf16"]


def check_range(config: object, least: float, names: tuple[str, ...], most: float = math.inf) -> None:
    """Refuse numbers out of range; None stands for a setting that is left out."""
    for name in names:
        if (value := getattr(config, name)) is not None and not least <= value <= most:
            expected = f"at least {least}" if most == math.inf else f"{least} to {most}"
            raise InputError(f"{name} is {value}; expected {expected}")


@dataclass(frozen=True)
class RunOptions:
    """Where a run computes and what it leaves behind; none of it changes the result beyond device and precision."""

    device: Device = "auto"
    """Where to compute; `auto` takes CUDA when there is one."""
    precision: Precision = "auto"
    """Autocast precision; `auto` takes bf16 where the processor multiplies in it natively."""
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    name: str = "run"
    """A label in the artefact's folder name."""
    save_every: float = 120.0
    """Seconds between saved states, the most that a kill can cost."""
    tensorboard: bool = False
    """Write TensorBoard event files beside metrics.jsonl."""

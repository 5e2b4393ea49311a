"""`multitask simulate`: simulated gradients of the gradient papers."""

from dataclasses import field
from pathlib import Path

from minbert.settings import settings
from multitask.cli.arguments import Command
from studies.engine.presets import STUDIES
from studies.gradient_paradigm.simulate import STAGE, SimulationConfig


@settings
class Simulate:
    """Simulate gradients of random embeddings and check the papers' claims on them."""

    config: SimulationConfig = field(default_factory=SimulationConfig)
    runs: Path = Path("runs")
    """Folder of all runs."""
    name: str = "run"
    """A label in the run's folder name."""


COMMAND = Command("simulate", Simulate, "studies.gradient_paradigm.study:run_simulate", STUDIES, stage=STAGE)

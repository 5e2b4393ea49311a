"""`multitask simulate`: simulated gradients of the gradient papers."""

from dataclasses import field
from pathlib import Path

from minbert.settings import settings
from multitask.base.options import RunOptions
from multitask.cli.arguments import Command
from studies.engine.presets import STUDIES
from studies.gradient_paradigm.stages import SIMULATE, SimulationConfig


@settings
class Simulate:
    """Simulate gradients of random embeddings and check the papers' claims on them."""

    config: SimulationConfig = field(default_factory=SimulationConfig)
    runs: Path = Path("runs")
    """Folder of all runs."""
    name: str = "run"
    """A label in the run's folder name."""


def run_simulate(options: Simulate) -> None:
    """Simulate; print the claims, the figures written and the run's folder."""
    from studies.gradient_paradigm.simulated_claims import SIMULATED_CLAIMS
    from studies.gradient_paradigm.simulation_figures import write_figures
    from studies.gradient_paradigm.simulation_outcomes import Simulations
    from studies.gradient_paradigm.simulations import simulate
    from studies.report.claims import judge

    folder = simulate(options.config, RunOptions(runs=options.runs, name=options.name)).folder
    for one in judge(SIMULATED_CLAIMS, {}, Simulations.load(folder)).itertuples():
        print(f"{one.status.upper()}: {one.text} ({one.section})")
        print(f"  criterion: {one.criterion}\n  found: {one.evidence}")
    print(*write_figures(folder), folder, sep="\n")


COMMAND = Command("simulate", Simulate, run_simulate, STUDIES, stage=SIMULATE)

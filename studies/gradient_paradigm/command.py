"""`multitask simulate`: simulated gradients and the conjectures of the gradient papers."""

from dataclasses import field
from pathlib import Path

from minbert.settings import settings
from multitask.cli.command import STUDIES, Command
from studies.gradient_paradigm.simulate import STAGE, SimulationConfig


@settings
class Simulate:
    """Simulate gradients of random embeddings and check the papers' claims on them."""

    config: SimulationConfig = field(default_factory=SimulationConfig)
    runs: Path = Path("runs")
    """Folder of all runs."""
    name: str = "run"
    """A label in the run's folder name."""


def simulate(options: Simulate) -> int:
    """Simulate; print the claims, the figures written and the run's folder."""
    from multitask.runtime.options import RunOptions
    from studies.gradient_paradigm import simulate as stage
    from studies.gradient_paradigm.simulation_claims import claims_text, judged_simulations
    from studies.gradient_paradigm.simulation_figures import write_figures
    from studies.gradient_paradigm.simulation_outcomes import read_simulations

    artefact = stage.simulate(options.config, RunOptions(runs=options.runs, name=options.name))
    print(claims_text(judged_simulations(*read_simulations(artefact.folder))))
    for path in write_figures(artefact.folder):
        print(path)
    print(artefact.folder)
    return 0


COMMAND = Command("simulate", Simulate, simulate, STUDIES, stage=STAGE)

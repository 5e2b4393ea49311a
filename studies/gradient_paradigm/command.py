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
    from studies.gradient_paradigm.simulation_figures import write_figures
    from studies.gradient_paradigm.simulation_outcomes import read_simulations
    from studies.gradient_paradigm.study import STUDY, numbers_of
    from studies.report.claims import judge, read_claims

    artefact = stage.simulate(options.config, RunOptions(runs=options.runs, name=options.name))
    claims = [claim for claim in read_claims(STUDY.folder / "claims.toml") if not claim.tables]
    for one in judge(claims, {}, numbers_of(*read_simulations(artefact.folder))).itertuples():
        print(f"{one.status.upper()}: {one.text} ({one.section})")
        print(f"  criterion: {one.criterion}\n  found: {one.evidence}")
    for path in write_figures(artefact.folder):
        print(path)
    print(artefact.folder)
    return 0


COMMAND = Command("simulate", Simulate, simulate, STUDIES, stage=STAGE)

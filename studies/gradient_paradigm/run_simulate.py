"""What `multitask simulate` does."""

from multitask.runtime.options import RunOptions
from studies.gradient_paradigm.command import Simulate
from studies.gradient_paradigm.simulate import simulate
from studies.gradient_paradigm.simulation_figures import write_figures
from studies.gradient_paradigm.simulation_outcomes import Simulations
from studies.gradient_paradigm.study import STUDY, numbers_of
from studies.report.claims import judge, read_claims


def run(options: Simulate) -> int:
    """Simulate; print the claims, the figures written and the run's folder."""
    artefact = simulate(options.config, RunOptions(runs=options.runs, name=options.name))
    claims = [claim for claim in read_claims(STUDY.folder / "claims.toml") if not claim.tables]
    for one in judge(claims, {}, numbers_of(Simulations.load(artefact.folder))).itertuples():
        print(f"{one.status.upper()}: {one.text} ({one.section})")
        print(f"  criterion: {one.criterion}\n  found: {one.evidence}")
    for path in write_figures(artefact.folder):
        print(path)
    print(artefact.folder)
    return 0

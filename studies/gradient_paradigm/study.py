"""The study of the two gradient papers: simulations, tables, claims and figures."""

from functools import partial
from pathlib import Path

from multitask.runtime.options import RunOptions
from studies.engine.table import Row
from studies.gradient_paradigm import INADEQUACY, UNIFIED, tables_of_losses, tables_of_sweeps, training_figures
from studies.gradient_paradigm.command import Simulate
from studies.gradient_paradigm.simulate import simulate
from studies.gradient_paradigm.simulated_numbers import simulated
from studies.gradient_paradigm.simulation_figures import simulation_section, write_figures
from studies.gradient_paradigm.simulation_outcomes import Simulations
from studies.gradient_paradigm.tables_of_losses import table
from studies.report.claims import Numbers, judge, read_claims
from studies.report.preset_results import PresetResults
from studies.study import Study

# Simulated gradients (arXiv 2402.18281, section 3.1). All seeds share one run.
simulations = table("simulations", lambda recipes: [(Row("simulations", "Simulations"), recipes.simulations())])


def numbers_of(simulations: Simulations | None) -> dict[str, Numbers]:
    """The numbers of simulations that claims are about."""
    return {"simulated": partial(simulated, simulations)}


def _numbers(results: PresetResults) -> dict[str, Numbers]:
    stage = results.last_stage("simulations")
    return numbers_of(Simulations.load(stage.folder) if stage else None)


STUDY = Study(
    Path(__file__).parent,
    (simulations, *tables_of_losses.TABLES, *tables_of_sweeps.TABLES),
    (UNIFIED, INADEQUACY),
    (simulation_section, *training_figures.SECTIONS),
    _numbers,
)


def run_simulate(options: Simulate) -> int:
    """`multitask simulate`: simulate; print the claims, the figures written and the run's folder."""
    folder = simulate(options.config, RunOptions(runs=options.runs, name=options.name)).folder
    claims = [claim for claim in read_claims(STUDY.folder / "claims.toml") if not claim.tables]
    for one in judge(claims, {}, numbers_of(Simulations.load(folder))).itertuples():
        print(f"{one.status.upper()}: {one.text} ({one.section})")
        print(f"  criterion: {one.criterion}\n  found: {one.evidence}")
    print(*write_figures(folder), folder, sep="\n")
    return 0

"""The gradient study's simulations and checks of conjectures, on random embeddings; no model and no data."""

from dataclasses import asdict

from minbert.files import write_json
from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from studies.gradient_paradigm.conjectures import check_conjectures
from studies.gradient_paradigm.paradigm import USED
from studies.gradient_paradigm.simulation_config import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import as_json
from studies.gradient_paradigm.simulations import run_simulations


def simulate(config: SimulationConfig, options: RunOptions) -> Artefact:
    """Simulate on the processor, in fp32, into an artefact; or find it there.

    The artefact holds simulations.npz (read by `Simulations.load`) and conjectures.json (read by
    `simulation_outcomes.from_json`). What they say of
    the papers' claims is `simulation_claims`.

    Args:
        config: sizes and seed.
        options: where to write, under which name; device and precision do not matter.
    """
    inputs = {"objectives": [str(objective) for objective in USED]}
    with Artefact.building(options.runs, "simulate", options.name, asdict(config), inputs, {}) as artefact:
        if not artefact.done:
            run_simulations(config).save(artefact.folder / "simulations.npz")
            write_json(artefact.folder / "conjectures.json", as_json(check_conjectures(config)))
            artefact.finish()
    return artefact

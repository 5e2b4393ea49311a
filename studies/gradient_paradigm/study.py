"""The study of the two gradient papers: simulations, tables, claims and figures."""

from studies.engine.experiments import Experiment, experiment
from studies.engine.recipes import Recipes
from studies.engine.table import Row
from studies.gradient_paradigm import INADEQUACY, UNIFIED, tables_of_losses, tables_of_sweeps, training_figures
from studies.gradient_paradigm.simulation_claims import judged_simulations
from studies.gradient_paradigm.simulation_figures import simulation_section
from studies.gradient_paradigm.simulation_outcomes import read_simulations
from studies.gradient_paradigm.tables_of_losses import DESCRIBED
from studies.gradient_paradigm.training_claims import TRAINED_CLAIMS
from studies.report.preset_results import PresetResults
from studies.report.verdicts import Judged, judge
from studies.study import Study


def simulations(recipes: Recipes) -> Experiment:
    """Simulations and checks of conjectures (arXiv 2402.18281, section 3.1). All seeds share one artefact."""
    row = Row("simulations", "Simulations")
    return experiment(**DESCRIBED["simulations"], lines=[(row, recipes.simulations())])


def _judge(results: PresetResults) -> list[Judged]:
    stage = results.last_stage("simulations")
    simulated = (None, None) if stage is None else read_simulations(results.folder / stage.artefact)
    return judged_simulations(*simulated) + judge(TRAINED_CLAIMS, results.finished_tables)


STUDY = Study(
    (simulations, *tables_of_losses.TABLES, *tables_of_sweeps.TABLES),
    (UNIFIED, INADEQUACY),
    _judge,
    (simulation_section, *training_figures.SECTIONS),
)

"""The study of the two gradient papers: simulations, tables, claims and figures."""

from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.table_definitions import Row
from studies.gradient_paradigm import condition_tables, decoupled_claims, tables, training_figures
from studies.gradient_paradigm.claims import CLAIMS
from studies.gradient_paradigm.simulated_claims import SIMULATED_CLAIMS
from studies.gradient_paradigm.simulation_figures import simulation_section
from studies.gradient_paradigm.simulation_outcomes import Simulations
from studies.study import Paper, Study

UNIFIED = Paper(
    "paradigm",
    "Gradient paradigm paper",
    "arXiv 2402.18281",
    "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for Gradient",
)
INADEQUACY = Paper(
    "inadequacy",
    "Gradient dissipation paper",
    "ICLR 2023",
    "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations",
)

# Simulated gradients (arXiv 2402.18281, section 3.1). All seeds share one run.
simulations = tables.described_table(
    "simulations", lambda recipes: [(Row("simulations", "Simulations"), recipes.simulations())]
)


def _simulations(results: PresetResults) -> Simulations | None:
    stage = results.last_stage("simulations")
    return Simulations.load(stage.folder) if stage else None


STUDY = Study(
    (simulations, *tables.TABLES, *condition_tables.TABLES),
    (UNIFIED, INADEQUACY),
    (simulation_section, *training_figures.SECTIONS),
    (*SIMULATED_CLAIMS, *CLAIMS, *decoupled_claims.CLAIMS),
    _simulations,
)

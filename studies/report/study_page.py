"""The written study of a preset: what the papers claim, what these results say of it, and figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.files import read_json, write_text
from multitask.evaluation import markup
from studies.gradient_paradigm.figures import standalone
from studies.gradient_paradigm.simulation_claims import GD, Judged, judge
from studies.gradient_paradigm.simulation_outcomes import Estimate, Simulations
from studies.gradient_paradigm.simulation_report import (
    counter_examples,
    judged_simulations,
    read_simulations,
    simulation_figures,
)
from studies.gradient_paradigm.training_claims import ON_SUITES, TRAINED_CLAIMS, UP
from studies.gradient_paradigm.training_figures import STUDIED, TRAINED_SECTIONS, factorial_effects
from studies.report import format as formats
from studies.report.analysis import TableAnalysis
from studies.report.illustrations import Section
from studies.report.results import Results
from studies.report.templates import environment
from studies.sparse_cse.claims_and_figures import OTHERS, OWN, SCORES, SPARSE, SPARSITY_CLAIMS, SPARSITY_SECTIONS, START

TITLES = {
    UP: "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for Gradient "
    "(arXiv 2402.18281)",
    GD: "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations "
    "(ICLR 2023)",
    SPARSE: "Sparse Contrastive Learning of Sentence Embeddings (arXiv 2311.03881)",
}
SOURCES = {"paradigm": UP, "inadequacy": GD, "sparse": SPARSE}
MARKS = {"reproduced": "✓", "not reproduced": "✗", "not tested here": "–"}


@dataclass(frozen=True)
class Paper:
    """A paper's claims with their verdicts."""

    key: str  # the page's anchor
    source: str  # as claims begin theirs
    title: str
    claims: tuple[Judged, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of its claims have each verdict."""
        found = Counter(claim.status for claim in self.claims)
        return {status: found[status] for status in ("reproduced", "not reproduced", "not tested here")}


def write_study(results: Results, analyses: Sequence[TableAnalysis], warnings: Sequence[str], output: Path) -> bool:
    """Write study.html, study.md and, for the latter, its figures into the folder `study`.

    Args:
        results: of a preset.
        analyses: of its tables.
        warnings: what a reader must know.
        output: folder to write to.

    Returns:
        Whether there is anything to write of: simulations, or a table that the study reads.
    """
    finished = {a.table.recorded.key: a for a in analyses if any(row.runs for row in a.table.rows)}
    read = {*STUDIED, ON_SUITES, START, OWN, SCORES, OTHERS}
    tables = {key: analysis for key, analysis in finished.items() if key in read}
    stage = results.simulation
    if stage is None and not tables:
        return False
    simulations, estimates = (None, None) if stage is None else read_simulations(results.runs / stage.artefact)
    judged = judged_simulations(simulations, estimates) + judge(TRAINED_CLAIMS + SPARSITY_CLAIMS, tables)
    papers = [
        Paper(key, source, TITLES[source], tuple(claim for claim in judged if claim.source.startswith(source)))
        for key, source in SOURCES.items()
    ]
    sections = [section for build in (*TRAINED_SECTIONS, *SPARSITY_SECTIONS) if (section := build(tables))]
    if stage is not None and simulations is not None and estimates is not None:
        seed = read_json(results.runs / stage.artefact / "config.json")["seed"]
        sections.insert(0, _simulated(simulations, estimates, seed))
    values = {
        "record": results.record,
        "simulation": stage,
        "warnings": warnings,
        "papers": papers,
        "sections": sections,
        "effects": factorial_effects(tables),
        "marks": MARKS,
        "format": formats,
        "markup": markup,
    }
    for kind, suffix in (("html", "html"), ("markdown", "md")):
        page = environment(kind).get_template(f"study.{suffix}.jinja").render(**values)
        write_text(output / f"study.{suffix}", page)
    for section in sections:
        for number, figure in enumerate(section.figures, start=1):
            write_text(output / "study" / f"{section.key}-{number}.svg", standalone(str(figure.svg)))
    return True


def _simulated(simulations: Simulations, estimates: Sequence[Estimate], seed: int) -> Section:
    return Section(
        "simulations",
        "Simulated embeddings",
        "No model is trained here: angles are drawn at random, and the components of the papers' losses follow from "
        "them (arXiv 2402.18281, section 3.1); its conjectures are checked on random configurations of embeddings. "
        "The table has of each statement the case in which it held least often; angles are in radians. A configuration "
        f"is drawn again by `studies.gradient_paradigm.random_configurations.configuration`, with seed {seed}.",
        tuple(simulation_figures(simulations, estimates).values()),
        wide=True,
        table=counter_examples(estimates),
    )

"""The study of a preset as a page: the papers' claims, their verdicts by these results, and figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.files import write_text
from multitask.evaluation import markup
from studies.report.figures import standalone
from studies.report.preset_results import PresetResults
from studies.report.templates import environment
from studies.report.verdicts import Judged, Status
from studies.study import Paper, all_studies

MARKS: dict[Status, str] = {
    "reproduced": "✓",
    "not reproduced": "✗",
    "undecided": "?",
    "not tested here": "–",
    "theorem": "∎",
}
SILENT = ("not tested here", "theorem")
"""Verdicts that need no results."""


@dataclass(frozen=True)
class JudgedPaper:
    """A paper's claims with their verdicts."""

    paper: Paper
    claims: tuple[Judged, ...]

    @property
    def counts(self) -> dict[str, list[int]]:
        """How many claims have each verdict, in the order of `MARKS`: the paper's own, and those beyond it if any."""
        beyond = [one for one in self.claims if one.claim.kind == "beyond the paper"]
        own = [one for one in self.claims if one not in beyond]
        named = {self.paper.citation: own, f"{self.paper.citation}, beyond the paper": beyond}
        return {
            name: [sum(one.verdict.status == status for one in of) for status in MARKS]
            for name, of in named.items()
            if of
        }


def write_study(results: PresetResults, warnings: Sequence[str], output: Path) -> bool:
    """Write study.html, study.md, and the figures of study.md into the folder `study`.

    Args:
        results: of a preset.
        warnings: what a reader must know.
        output: folder to write to.

    Returns:
        Whether anything was written, which needs a tested claim or a section.
    """
    studies = all_studies()
    judged = [one for study in studies for one in study.judge(results)]
    sections = [section for study in studies for build in study.sections if (section := build(results))]
    if not sections and all(one.verdict.status in SILENT for one in judged):
        return False
    papers = [
        JudgedPaper(paper, tuple(one for one in judged if one.claim.paper == paper))
        for study in studies
        for paper in study.papers
    ]
    values = {
        "record": results.record,
        "warnings": warnings,
        "papers": papers,
        "sections": sections,
        "marks": MARKS,
        "markup": markup,
    }
    for kind, suffix in (("html", "html"), ("markdown", "md")):
        page = environment(kind).get_template(f"study.{suffix}.jinja").render(**values)
        write_text(output / f"study.{suffix}", page)
    for section in sections:
        for number, figure in enumerate(section.figures, start=1):
            write_text(output / "study" / f"{section.key}-{number}.svg", standalone(figure.svg, figure.caption))
    return True

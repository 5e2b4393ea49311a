"""The study of a preset as a page: the papers' claims, their verdicts by these results, and figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minbert.files import write_text
from multitask.evaluation import markup
from studies.report.figures import standalone
from studies.report.preset_results import PresetResults
from studies.report.templates import environment
from studies.report.verdicts import UNTESTED, Judged, Status
from studies.study import Paper, all_studies

MARKS: dict[Status, str] = {"reproduced": "✓", "not reproduced": "✗", "not tested here": "–"}


@dataclass(frozen=True)
class JudgedPaper:
    """A paper's claims with their verdicts."""

    paper: Paper
    claims: tuple[Judged, ...]

    @property
    def counts(self) -> list[int]:
        """How many of its claims have each verdict, in the order of `MARKS`."""
        found = Counter(judged.verdict.status for judged in self.claims)
        return [found[status] for status in MARKS]


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
    if not sections and all(one.verdict.status == UNTESTED.status for one in judged):
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
            write_text(output / "study" / f"{section.key}-{number}.svg", standalone(figure.svg))
    return True

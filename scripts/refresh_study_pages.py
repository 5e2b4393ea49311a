"""Write what docs/studies/ has from docs/studies/results/: `python -m scripts.refresh_study_pages`.

A row of a page's table that begins with `| <!-- FILE KEY -->` is about a claim of a `claims.py`. Its last two cells
become the number that decides and the verdict, from the scores in results/scores/FILE.parquet and, where they are
published, the answers in results/runs/FILE-answers.parquet: only with these do intervals cover other dev examples. The
figures of all pages are drawn from the same files. results/claims.csv has all claims about these tables.

results/contrasts.csv has the other differences that pages name. A line says what is compared: means of rows, with keys
separated by "; ", less those of other rows, of a column, or of a measure of training. This script computes its numbers.
results/costs.csv has the minutes and the machine of each table.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas

from minbert.errors import InputError
from minbert.files import read_text, write_text
from multitask.data.markup import markdown_text
from multitask.evaluation.statistics import Uncertain
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.figures import Interval, Picture, intervals, lines, standalone
from multitask.experiments.grid_frames import GridFrames
from multitask.experiments.report_page import Section
from multitask.experiments.table_definitions import OVERALL
from multitask.stages.evaluate import AT_THRESHOLD
from scripts.published_runs import answers_of
from studies.engine.recipes import STS, TRANSFER
from studies.gradient_paradigm.tables import LOSS_NAMES
from studies.gradient_paradigm.training_figures import decoupling_section, effects_of_components, long_section
from studies.multitask_report.claims import EQUALITIES, LATER_ORDERINGS, ORDERINGS, Better, Equal
from studies.report.claims import SCORE, Claim, ClaimResults, Measure, covers, fall, judge, last, last_score
from studies.report.study_page import MARKS, as_intervals
from studies.sparse_cse.figures import OWN_PRUNED, PLACES, START_PRUNED, score_curves
from studies.study import all_studies

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "studies"
ROW = re.compile(r"^(?P<claim>\| <!-- (?P<file>\S+) (?P<key>\S+) --> [^|]+)\|[^|]*\|[^|]*\|$", re.MULTILINE)
MATTERS_NOT = {
    "learning-rate-schedule": "Schedule",
    "batches": "Batch",
    "negative-pairs": "Negatives",
    "regularisation": "Recipe",
    "schedulers": "Tasks",
}
"""Tables of options that are not shown to help, with what their rows are about."""

MEASURES: Mapping[str, Measure | None] = {
    "score": None,
    "fall": fall,
    "last score": last_score,
    "first score": lambda run: run.curve(SCORE)[0],
    "gain": lambda run: float(np.nanmax(run.curve(SCORE)) - run.curve(SCORE)[0]),
    "closer to positive": last("closer to positive", "held-out sentences"),
    "hardest negative push": last("hardest negative push", "held-out sentences"),
    "paraphrase at a threshold from training": lambda run: run.numbers["paraphrase"][AT_THRESHOLD],
    "overall with such a threshold": lambda run: fmean(
        [run.numbers["paraphrase"][AT_THRESHOLD], *(run.scores[task] for task in run.scores if task != "paraphrase")]
    ),
}
"""What contrasts.csv can compare."""
READINGS = {"multitask-report-small": 5, "multitask-report-medium-six-seeds": 3}
"""How often verdicts of a file were read while seeds were added, as docs/reference/verdicts.md lists."""


@cache
def published(name: str, pages: Path) -> PresetResults:
    """The tables of published frames; intervals cover other dev examples where answers are published, too."""
    results = pages / "results"
    answers = answers_of(results / "runs" / f"{name}.parquet")
    return PresetResults.of(GridFrames.load(results / "scores" / f"{name}.parquet", answers))


@cache
def claims() -> dict[str, Claim]:
    """The claims of all studies by key; `KEY/2` is the second one with a key."""
    found: dict[str, Claim] = {}
    for claim in (claim for study in all_studies() for claim in study.claims):
        found[f"{claim.key}/2" if claim.key in found else claim.key] = claim
    return found


def with_verdicts(page: str, verdicts: pandas.DataFrame) -> str:
    """The text of a page with its claims as `all_verdicts` decides them. Raises InputError for an unknown claim."""
    known = verdicts.set_index(["file", "key"])

    def filled(row: re.Match[str]) -> str:
        if (row["file"], row["key"]) not in known.index:
            raise InputError(f"{row[0][:80]}: no claim {row['key']} about tables of {row['file']}")
        found = known.loc[(row["file"], row["key"])]
        return f"{row['claim']}| {markdown_text(found.number)} | {MARKS[found.status]} {found.status} |"

    return ROW.sub(filled, page)


def all_verdicts(pages: Path = PAGES) -> pandas.DataFrame:
    """All claims about published tables, by the file of results that decides them, and what the intervals cover."""
    found = []
    for name in sorted({path.stem for path in (pages / "results").glob("*.parquet")}):
        tables = published(name, pages).finished_tables
        about = {key: claim for key, claim in claims().items() if any(p.table in tables for p in claim.places)}
        judged = judge([*about.values()], tables, readings=READINGS.get(name, 1))
        found.append(judged.assign(file=name, key=[*about]))
    columns = ["file", "key", "paper", "section", "text", "kind", "number", "corrected", "covers", "status"]
    return pandas.concat(found)[columns]


def all_contrasts() -> pandas.DataFrame:
    """The differences that contrasts.csv lists, with values and 95% intervals, and what these cover."""
    listed = pandas.read_csv(PAGES / "results" / "contrasts.csv", keep_default_na=False)
    found = []
    for one in listed.itertuples():
        results = ClaimResults(table(one.file, one.table), one.column)
        weights: dict[str, float] = {}
        for sign, keys in ((1, one.rows), (-1, one.less)):
            for key in (rows := list(filter(None, keys.split("; ")))):
                weights[key] = weights.get(key, 0.0) + sign / len(rows)
        number = results.contrast(weights, MEASURES[one.measure])
        found.append((*np.round((number.value, *number.interval()), 6), covers(number)))
    return listed.assign(**dict(zip(("value", "low", "high", "covers"), zip(*found, strict=True), strict=True)))


def all_costs() -> pandas.DataFrame:
    """The minutes of each published table's stages, one after the other, by machine; tables share stages."""
    found = []
    for name in sorted(path.stem for path in (PAGES / "results").glob("*.parquet")):
        for key, results in published(name, PAGES).finished_tables.items():
            minutes = results.minutes or {"not recorded": np.nan}
            found += [(name, key, round(spent, 1), machine) for machine, spent in minutes.items()]
    return pandas.DataFrame(found, columns=["file", "table", "minutes", "machine"])


def table(name: str, key: str) -> TableResults:
    """A table of a file of results."""
    return published(name, PAGES).finished_tables[key]


def shown(contrast: Uncertain | None, of_paper: float = np.nan) -> Interval:
    """A difference; hollow if it is not shown."""
    if contrast is None:
        return Interval(np.nan, np.nan, np.nan, published=of_paper)
    low, high = contrast.interval()
    return Interval(contrast.value, low, high, published=of_paper, hollow=not (low > 0 or high < 0))


def forest(title: str, panels: Mapping[str, Mapping[str, Interval]]) -> Picture:
    """Differences around a dashed line at zero."""
    return Picture(intervals(panels, title, dict.fromkeys(panels, 0.0)), title)


def orderings() -> Picture:
    """The differences of Overall that the report publishes and that claims about Tables 2 to 10 name."""
    better: list[Better | Equal] = [one for one in (*ORDERINGS, *LATER_ORDERINGS) if one.column == OVERALL]
    named = [(int(one.table), one.first, one.second) for one in (*better, *EQUALITIES) if one.table.isdigit()]
    found = {}
    for key, row, less in sorted((one for one in named if one[0] > 1), key=itemgetter(0)):
        results = table("multitask-report-medium", str(key))
        scores = {one.key: one.published.get(OVERALL, np.nan) for one in results.table.rows}
        both = (results.table.label(one).removesuffix(" (baseline)") for one in (row, less))
        difference = shown(results.contrast({row: 1, less: -1}, OVERALL), scores[row] - scores[less])
        found[f"Table {key}: {' − '.join(both)}"] = difference
    title = "Overall: differences as published, and here"
    return forest(title, {title: found})


def no_difference() -> Picture:
    """Overall of options less that of the usual one."""
    found: dict[str, Interval] = {}
    for key, about in MATTERS_NOT.items():
        results = table("multitask-report", key)
        tests = as_intervals(results.against_reference.xs(OVERALL, level=1))
        found |= {f"{about}: {results.table.label(row)}": test for row, test in tests.items()}
    title = "Overall, less the usual option"
    return forest(title, {title: found})


def components() -> Picture:
    """Main effects of the components on each loss."""
    effects = effects_of_components(table("gradient-paradigm", "components"))
    effects.index = pandas.Index([f"{LOSS_NAMES[loss]}: {name}" for loss, name in effects.index])
    title = "Score with the component less without it"
    return forest(title, {title: as_intervals(effects[~effects.index.str.contains("×")])})


def starts() -> Picture:
    """VICReg less InfoNCE by encoder."""
    rows = {"vicreg": "As published", "vicreg-modified": "With three components"}
    panels: dict[str, dict[str, Interval]] = {name: {} for name in rows.values()}
    for key, steps in {"objectives": 32, "objectives-long": 320}.items():
        for row, name in rows.items():
            contrast = table("gradient-paradigm", key).contrast({row: 1, "infonce": -1}, "similarity")
            panels[name][f"MLM start, {steps} steps"] = shown(contrast)
    found = table("gradient-paradigm", "shapes")
    for one in found.table.rows:
        if (row := str(one.point["objective"])) in rows:
            usual = one.key.replace(f"objective={row}", "objective=infonce")
            encoder = f"random weights: {one.label.rpartition(', ' + LOSS_NAMES[row])[0]}"
            panels[rows[row]][encoder] = shown(found.contrast({one.key: 1, usual: -1}, "similarity"))
    return forest("VICReg less InfoNCE, by encoder", panels)


def of_section(section: Section | None, place: int) -> Picture:
    """One of a section's pictures."""
    assert section is not None, "the tables are there"
    return section.pictures[place]


def decoupled(key: str, place: int) -> Picture:
    """A figure of contrastive and decoupled losses over ten or thirty epochs: scores, or norms of the gradient."""
    return of_section(decoupling_section(table("gradient-dissipation", key)), place)


def shares() -> Picture:
    """Scores against the share removed, of two encoders."""
    panels = {}
    for key, encoder in {OWN_PRUNED: "trained here", START_PRUNED: "tuned start"}.items():
        for column, curves in score_curves(table("sparse-cse", key), (STS, TRANSFER)).items():
            panels[f"{column}, {encoder}"] = curves
    title = "Scores against the share removed"
    return Picture(lines(panels, "share removed (95% intervals)", title, places=PLACES), title)


def reliability() -> Picture:
    """How well two scorings on different pairs agree, against the number of pairs."""
    found = pandas.read_csv(PAGES / "results" / "score-reliability.csv")
    drawn = {
        kind: [(place, one.mean, one.low, one.high) for place, one in enumerate(rows.itertuples())]
        for kind, rows in found.groupby("units", sort=False)
    }
    title = "Rank correlation of two scorings on different pairs"
    places = [str(pairs) for pairs in found.pairs.unique()]
    svg = lines({"": drawn}, "pairs that each scoring reads", title, places=places, size=(4.2, 2.6))
    return Picture(svg, title)


def wikipedia_start() -> Picture:
    """Loss and accuracy of the Wikipedia start on held-out sentences while it was trained."""
    found = pandas.read_csv(PAGES / "results" / "wikipedia-start.csv")
    panels = {
        name: {"": [(one.tokens / 1e6, getattr(one, column), np.nan, np.nan) for one in found.itertuples()]}
        for column, name in {"loss": "loss of masked words", "accuracy": "share of masked words predicted"}.items()
    }
    title = "Masked language modelling from random weights"
    return Picture(lines(panels, "tokens read (millions)", title), title)


FIGURES: dict[str, Callable[[], Picture]] = {
    "report-orderings": orderings,
    "report-no-difference": no_difference,
    "paradigm-training": lambda: of_section(long_section(table("gradient-paradigm", "objectives-long")), 0),
    "paradigm-components": components,
    "paradigm-starts": starts,
    "dissipation-training": lambda: decoupled("decoupled-long", 0),
    "dissipation-longest": lambda: decoupled("decoupled-longest", 0),
    "dissipation-norms": lambda: decoupled("decoupled-long", 1),
    "wikipedia-start": wikipedia_start,
    "sparse-shares": shares,
    "sparse-reliability": reliability,
}
"""The pages' figures by their names in figures/."""


def refresh() -> None:
    """Write the figures and the verdicts."""
    for name, draw in FIGURES.items():
        write_text(PAGES / "figures" / f"{name}.svg", standalone(draw()))
    verdicts = all_verdicts()
    write_text(PAGES / "results" / "claims.csv", verdicts.to_csv(index=False, lineterminator="\n"))
    write_text(PAGES / "results" / "contrasts.csv", all_contrasts().to_csv(index=False, lineterminator="\n"))
    write_text(PAGES / "results" / "costs.csv", all_costs().to_csv(index=False, lineterminator="\n"))
    for page in sorted(PAGES.glob("*.md")):
        write_text(page, with_verdicts(read_text(page), verdicts))


if __name__ == "__main__":
    refresh()

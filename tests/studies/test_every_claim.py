"""Every claim of every paper comes out each way: results that show it, its opposite, or neither turn the verdict.

A claim that cannot come out all three ways is no claim. It is either a theorem, or its condition is wrong.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest

import studies
from multitask.experiments.compare_rows import TableResults
from multitask.experiments.table_definitions import Row
from studies.engine.recipes import GROUPS, STS
from studies.gradient_paradigm.simulation_outcomes import RATIO_MAPS, SIMULATED, TEMPERATURES, TRIPLETS, Simulations
from studies.gradient_paradigm.tables import MODIFIED, NON_CONTRASTIVE
from studies.report import claims as measures
from studies.report.claims import Claim, Status, judge
from studies.sparse_cse.tables import WHOLE, pruned
from studies.study import all_experiments, all_studies
from tests.conftest import ROOT, slow_after
from tests.studies import synthetic
from tests.studies.gradient_paradigm.published import ENDS, WITHOUT_DISSIPATION, probed_as_published
from tests.studies.synthetic import TABLES, Trained, results_of

Shown = Literal["the claim", "its opposite", "neither"]
STATUSES: dict[Shown, Status] = {"the claim": "shown", "its opposite": "equivalent or opposite", "neither": "open"}
QUIET, LOUD = 0.0005, 0.4
"""Standard deviations over seeds: of results that tell something, and of results that do not."""
ON_SUITES, GRADIENT, DECOUPLED, LONG = "objectives-suites", "gradient", "decoupled", "objectives-long"
SHAPES, FEW, SUPERVISED = "shapes", "few-negatives", "objectives-supervised"
COEFFICIENTS, BREAKS, BY_TASK = "coefficients", "break-conditions", "components-suites"
REPORTED = tuple(map(str, range(1, 11)))
CONTROLLED = {"pairs": "report", "supervision": "supervised"}
"""Tables beyond the report that decide what it says, with the row that is better."""
READ = (
    *(*REPORTED, "batches", "figure2", *CONTROLLED, SHAPES, FEW, SUPERVISED, COEFFICIENTS, BREAKS, BY_TASK),
    *(LONG, ON_SUITES, GRADIENT, DECOUPLED, "sparsity", "sparsity-own"),
)
"""The tables that decide the claims here."""
NORMS = ("alignment gradient", "uniformity gradient")
CLAIMS: list[Claim] = [claim for study in all_studies() if study.papers for claim in study.claims]


@dataclass(frozen=True)
class Results:
    """Results that show all claims, the opposite of all, or neither."""

    shown: Shown

    def noise(self, row: Row, seed: int) -> float:
        """The deviation of one of three seeds. If the results show neither, it is large, and different in each row."""
        own = np.random.default_rng([*row.key.encode()]).uniform(-100, 100)
        return (seed - 1) * (LOUD * own if self.shown == "neither" else QUIET)

    def simulated(self) -> Simulations:
        """Dissipation that falls at a gap of 20°, weights above half, and ratios above 1; or nothing of it."""
        holds, unknown = self.shown != "its opposite", self.shown == "neither"
        positive, negative = np.linspace(0.2, 1.5, 20), np.linspace(0.2, 3.1, 60)
        gap = np.degrees(negative - positive[:, None])
        fallen = np.clip(1 - (gap - 15) / 10, 0, 1) if holds else np.ones_like(gap)
        error = np.full_like(gap, 1.0 if unknown else 1e-4)
        weights = np.full((len(TEMPERATURES), len(negative)), 0.7 if holds else 0.3)
        ratio = np.full_like(gap, 2.0 if holds else 0.5)
        ratio[:, :: 2 if unknown else 1] *= 0.1 if unknown else 1
        return Simulations(
            positive,
            negative,
            np.array(TEMPERATURES),
            dict.fromkeys(SIMULATED, fallen),
            dict.fromkeys(SIMULATED, error),
            weights,
            np.full_like(weights, 1.0 if unknown else 1e-4),
            np.ones_like(weights),
            dict.fromkeys(RATIO_MAPS, ratio),
            dict.fromkeys(RATIO_MAPS, np.zeros(gap.shape, bool)),
            dict.fromkeys(TRIPLETS, np.array([1, 1] if unknown else [1000 if holds else 400, 1000])),
        )

    def score(self, key: str, row: Row, task: str) -> float:
        """A row's score on a task, without noise."""
        holds = self.shown != "its opposite"
        if key == ON_SUITES and task not in GROUPS[STS]:  # transfer
            return 0.75 if holds or row.key not in MODIFIED.values() else 0.6
        if key == SUPERVISED:
            return 0.9 if (row.point["objective"] in MODIFIED.values()) == holds else 0.6
        if key in (COEFFICIENTS, BREAKS, BY_TASK, *CONTROLLED):
            return self.separate(key, row)
        if key in (SHAPES, FEW):
            return 0.4 if (row.point["objective"] == "infonce") != holds else 0.6
        if key in (ON_SUITES, LONG):
            if holds:
                return 0.4 if row.key in NON_CONTRASTIVE else 0.9
            effective, *_ = NON_CONTRASTIVE  # plain: the others leave something to repair
            return {effective: 0.9, "infonce": 0.6}.get(row.key, 0.3 if row.key in MODIFIED.values() else 0.5)
        if key == "batches":
            return 0.7 if holds or row.key == "pretraining=16,finetuning=16" else 0.6
        if key in REPORTED:
            return self.reported(row, task)
        if key == GRADIENT:
            return 0.9 if (row.key in ENDS) != holds else 0.4
        if key == DECOUPLED:
            good = row.key not in WITHOUT_DISSIPATION
            return (0.9 if good else 0.5) if holds else 0.9 if not good else 0.6 if row.key == "infonce" else 0.3
        share = row.point.get("share", 0.0)
        assert isinstance(share, float)
        if not holds:  # the more is removed the worse, whatever decides what
            return 0.8 - 0.4 * share
        best = pruned(0.2 if task == "TREC" else 0.05, "score")
        left = 0.72 if row.point.get("criterion") == "score" else 0.5
        return 0.95 if row.key == best else 0.7 if row.key == WHOLE else left

    def separate(self, key: str, row: Row) -> float:
        """What a change of one thing alone does: λ, then the weight, labels, layers; under a condition, nothing."""
        holds = self.shown != "its opposite"
        if key in CONTROLLED:
            return 0.6 if (row.key == CONTROLLED[key]) == holds else 0.4
        if key == BY_TASK:
            components = row.point["components"]
            assert isinstance(components, tuple)
            return 0.6 + (0.1 if holds else -0.1) * len(components)
        if key == COEFFICIENTS:
            steps = (row.point["coefficient"] == 1) + (row.point["weight"] == "on")
            return 0.6 + (0.1 if holds else -0.1) * steps
        return 0.6 if holds or {0.25, 0.05} & set(row.point.values()) else 0.8

    def reported(self, row: Row, task: str) -> float:
        """The report's score; or the reverse, further apart."""
        published = row.published.get(task, 0.5)
        if self.shown != "its opposite":
            return published
        return 0.6 - 8 * (published - 0.6)

    def best_at(self, key: str, row: Row, seed: int) -> tuple[float, ...]:
        """The dev scores of ten evaluations, in tables that tell when a training is best."""
        if key not in ("10", "figure2"):
            return ()
        slow = (row.key == "rate=1") == (self.shown == "the claim") if key == "10" else self.shown != "the claim"
        spread = (0, 5, 9)[seed] if row.key != "rate=1" else (9, 5, 0)[seed]
        best = spread if self.shown == "neither" else 7 if slow else 2
        return tuple(0.6 if place == best else 0.5 for place in range(10))

    def fall(self, row: Row, seed: int) -> float:
        """By how much the dev score falls from its highest."""
        decoupled = row.key in WITHOUT_DISSIPATION
        if self.shown == "its opposite":  # all overfit
            return 0.2 if row.key == "infonce" else 0.1
        return 0.2 if decoupled else abs(self.noise(row, seed))

    def probed(self, row: Row, seed: int) -> dict[str, float]:
        """Statistics at the end of training."""
        decoupled, published = row.key in WITHOUT_DISSIPATION, probed_as_published(row)
        if self.shown == "its opposite":
            same = dict.fromkeys(("distance gap", "hardest negative push", "closer to positive"), 0.4)
            norms = dict.fromkeys(NORMS, 0.5)
            return {**published, **same, **norms, "alignment": 0.9 if decoupled else 0.5}
        noisy = {name: value + self.noise(row, seed) for name, value in published.items()}
        for norm in NORMS:
            noisy[norm] = published[norm] * np.exp(self.noise(row, seed))
        return {**noisy, "dissipated anchors": published["dissipated anchors"]}

    def table(self, folder: Path, key: str) -> TableResults:
        """Results of a table of trained models."""

        def trained(row: Row, seed: int) -> Trained:
            tasks = TABLES[key].columns
            scores = {task: self.score(key, row, task) + self.noise(row, seed) for task in tasks}
            last = 0.5 if row.key in WITHOUT_DISSIPATION else 0.7
            curve = self.best_at(key, row, seed) or (last + self.fall(row, seed), last, last)
            first = dict.fromkeys(probed_as_published(row), 1.0)
            return Trained(scores, curve, first, self.probed(row, seed))

        return results_of(folder, key, trained)


@cache
def verdicts(shown: Shown) -> dict[tuple[str, str], Status]:
    """The verdicts on all claims by their keys and kinds."""
    results = Results(shown)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (synthetic, measures):
            patch.setattr(module, "SAMPLES", 2000)  # enough for results that are as clear as these
        found = judge(CLAIMS, {key: results.table(Path(folder), key) for key in READ}, results.simulated())
    return dict(zip(zip(found.key, found.kind, strict=True), found.status, strict=True))


def test_claims_are_told_apart_by_key_and_kind():
    assert len({(claim.key, claim.kind) for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("shown", slow_after(2, STATUSES))
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.key}-{claim.kind}")
def test_a_verdict_is_what_the_results_show(claim, shown):
    assert verdicts(shown)[claim.key, claim.kind] == ("theorem" if claim.kind == "theorem" else STATUSES[shown])


def test_without_results_nothing_is_tested():
    found = judge(CLAIMS, {}, None)
    assert set(found.status[found.kind != "theorem"]) == {"not tested here"}
    assert not found.evidence.any()


# Studies: a folder with a module `study` is found by itself, and what all studies share knows none of them.


PAPERS = {path.parent.name for path in ROOT.glob("studies/*/study.py")}
NEW = """
from multitask.experiments.table_definitions import experiment
from multitask.experiments.table_definitions import Row
from studies.report.claims import Claim, ClaimPlace
from studies.study import Paper, Study

PAPER = Paper("new", "New paper", "arXiv 0000.00000", "A new paper")

def table(recipes):
    return experiment("new", "A new table", "", [(Row("row", "Row"), recipes.finetune(recipes.start))])

def better(results):
    return results.above("row", bound=0.5)

CLAIM = Claim("better", "new", "section 1", "A row is good.", "Its score is above half.", better, (ClaimPlace("new"),))
STUDY = Study((table,), (PAPER,), claims=(CLAIM,))
"""


def test_every_folder_with_a_study_is_found():
    assert len(all_studies()) == len(PAPERS) == 3
    papers = [paper.key for study in all_studies() for paper in study.papers]
    assert papers == ["paradigm", "inadequacy", "report", "sparse"]


def test_a_new_folder_is_a_new_study(recipes, tmp_path, monkeypatch):
    folder = tmp_path / "a_new_paper"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "study.py").write_text(NEW)
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    study = all_studies()[-1]
    assert [paper.citation for paper in study.papers] == ["New paper (arXiv 0000.00000)"]
    assert list(judge(study.claims, {}).status) == ["not tested here"]
    assert [experiment.table.title for experiment in all_experiments(recipes) if experiment.table.key == "new"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("studies/report/*.py")), ids=lambda path: path.name)
def test_reports_know_no_paper(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if PAPERS & set(str(name).split("."))]

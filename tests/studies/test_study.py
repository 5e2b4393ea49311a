"""Studies: a folder with a module `study` is found by itself, and what all studies share knows none of them."""

import ast
from pathlib import Path

import pytest

import studies
from studies.engine.recipes import Recipes
from studies.report.claims import judge
from studies.study import all_experiments, all_studies
from tests.conftest import ROOT

PAPERS = {path.parent.name for path in ROOT.glob("studies/*/study.py")}
NEW = """
from multitask.experiments.tables import experiment
from multitask.experiments.tables import Row
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


def test_every_folder_with_a_study_is_found() -> None:
    assert len(all_studies()) == len(PAPERS) == 3
    papers = [paper.key for study in all_studies() for paper in study.papers]
    assert papers == ["paradigm", "inadequacy", "report", "sparse"]


def test_a_new_folder_is_a_new_study(recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_reports_know_no_paper(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if PAPERS & set(str(name).split("."))]

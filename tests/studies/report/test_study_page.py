"""The written study: the page has every claim and figure, stands alone, and depends on no label."""

import re
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from multitask.experiments import table_results as preset_results
from multitask.experiments.record import PresetRecord
from multitask.experiments.results import scores_as_data
from multitask.experiments.table_results import PresetResults
from studies.report.study_page import write_study
from studies.study import all_studies
from tests.studies.gradient_paradigm.published import as_published, falls_as_published, probed_as_published
from tests.studies.report.test_report import Page, tables_below
from tests.studies.synthetic import SEEDS, write_store

STUDIED = ("simulations", "objectives", "gradient")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    return write_store(folder, STUDIED, as_published, falls_as_published, probed_as_published, SEEDS)


@pytest.fixture(scope="module")
def results(store: Path) -> PresetResults:
    return PresetResults.read(store, "sample")


@pytest.fixture(scope="module")
def report(store: Path, results: PresetResults) -> Path:
    """The study alone, without the rest of the report."""
    assert write_study(results, store.parent / "report")
    return store.parent / "report"


def judged(results: PresetResults) -> pandas.DataFrame:
    return pandas.concat([study.judge(results) for study in all_studies()], ignore_index=True)


def test_the_page_has_every_claim_and_stands_alone(results: PresetResults, report: Path) -> None:
    markdown, html = ((report / name).read_text(encoding="utf-8") for name in ("study.md", "study.html"))
    found, page = judged(results), Page(html)
    (counts,) = tables_below(markdown, "# The study")
    numbers = {name: list(map(int, cells)) for name, cells in counts.items() if "(" in name}
    assert sum(map(sum, numbers.values())) == len(found) > 80
    beyond = {name: of for name, of in numbers.items() if name.endswith(", beyond the paper")}
    assert sum(map(sum, beyond.values())) == (found.kind == "beyond the paper").sum() > 2
    assert not any(of[-1] for of in beyond.values())  # theorems are the papers' own
    assert markdown.count("*Beyond the paper.* ") == sum(map(sum, beyond.values()))
    assert {"shown", "theorem"} < set(found.status)
    assert "://" not in html
    assert "<script" not in html
    assert {reference for reference in page.references if reference[0] != "#" and reference[:5] != "data:"} == {
        "index.html"
    }
    assert "Beware." in html
    assert all(figure["role"] == "img" and figure["aria-label"] for figure in page.figures)
    figures = re.findall(r"\]\((study/[^)]+\.svg)\)", markdown)
    assert sorted(figures) == sorted(path.relative_to(report).as_posix() for path in (report / "study").iterdir())
    assert len(page.figures) == len(figures) > 10
    assert not re.search(r"\bnan\b|#010203", html)


def test_labels_decide_nothing(store: Path, results: PresetResults, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every label reworded, verdicts and numbers are the same."""
    monkeypatch.setattr(preset_results, "Samples", lambda runs: results.tables[0].samples)  # computed once
    record = PresetRecord.read(store, "sample")
    reworded = tuple(
        replace(table, title="T", note="N", rows=tuple(replace(row, label=f"@{n}") for n, row in enumerate(table.rows)))
        for table in record.tables
    )
    replace(record, tables=reworded).write(store)
    other = PresetResults.read(store, "sample")
    record.write(store)
    assert list(judged(other).status) == list(judged(results).status)
    before, after = (scores_as_data(of).to_pandas().drop(columns="label") for of in (results, other))
    pandas.testing.assert_frame_equal(before, after)

"""The written study: the page has every claim and stands alone."""

import re
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from studies.gradient_paradigm.simulation_outcomes import read_simulations
from studies.report.preset_results import PresetResults
from studies.report.report import _warnings, write_report
from studies.report.study_page import write_study
from studies.sparse_cse.claims import CLAIMS as PRUNED
from studies.study import all_studies
from tests.studies.gradient_paradigm.published import as_published, falls_as_published, probed_as_published
from tests.studies.report.test_report import Page
from tests.studies.synthetic import SEEDS, SIMULATION, TABLES, write_store

STUDIED = [key for key, table in TABLES.items() if table.columns in ((), ("similarity",))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    return write_store(folder, STUDIED, as_published, falls_as_published, probed_as_published, SEEDS)


@pytest.fixture(scope="module")
def report(store: Path) -> Path:
    """The study alone, without the rest of the report."""
    assert write_study(PresetResults.read(store, "sample"), ["Beware."], store.parent / "report")
    return store.parent / "report"


def test_the_page_has_every_claim_and_stands_alone(store: Path, report: Path) -> None:
    html = (report / "study.html").read_text(encoding="utf-8")
    page = Page(html)
    results = PresetResults.read(store, "sample")
    claims = sum(len(study.judge(results)) for study in all_studies())
    assert html.count('<p class="verdict">') == claims > 40
    counts = {cells[0]: [int(count) for count in cells[1:]] for cells in page.rows if cells[1:2] and cells[1].isdigit()}
    assert sum(map(sum, counts.values())) == claims
    beyond = [name for name in counts if name.endswith(", beyond the paper")]
    assert len(beyond) == 3
    assert {one.kind for one in PRUNED if "Encoder trained here" in one.criterion} == {"claim"}
    assert {one.kind for one in PRUNED if "Start weights" in one.criterion} == {"beyond the paper"}
    assert html.count("<b>Beyond the paper.</b>") == sum(sum(counts[name]) for name in beyond) > 5
    assert not any(counts[name][-1] for name in beyond)  # theorems are the papers' own
    assert "://" not in html
    assert "<script" not in html
    assert len(page.ids) == len(set(page.ids))
    for reference in page.references:
        inside = reference.startswith("data:image/png;base64,") or reference[1:] in page.ids
        assert inside or reference.partition("#")[0] == "index.html"
    assert "Beware." in html
    assert all(figure["role"] == "img" and len(str(figure["aria-label"])) > 50 for figure in page.figures)
    assert page.titles == len(page.figures) > 20
    assert not re.search(r"\bnan\b|#010203", html)


def test_tables_with_different_seeds_are_no_rows_with_fewer_seeds(tmp_path: Path) -> None:
    runs = write_store(tmp_path, ["objectives", "decoupled"], seeds={"objectives": 2, "decoupled": 3})
    assert not any("fewer seeds" in warning for warning in _warnings(PresetResults.read(runs, "sample"), ()))


def test_markdown_names_the_figures_that_lie_beside_it(report: Path) -> None:
    markdown = (report / "study.md").read_text(encoding="utf-8")
    figures = re.findall(r"\]\((study/[^)]+\.svg)\)", markdown)
    assert sorted(figures) == sorted(path.relative_to(report).as_posix() for path in (report / "study").iterdir())
    drawn = re.findall(r"!\[(.+)\]\((study/[^)]+)\)\n\n(.+)", markdown)
    assert [(caption, name) for caption, name, _ in drawn] == [(below, name) for _, name, below in drawn]
    assert len(drawn) == len(figures)
    for caption, name, _ in drawn:
        assert f"<desc>{escape(caption)}</desc>" in (report / name).read_text(encoding="utf-8")


def test_counter_examples_are_of_the_case_that_held_least_often(store: Path, report: Path) -> None:
    _, estimates = read_simulations(store / PresetResults.read(store, "sample").last_stage("simulations").artefact)
    page = Page((report / "study.html").read_text(encoding="utf-8"))
    rows = {cells[0]: cells for cells in page.rows if len(cells) == 6 and not cells[1].isdigit()}
    failing = {e.statement for e in estimates if e.counter_examples}
    assert rows.keys() - {"Statement", "Claims of"} == failing
    assert len(failing) > 3
    for statement in failing:
        lowest = min(e.rate for e in estimates if e.statement == statement and e.counter_examples)
        _, case, pairs, dim, rate, found = rows[statement]
        where = (statement, case, int(pairs), int(dim))
        [estimate] = [e for e in estimates if (e.statement, e.case, e.pairs, e.dim) == where]
        assert estimate.rate == lowest
        assert rate.startswith(f"{lowest:.1%}")
        assert int(found.split(":")[0].removeprefix("number ")) == estimate.counter_examples[0]["trial"]
    markdown = (report / "study.md").read_text(encoding="utf-8")
    assert all(f"| {statement} |" in markdown for statement in failing)
    assert f"with seed {SIMULATION.seed}." in markdown


def test_without_anything_to_study_there_is_no_page(tmp_path: Path) -> None:
    page = write_report(write_store(tmp_path / "runs", []), "sample", tmp_path / "report")
    assert "study.html" not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "report" / "study.html").exists()


@pytest.mark.parametrize("key", ["objectives", "gradient", "decoupled", "components"])
def test_a_record_without_some_rows_has_its_study(key: str, store: Path, tmp_path: Path) -> None:
    results = PresetResults.read(store, "sample")
    found = results.finished_tables[key]
    less = replace(found, table=replace(found.table, rows=found.table.rows[:1], reference=None))
    alone = replace(results, tables=(less,), record=replace(results.record, runs=()))
    assert write_study(alone, [], tmp_path) == (key in ("gradient", "decoupled"))  # whose rows have curves


def test_the_study_is_written_without_torch_and_with_the_same_bytes_from_the_same_store(tmp_path: Path) -> None:
    store = write_store(tmp_path / "runs", ["simulations"])
    write_report(store, "sample", tmp_path / "here")
    program = (
        "import sys; from pathlib import Path; from studies.report.report import write_report; "
        f"write_report(Path({str(store)!r}), 'sample', Path({str(tmp_path / 'there')!r})); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]
    for name in ("study.html", "study.md", "index.html"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert 'href="study.html"' in (tmp_path / "here" / "index.html").read_text(encoding="utf-8")
    assert "(study.md)" in (tmp_path / "here" / "report.md").read_text(encoding="utf-8")
    html = (tmp_path / "here" / "study.html").read_text(encoding="utf-8")
    assert html.count('<li class="not-tested-here">') >= 20  # nothing was trained

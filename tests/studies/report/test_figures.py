"""Figures have all marks where the numbers are; the written study has every claim and figure, and stands alone."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure

from multitask.experiments import compare_rows as preset_results
from multitask.experiments import figures
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.figures import Interval, Picture, intervals, over_seeds, standalone, sweeps, table_picture
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.report_page import Section, conflicts, learning_curves
from multitask.experiments.results_file import Column, Description, TableScores, frame_of, scores_as_data
from multitask.experiments.table_definitions import PresetRecord, Row
from studies.report.study_page import write_study
from studies.study import all_studies
from tests.studies.gradient_paradigm.published import as_published, falls_as_published, probed_as_published
from tests.studies.report.test_report import Page, tables_below
from tests.studies.synthetic import SEEDS, write_store


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures that are rendered in a test."""
    found: list[Figure] = []
    render = figures.render

    def kept(draw: Callable[[Figure], None], *how: Any) -> Any:
        return render(lambda figure: (found.append(figure), draw(figure))[1], *how)

    monkeypatch.setattr(figures, "render", kept)
    return found


def test_seeds_that_end_early_shorten_the_mean():
    (point,) = over_seeds([[(1, 0.1), (2, 0.3)], [(1, 0.3)]])
    assert point == pytest.approx((1, 0.2, 0.2 - np.sqrt(0.02), 0.2 + np.sqrt(0.02)))


def test_a_picture_of_its_own_file_has_size_colour_text_and_caption():
    svg = intervals({"A & B": {"row": Interval(0.5, 0.4, 0.6)}}, "Title <&>")
    assert 'aria-label="Title &lt;&amp;&gt;"' in svg
    assert "<title>Title &lt;&amp;&gt;</title>" in svg
    assert "#010203" not in svg
    assert "currentColor" in svg
    file = standalone(Picture(svg, "Title <&>"))
    assert re.match(r'<svg xmlns="[^>]* width="\d+(\.\d+)?pt" height=', file)


def table(points: Mapping[str, Mapping[str, Any]], means: Mapping[str, float], columns: int = 1) -> TableScores:
    """Rows with two seeds at 0.01 around their means, the first the reference, and a row that only a paper has."""
    about = [Column(f"c{place}", "accuracy", f"C{place}", place != 5) for place in range(columns)]
    found: list[dict[str, Any]] = []
    for row, mean in means.items():
        usual = {"preset": "small", "start": "w", "data": "d", "table": "t", "row": row, "metric": "accuracy"}
        usual |= {"label": row, "point": json.dumps(points.get(row, {}))}
        of = {"low": mean - 0.1, "high": mean + 0.1, "published": mean - 0.2}
        for column in about:
            found += [
                {**usual, **of, "task": column.task, "seed": seed, "value": mean + d}
                for seed, d in enumerate((-0.01, 0.01))
            ]
    found += [{**usual, "row": "paper", "label": "paper", "point": "{}", "task": "c0", "published": 0.2}]
    return TableScores(Description("t", "t", "Title", "", next(iter(means)), tuple(about), "w"), frame_of(found))


def test_marks_stand_where_the_numbers_are(drawn):
    rows = 25
    means = {f"r{number}": 0.4 + 0.01 * number for number in range(rows)}
    table_picture(table({}, means))
    (figure,) = drawn
    (axes,) = figure.axes
    marks = [(line.get_marker(), line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata())]
    at = {marker: {float(y[0]): x[0] for m, x, y in marks if m == marker} for marker in "oD"}
    assert at["o"] == pytest.approx({**dict(enumerate(means.values())), rows: np.nan}, nan_ok=True)
    assert at["D"] == pytest.approx({**{n: mean - 0.2 for n, mean in enumerate(means.values())}, rows: 0.2})
    assert [tuple(x) for m, x, _ in marks if m == "."] == [pytest.approx((m - 0.01, m + 0.01)) for m in means.values()]
    shown = [tuple(x) for m, x, y in marks if m == "None" and y[0] == y[1] and len(set(x)) == 2]
    assert shown[:rows] == [pytest.approx((mean - 0.1, mean + 0.1)) for mean in means.values()]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["r0 (reference)", *list(means)[1:], "paper"]
    assert axes.yaxis_inverted()
    height = figure.get_figheight() * axes.get_position().height / (rows + 1)
    assert 0.25 < height < 0.35  # inches of a row, however many there are
    told = {text.get_text() for text in figure.legends[0].get_texts()}
    assert told == {"mean and 95% interval", "each seed", "published"}


def test_a_sweep_has_a_line_for_each_loss(drawn):
    points = {f"{loss}{size}": {"loss": loss, "size": size} for loss in ("plain", "other") for size in (1024, 16, 64)}
    assert list(sweeps(table(points, {key: 0.1 * place for place, key in enumerate(points)}))) == ["size"]
    (figure,) = drawn
    assert figure.get_supxlabel() == "size (95% intervals)"
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "64", "1024"]
    found = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert found == {"plain": pytest.approx([0.1, 0.2, 0.0]), "other": pytest.approx([0.4, 0.5, 0.3])}


@pytest.mark.parametrize(("count", "shown"), [(1, True), (7, True), (8, False)])
def test_a_sweep_has_as_many_lines_as_there_are_colours_at_most(drawn, count, shown):
    points = {f"{loss} {size}": {"loss": f"L{loss}", "size": size} for loss in range(count) for size in (1, 2, 3)}
    assert list(sweeps(table(points, dict.fromkeys(points, 0.5)))) == ["size"] * shown
    assert [len(figure.axes[0].lines) for figure in drawn] == [count] * shown


def watched(name: str, history: list[dict[str, float]]) -> RunResult:
    """A run whose evaluations saw these means in training."""
    lines = tuple({"step": step, "numbers": {"training": line}} for step, line in enumerate(history))
    return RunResult("t", "r", 0, name, name, history=lines)


def section(*tables: dict[str, tuple[RunResult, ...]]) -> Section | None:
    made = [[(Row(label, label), runs) for label, runs in rows.items()] for rows in tables]
    return conflicts(SimpleNamespace(tables=[SimpleNamespace(rows=rows) for rows in made]))  # type: ignore[arg-type]


def test_a_panel_for_each_row_whose_conflicts_were_watched(drawn):
    first = watched("0", [{"a": 1.0, "cosine a/b": 0.1, "cosine a/c": -0.2}, {"a": 1.0, "cosine a/b": 0.3}])
    second = watched("1", [{"cosine a/b": 0.2, "cosine a/c": -0.4}] * 2)
    plain = watched("2", [{"a": 1.0, "a positive cosine": 0.5}])
    assert section({"Average": (first, second), "Plain": (plain,)}, {"Again": (first, second)}) is not None
    (axes,) = drawn[0].axes
    assert axes.get_title() == "Average"
    found = {line.get_label(): list(line.get_ydata()) for line in axes.lines[:2]}
    assert found["a/b"] == pytest.approx([0.15, 0.25])
    assert found["a/c"] == pytest.approx([-0.3, np.nan], nan_ok=True)  # an evaluation without a look is a gap
    assert section({"Plain": (plain,)}, {"Nothing finished": ()}) is None


# The written study: the page has every claim and figure, stands alone, and depends on no label.


STUDIED = ("simulations", "objectives", "gradient")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "runs"
    return write_store(folder, STUDIED, as_published, falls_as_published, probed_as_published, SEEDS)


@pytest.fixture(scope="module")
def results(store) -> PresetResults:
    return PresetResults.read(store, "sample")


@pytest.fixture(scope="module")
def report(store, results) -> Path:
    """The study alone, without the rest of the report."""
    assert write_study(results, store.parent / "report")
    return store.parent / "report"


def judged(results: PresetResults) -> pandas.DataFrame:
    return pandas.concat([study.judge(results) for study in all_studies()], ignore_index=True)


@pytest.mark.slow
def test_the_page_has_every_claim_and_stands_alone(results, report):
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
    assert {reference for reference in page.references if reference[0] != "#" and reference[:5] != "data:"} == {
        "index.html"
    }
    assert "Beware." in html
    figures = re.findall(r"\]\((study/[^)]+\.svg)\)", markdown)
    assert sorted(figures) == sorted(path.relative_to(report).as_posix() for path in (report / "study").iterdir())
    assert len(page.figures) == len(figures) > 10
    assert not re.search(r"\bnan\b|#010203", html)


def test_scores_are_drawn_at_the_steps_of_their_evaluations(results, drawn):
    """Pre-trainings are evaluated several times in an epoch."""
    assert learning_curves(results.finished_tables["objectives"]) is not None
    assert drawn[0].get_supxlabel().startswith("step ")
    assert {tuple(line.get_xdata()) for line in drawn[0].axes[0].lines} == {(8, 16, 24)}


def test_labels_decide_nothing(store, results, monkeypatch):
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

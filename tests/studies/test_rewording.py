"""Nothing depends on the text of a label: with every label reworded, verdicts, figures and pages are the same."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from multitask.evaluation.markup import latex
from studies.engine.record import Record
from studies.engine.table import Row, Table
from studies.report import preset_results
from studies.report.preset_results import PresetResults
from studies.report.report import write_report
from studies.study import all_studies
from tests.studies.gradient_paradigm.published import as_published, falls_as_published, probed_as_published
from tests.studies.sparse_cse.test_claims import as_claimed
from tests.studies.synthetic import SEEDS, TABLES, write_store

pytestmark = pytest.mark.usefixtures("few_resamples")


DRAWING = {
    "studies.report.figures": slice(None),
    "studies.report.forest_plot": slice(1),  # x alone: a row is as high as its label
    "studies.gradient_paradigm.simulation_figures": slice(None),
}
"""Modules that draw, and which axes of their data do not depend on labels."""
LABEL = re.compile(r"@(?:(?:title|note) of )?[\w-]+(?::\d+)?@")
DRAWN = 4
"""Of so many figures of a kind one is drawn."""
WIDTH = re.compile(r"width: [\d.]+in")
"""A forest plot is as wide as its labels need."""


def as_said(key: str, row: Row, task: str) -> float:
    """What the papers say, where they say anything; else rows differ."""
    if key in ("sparsity", "sparsity-own"):
        return as_claimed(key, row, task)
    if key in ("objectives", "objectives-suites", "gradient", "decoupled", "components"):
        return as_published(key, row, task)
    return 0.5 + 0.4 * np.random.default_rng([*f"{key} {row.key} {task}".encode()]).random()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("all") / "runs"
    return write_store(runs, list(TABLES), as_said, falls_as_published, probed_as_published, SEEDS)


def reworded(table: Table) -> tuple[Table, dict[str, str]]:
    """The table with another title, note and labels, and what each of them was."""
    labels = {f"@{table.key}:{place}@": row.label for place, row in enumerate(table.rows)}
    rows = tuple(replace(row, label=label) for row, label in zip(table.rows, labels, strict=True))
    title, note = f"@title of {table.key}@", f"@note of {table.key}@"
    return replace(table, title=title, note=note, rows=rows), {**labels, title: table.title, note: table.note}


def drawn_data(figures: list[list[bytes]], axes_of_data: slice) -> Callable[..., Markup]:
    """In place of `render_panels`: keeps the data of some figures, and returns the description alone."""
    drawn: Counter[str] = Counter()

    def render(draw: Callable[[Figure], None], inches: tuple[float, float], description: str, *_margins: Any) -> Markup:
        figure = Figure(figsize=inches)
        kind = getattr(draw, "__qualname__", str(len(figures)))
        drawn[kind] += 1
        if drawn[kind] % DRAWN == 1:
            draw(figure)
        data = [np.asarray(line.get_xydata())[:, axes_of_data] for axes in figure.axes for line in axes.get_lines()]
        data += [image.get_array() for axes in figure.axes for image in axes.get_images()]
        data += [path.vertices for axes in figure.axes for of in axes.collections for path in of.get_paths()]
        figures.append([np.asarray(values).tobytes() for values in data])
        return Markup("<svg>{}</svg>").format(description)

    return render


def pages(store: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[list[bytes]]]:
    """All pages' texts by file, and the data of all figures."""
    figures: list[list[bytes]] = []
    for module, axes_of_data in DRAWING.items():
        monkeypatch.setattr(f"{module}.render_panels", drawn_data(figures, axes_of_data))
    write_report(store, "sample", output)
    files = [path for path in output.rglob("*") if path.is_file() and path.suffix != ".parquet"]  # has the labels
    texts = {path.relative_to(output).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return {name: WIDTH.sub("", text) for name, text in texts.items()}, figures


def test_reworded_labels_change_nothing_else(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record.read(store, "sample")
    samples = PresetResults.read(store, "sample").tables[0].samples
    monkeypatch.setattr(preset_results, "Samples", lambda runs: samples)  # do not depend on labels: computed once
    statuses = verdicts(store)
    texts, figures = pages(store, tmp_path / "before", monkeypatch)
    made = [reworded(table) for table in record.tables]
    replace(record, tables=tuple(table for table, _ in made)).write(store)
    assert verdicts(store) == statuses
    assert {"reproduced", "theorem"} < set(statuses)
    assert "not tested here" not in statuses
    others, drawn = pages(store, tmp_path / "after", monkeypatch)
    assert drawn == figures
    assert sum(map(bool, figures)) > 50
    assert others.keys() == texts.keys()
    originals = {label: original for _, labels in made for label, original in labels.items()}
    for name, text in others.items():
        assert restored(name, text, originals) == unescape(texts[name]), name


def restored(name: str, text: str, originals: dict[str, str]) -> str:
    """A page with the original labels."""

    def original(found: re.Match[str]) -> str:
        label = originals.get(found[0], found[0])
        return latex(label) if name.endswith(".tex") else label

    return LABEL.sub(original, unescape(text))


def verdicts(store: Path) -> list[str]:
    results = PresetResults.read(store, "sample")
    return [one.verdict.status for study in all_studies() for one in study.judge(results)]

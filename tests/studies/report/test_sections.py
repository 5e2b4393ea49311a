"""The section on conflicts between tasks shows what metrics.jsonl says, and is left out where that says nothing."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from studies.engine.table import Row
from studies.report.run_results import RunResult
from studies.report.sections import Section, conflicts

PAIRS = ("a/b", "a/c", "b/c")


def run(folder: Path, lines: list[dict[str, float]]) -> RunResult:
    """A run whose evaluations saw these means in training."""
    folder.mkdir()
    rest = {"step": 1, "dev": {}, "scores": {}, "tokens": 1, "seconds": 1.0}
    text = "".join(json.dumps({"epoch": k, "training": line, **rest}) + "\n" for k, line in enumerate(lines, start=1))
    if lines:
        (folder / "metrics.jsonl").write_text(text)
    return RunResult(folder, folder, 0, ())


def section(*tables: dict[str, tuple[RunResult, ...]]) -> Section | None:
    made = [[(Row(label, label), runs) for label, runs in rows.items()] for rows in tables]
    return conflicts(SimpleNamespace(tables=[SimpleNamespace(rows=rows) for rows in made]))


def line(a_b: float, a_c: float, b_c: float) -> dict[str, float]:
    return {"a": 1.0, "gradient": 2.0, "cosine a/b": a_b, "cosine a/c": a_c, "cosine b/c": b_c, "norm a": 3.0}


def test_a_panel_for_each_row_that_was_watched(tmp_path):
    first = run(tmp_path / "0", [line(0.1, -0.2, 0.3), line(0.3, -0.4, 0.5)])
    second = run(tmp_path / "1", [line(0.2, -0.2, 0.1), line(0.2, -0.4, 0.1)])
    other = run(tmp_path / "2", [line(0.9, 0.8, 0.7)] * 2)
    plain = run(tmp_path / "3", [{"a": 1.0, "a positive cosine": 0.5}])
    rows = {"Average": (first, second), "Plain": (plain,)}
    found = section(rows, {"PCGrad": (other,), "Again": (first, second)})
    assert [figure.caption for figure in found.figures] == ["● a/b, ■ a/c, ▲ b/c"] * 2
    described = [re.search('role="img" aria-label="([^"]*)"', figure.svg)[1] for figure in found.figures]
    assert described[0].endswith("Average; their means: a/b 0.20, a/c -0.30, b/c 0.25")
    assert described[1].endswith("PCGrad; their means: a/b 0.90, a/c 0.80, b/c 0.70")


def test_epochs_without_a_look_are_gaps(tmp_path):
    found = section({"Average": (run(tmp_path / "0", [line(0.1, 0.2, 0.3), {"a": 1.0}] * 2),)})
    (figure,) = found.figures
    assert "a/b 0.10, a/c 0.20, b/c 0.30" in figure.svg


@pytest.mark.parametrize("lines", [[], [{"a": 1.0, "norm a": 2.0}]], ids=["no history", "one task"])
def test_nothing_where_nothing_was_watched(tmp_path, lines):
    assert section({"Average": (run(tmp_path / "0", lines),)}) is None
    assert section({"Nothing finished": ()}) is None

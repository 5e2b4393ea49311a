"""The report: numbers are those of the runs, the page stands alone and is well formed, and no model is needed."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from minbert.errors import InputError
from multitask.experiments.record import Record, RecordedRow, RecordedRun, RecordedTable
from multitask.reporting.report import write_report
from multitask.reporting.results import mean_and_deviation

MEASURES = {"sentiment": "accuracy", "paraphrase": "accuracy", "similarity": "pearson"}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and collects what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.figures: list[dict[str, str | None]] = []
        self.titles = 0
        self.rows: list[list[str]] = []
        self.bold: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.references += [value for name, value in attrs if name in ("href", "xlink:href", "src") and value]
        self.figures += [values] if tag == "svg" else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] = (self.rows[-1][-1] + " " + data.strip()).strip()
        if self.open and self.open[-1] == "strong":
            self.bold.append(data)
        if self.open[-2:] == ["svg", "title"]:
            self.titles += 1


def add_run(runs: Path, name: str, seed: int, scores: dict[str, float]) -> RecordedRun:
    """Artefacts of one run with two epochs, the second the best."""
    training, evaluation = f"finetune-{name}-{seed}", f"evaluate-{name}-{seed}"
    overall = fmean(scores.values())
    metrics: dict[str, Any] = {task: {MEASURES[task]: score} for task, score in scores.items()}
    if "sentiment" in metrics:
        metrics["sentiment"]["confusion"] = [[3, 1, 0, 0, 0], [0] * 5, [0, 0, 2, 0, 0], [0] * 5, [0, 0, 0, 0, 4]]
    worse = {task: {**values, MEASURES[task]: scores[task] - 0.1} for task, values in metrics.items()}
    history = [
        {"epoch": 1, "tokens": 1000, "seconds": 2.0, "dev": worse, "scores": {"overall": overall - 0.1}},
        {"epoch": 2, "tokens": 2000, "seconds": 4.0, "dev": metrics, "scores": {"overall": overall}},
    ]
    files = {
        f"{training}/config.json": json.dumps({"seed": seed, "note": "<script>&"}),
        f"{training}/inputs.json": json.dumps(
            {
                "start": {"sha256": "ab" * 32},
                "pooling": "mean",
                "training": {"sentiment": "cd" * 32},
                "dev": {"sentiment": "ef" * 32},
                "device": "cpu",
                "precision": "fp32",
                "labels": {"start": "some-weights", "data": "data"},
            }
        ),
        f"{training}/metrics.jsonl": "".join(json.dumps(line) + "\n" for line in history),
        f"{evaluation}/evaluation.json": json.dumps(
            {
                "overall": overall,
                "scores": scores,
                "measures": {task: MEASURES[task] for task in scores},
                "metrics": metrics,
            }
        ),
    }
    for path, text in files.items():
        (runs / path).parent.mkdir(parents=True, exist_ok=True)
        (runs / path).write_text(text)
    labels = np.linspace(0, 5, 7, dtype=np.float32)
    np.savez(runs / evaluation / "predictions.npz", similarity_labels=labels, similarity_predictions=labels[::-1])
    return RecordedRun(seed, training, evaluation)


def all_three(sentiment: float, paraphrase: float, similarity: float) -> dict[str, float]:
    return {"sentiment": sentiment, "paraphrase": paraphrase, "similarity": similarity}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    good = tuple(add_run(runs, "good", seed, all_three(0.5 + seed / 10, 0.7, 0.81)) for seed in (0, 1))
    other = tuple(add_run(runs, "other", seed, all_three(0.4, 0.75, 0.8)) for seed in (0, 1))
    alone = (add_run(runs, "alone", 0, {"sentiment": 0.61}), RecordedRun(1, error="it died <b>here</b> & there"))
    table = RecordedTable(
        "Heads <&>", "A note.", (RecordedRow("Good", good), RecordedRow("Other", other), RecordedRow("Alone", alone))
    )
    one_column = RecordedTable("One", "", (RecordedRow("Sentiment", alone),))
    failed = RecordedTable("Nothing", "", (RecordedRow("Failed", alone[1:]),))
    Record("sample", "some-weights", "data", ("Beware.",), (table, one_column, failed)).write(runs)
    return runs


def render(store: Path) -> tuple[str, str]:
    page = write_report(store, "sample", store.parent / "report")
    return page.read_text(encoding="utf-8"), page.with_name("report.md").read_text(encoding="utf-8")


def test_tables_hold_the_means_and_deviations_of_the_runs(store: Path) -> None:
    html, markdown = render(store)
    page = Page(html)
    histories = [
        [json.loads(line) for line in (store / f"finetune-good-{seed}" / "metrics.jsonl").read_text().splitlines()][-1]
        for seed in (0, 1)
    ]
    overall = [line["scores"]["overall"] for line in histories]
    sentiment = [line["dev"]["sentiment"]["accuracy"] for line in histories]
    cells = [f"{fmean(s):.3f} ± {stdev(s):.3f}" for s in (overall, sentiment)] + ["0.700 ± 0.000", "0.810 ± 0.000"]
    assert page.rows[0] == [
        "Row",
        "Overall",
        "Sentiment accuracy",
        "Paraphrase accuracy",
        "Similarity Pearson correlation",
    ]
    assert page.rows[1][1:] == cells
    assert page.rows[3] == ["▲ Alone", "–", "0.610", "–", "–"]
    assert page.bold == [
        cells[0],
        cells[3],
        "0.750 ± 0.000",
        "0.610",
    ]  # each column's best, unless there is only one row
    assert f"| Good | **{cells[0]}** | {cells[1]} | {cells[2]} | **{cells[3]}** |" in markdown


def test_page_is_well_formed_and_stands_alone(store: Path) -> None:
    html, _ = render(store)
    page = Page(html)
    assert "://" not in html
    assert "<script" not in html
    assert len(page.ids) == len(set(page.ids))
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(page.ids)


def test_every_figure_has_alternative_text_and_takes_the_pages_colour(store: Path) -> None:
    html, _ = render(store)
    page = Page(html)
    assert len(page.figures) == 4 + 1 + 2  # learning curves of two tables, confusion matrix, scatter
    assert all(figure["role"] == "img" and figure["aria-label"] and figure["viewbox"] for figure in page.figures)
    assert page.titles == len(page.figures)
    assert "currentColor" in html
    assert "#010203" not in html
    assert "9 of 10 dev sentences" in html


def test_text_from_outside_is_escaped_and_failures_and_notes_are_shown(store: Path) -> None:
    html, markdown = render(store)
    assert "it died &lt;b&gt;here&lt;/b&gt; &amp; there" in html
    assert "Heads &lt;&amp;&gt;" in html
    assert "Beware." in html
    assert "it died <b>here</b> & there" in markdown
    assert "> Beware." in markdown


def test_same_store_same_bytes(store: Path) -> None:
    assert render(store) == render(store)


def test_rendering_needs_neither_torch_nor_models(store: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from multitask.cli import main; "
        f"code = main(['report', 'sample', '--runs', {str(store)!r}, '--report', {str(store / 'report')!r}]); "
        "print(code, sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_preset_never_run_or_a_damaged_record_is_one_clear_error(store: Path) -> None:
    with pytest.raises(InputError, match="multitask experiments paper"):
        write_report(store, "paper", store / "report")
    Record.path(store, "paper").write_text('{"preset": "paper"}')
    with pytest.raises(InputError, match="not a record"):
        write_report(store, "paper", store / "report")


@pytest.mark.parametrize(
    ("scores", "text"), [([], "–"), ([0.5], "0.500"), ([0.5, 0.7], "0.600 ± 0.141"), ([1, 1, 1], "1.000 ± 0.000")]
)
def test_mean_and_deviation(scores: list[float], text: str) -> None:
    assert mean_and_deviation(scores) == text

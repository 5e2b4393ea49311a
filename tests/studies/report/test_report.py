"""The report: numbers are those of the runs, the page stands alone and is well formed, and no model is needed."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from minbert.errors import InputError
from multitask.evaluation import markup
from multitask.runs.artefact import FORMAT_VERSION, Artefact
from multitask.runs.records import read_sealed, write_sealed
from multitask.tasks.metrics import classification_metrics, correlation_metrics
from studies import Results
from studies.engine.record import SCHEMA, Record, RecordedRun, RecordedStage, duration
from studies.engine.table import OVERALL, Row, Table
from studies.report import format as formats
from studies.report.comparisons import Agreement
from studies.report.cost import cost_of
from studies.report.preset_results import PresetResults
from studies.report.report import write_report
from studies.report.table_results import Estimate, TableResults
from studies.results import Spent

TASKS = ("sentiment", "paraphrase", "similarity")
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


EXAMPLES = 60
LABELS = {
    "sentiment": np.arange(EXAMPLES) % 5,
    "paraphrase": np.arange(EXAMPLES) % 2,
    "similarity": np.linspace(0, 5, EXAMPLES, dtype=np.float32),
}


def metrics_of(task: str, predictions: np.ndarray) -> dict[str, Any]:
    if task == "similarity":
        return correlation_metrics(predictions, LABELS[task])
    return classification_metrics(predictions, LABELS[task], 5 if task == "sentiment" else 2)


def predict(task: str, quality: float, generator: np.random.Generator) -> np.ndarray:
    """Predictions of which about this share is right, or that correlate with the labels about so much."""
    labels = LABELS[task]
    if task == "similarity":
        noise = generator.normal(size=EXAMPLES) * labels.std()
        return (quality * labels + np.sqrt(1 - quality**2) * noise).astype(np.float32)
    return np.where(generator.random(EXAMPLES) < quality, labels, (labels + 1) % (labels.max() + 1))


def add_run(runs: Path, name: str, seed: int, qualities: dict[str, float], parent: str | None = None) -> RecordedRun:
    """Artefacts of one run with two epochs, the second the best, and of what it started from."""
    training, evaluation = f"finetune-{name}-{seed}", f"evaluate-{name}-{seed}"
    generator = np.random.default_rng([seed, *name.encode()])
    predictions = {task: predict(task, quality, generator) for task, quality in qualities.items()}
    metrics = {task: metrics_of(task, values) for task, values in predictions.items()}
    scores = {task: metrics[task][MEASURES[task]] for task in metrics}
    overall = fmean(scores.values())
    worse = {task: {**values, MEASURES[task]: scores[task] - 0.1} for task, values in metrics.items()}
    losses = {"training": {"sentiment": 1.0}}
    history = [
        {
            "step": 1,
            "epoch": 1,
            **losses,
            "tokens": 1000,
            "seconds": 2.0,
            "dev": worse,
            "scores": {"overall": overall - 0.1},
        },
        {
            "step": 2,
            "epoch": 2,
            **losses,
            "tokens": 2000,
            "seconds": 4.0,
            "dev": metrics,
            "scores": {"overall": overall},
        },
    ]
    inputs = {
        "start": {"sha256": "ab" * 32},
        "pooling": "mean",
        "training": {"sentiment": "cd" * 32},
        "dev": {"sentiment": "ef" * 32},
        "device": "cpu",
        "precision": "fp32",
        "labels": {"start": "some-weights", "data": "data"},
        "machine": "A processor",
    }
    stages = [*([f"pretrain-{parent}-{seed}"] if parent else []), training]
    for stage in stages:
        (runs / stage).mkdir(parents=True, exist_ok=True)
        (runs / stage / "config.json").write_text(json.dumps({"seed": seed, "note": "<script>&", "train_limit": 1234}))
        (runs / stage / "inputs.json").write_text(json.dumps(inputs))
        (runs / stage / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (runs / evaluation).mkdir()
    (runs / evaluation / "config.json").write_text(json.dumps({"split": "dev"}))
    (runs / evaluation / "inputs.json").write_text("{}")
    (runs / evaluation / "evaluation.json").write_text(
        json.dumps(
            {
                "overall": overall,
                "scores": scores,
                "measures": {task: MEASURES[task] for task in scores},
                "metrics": metrics,
            }
        )
    )
    arrays = {f"{task}_labels": LABELS[task].astype(np.float32) for task in scores}
    np.savez(
        runs / evaluation / "predictions.npz",
        **arrays,
        **{f"{task}_predictions": values for task, values in predictions.items()},
    )
    chain = tuple(RecordedStage(stage.split("-")[0], stage, 10.0) for stage in stages)
    return RecordedRun("", "", seed, training, evaluation, chain=(*chain, RecordedStage("evaluate", evaluation, 1.0)))


Runs = dict[str, Sequence[RecordedRun]]  # by the row's key


def write_record(folder: Path, tables: Sequence[tuple[Table, Runs]], notes: tuple[str, ...] = ()) -> None:
    """A preset's record; runs are given the keys of the table and the row under which they stand here."""
    runs = [replace(run, table=t.key, row=row) for t, rows in tables for row, found in rows.items() for run in found]
    Record("sample", "some-weights", "data", notes, tuple(table for table, _ in tables), tuple(runs)).write(folder)
    finish(folder)


def finish(folder: Path) -> None:
    """Vouch for the files of all runs as they are now."""
    for path in folder.glob("*/config.json"):
        Artefact(path.parent).finish()


def published(*scores: float | None) -> dict[str, float]:
    return {column: score for column, score in zip((OVERALL, *TASKS), scores, strict=True) if score is not None}


def all_three(sentiment: float, paraphrase: float, similarity: float) -> dict[str, float]:
    return {"sentiment": sentiment, "paraphrase": paraphrase, "similarity": similarity}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes, and its report beside it.

    Three tables and a figure: rows that share a stage, a row of one task, failed runs, a row only published.
    """
    runs = tmp_path_factory.mktemp("reported") / "runs"
    good = tuple(add_run(runs, "good", seed, all_three(0.8, 0.7, 0.95), "shared") for seed in (0, 1))
    other = tuple(add_run(runs, "other", seed, all_three(0.2, 0.7, 0.9), "shared") for seed in (0, 1))
    alone = (
        add_run(runs, "alone", 0, {"sentiment": 0.6}),
        RecordedRun("", "", 1, error="it died <b>here</b> & there", log="logs/x.log"),
    )
    table = Table(
        "3",
        "Heads <&> 100%",
        "A note.",
        (
            Row("good", "Good", published=published(0.6, 0.5, 0.7, 0.6)),
            Row("other", "Other_1", published=published(0.5, 0.5, 0.8, 0.2)),
            Row("alone", "Alone", published=published(None, 0.4, None, None)),
            Row("test", "Test | only", published=published(0.7, 0.7, 0.7, 0.7)),
        ),
        reference="other",
    )
    one_column = Table("one", "One", "", (Row("sentiment", "Sentiment"),), columns=("sentiment",))
    failed = Table("failed", "Nothing", "", (Row("failed", "Failed"),))
    figure = Table("figure2", "Curves", "", (Row("good", "Good"),), kind="curves")
    tables: list[tuple[Table, Runs]] = [
        (table, {"good": good, "other": other, "alone": alone}),
        (one_column, {"sentiment": alone}),
        (failed, {"failed": alone[1:]}),
        (figure, {"good": good}),
    ]
    write_record(runs, tables, ("Beware.",))
    render(runs)
    return runs


@pytest.fixture
def store(reported: Path, tmp_path: Path) -> Path:
    """A store that a test may change."""
    return Path(shutil.copytree(reported, tmp_path / "runs"))


def read_scores(store: Path, name: str, column: str) -> list[float]:
    found = []
    for seed in (0, 1):
        evaluation = json.loads((store / f"evaluate-{name}-{seed}" / "evaluation.json").read_text())
        found.append(evaluation["overall"] if column == "overall" else evaluation["scores"][column])
    return found


def render(store: Path) -> tuple[str, str]:
    write_report(store, "sample", store.parent / "report")
    return pages(store)


def pages(store: Path) -> tuple[str, str]:
    """A report in HTML and in Markdown."""
    report = store.parent / "report"
    return (report / "index.html").read_text(encoding="utf-8"), (report / "report.md").read_text(encoding="utf-8")


def test_tables_hold_the_means_and_deviations_of_the_runs_beside_the_published_scores(reported: Path) -> None:
    html, markdown = pages(reported)
    page = Page(html)
    [row] = [cells for cells in page.rows if cells[0] == "● Good"]
    for place, (column, published) in enumerate(
        zip(("overall", *TASKS), ("0.600", "0.500", "0.700", "0.600"), strict=True)
    ):
        scores = read_scores(reported, "good", column)
        cell = f"{fmean(scores):.3f} ± {stdev(scores):.3f}"
        assert row[1 + 2 * place].startswith(cell)
        assert row[2 + 2 * place] == published
        assert (cell in page.bold) == (fmean(scores) >= fmean(read_scores(reported, "other", column)))
        assert cell in markdown
    [alone] = [cells for cells in page.rows if cells[0] == "▲ Alone"]
    assert alone[1:3] == ["–", "–"]
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", alone[3])  # one seed: no deviation, yet an interval
    [test] = [cells for cells in page.rows if cells[0] == "◆ Test | only"]
    assert test[1:] == ["–", "0.700"] * 4
    assert "Test \\| only" in markdown


def test_the_file_of_curves_has_every_number_that_trainings_wrote(reported: Path) -> None:
    found = parquet.read_table(reported.parent / "report" / "curves.parquet").to_pylist()
    assert {line["table"] for line in found} == {"3", "one", "figure2"}
    results = PresetResults.read(reported, "sample").tables[0]
    [run] = [run for run in results.runs["good"] if run.seed == 1]
    of_run = [line for line in found if (line["table"], line["row"], line["seed"]) == ("3", "good", 1)]
    values = {(line["step"], line["source"], line["measure"]): line["value"] for line in of_run}
    written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    expected = {
        (line["step"], source, measure): value
        for line in written
        for source, measures in (("training", line["training"]), *line["dev"].items())
        for measure, value in measures.items()
        if not isinstance(value, list)
    }
    assert values == expected
    assert {line["label"] for line in of_run} == {results.table.label("good")}


def test_the_file_of_results_has_the_scores_of_the_runs_and_what_the_report_says_of_them(reported: Path) -> None:
    results = Results.load(reported.parent / "report" / "results.parquet")
    assert [table.description.table for table in results.tables] == ["3", "one", "figure2"]  # nothing of "failed"
    lines = list(results.table("3").lines())
    for column, place in zip((OVERALL, *TASKS), (0.6, 0.5, 0.7, 0.6), strict=True):
        found = [line for line in lines if (line.row, line.task) == ("good", column)]
        assert [line.seed for line in found] == [0, 1]
        assert [line.value for line in found] == pytest.approx(read_scores(reported, "good", column))
        assert {line.published for line in found} == {place}
        assert {line.metric for line in found} == {MEASURES.get(column, "mean")}
    table = PresetResults.read(reported, "sample").tables[0]
    line = next(line for line in lines if (line.row, line.task) == ("good", "sentiment"))
    estimate, test = table.estimates["good", "sentiment"], table.against_reference["good", "sentiment"]
    assert (line.low, line.high, line.difference, line.p) == (estimate.low, estimate.high, test.difference, test.p)
    assert (line.preset, line.start, line.data, line.study) == ("sample", "some-weights", "data", "multitask_report")
    published_only = [line for line in lines if line.row == "test"]
    assert [(line.seed, line.value, line.published) for line in published_only] == [(None, None, 0.7)] * 4
    assert {(line.row, line.seed) for line in lines} == {
        *(("good", 0), ("good", 1), ("other", 0), ("other", 1), ("alone", 0), ("alone", None), ("test", None))
    }
    spent = results.table("3").description.spent  # the pre-trainings that two rows share count once
    assert spent == Spent(12, 75.0, ("A processor",))
    columns = results.table("3").description.columns
    assert [column.alike for column in columns] == [table.alike[column] for column in (OVERALL, *TASKS)]
    column = columns[1]
    counts = table.agreement("sentiment")
    assert (column.orderings, column.agree, column.significant, column.contrary) == (
        *(counts.total, counts.agree, counts.significant, counts.contrary),
    )


def test_each_table_begins_with_its_picture_and_what_it_means(reported: Path) -> None:
    html, markdown = pages(reported)
    for name in ("table-3", "one"):
        assert (reported.parent / "report" / "figures" / f"{name}.svg").read_text().startswith("<svg xmlns=")
        assert f"](figures/{name}.svg)" in markdown
    drawn = sorted(path.name for path in (reported.parent / "report" / "figures").iterdir())
    assert drawn == ["figure2-curves.svg", "one.svg", "table-3.svg"]
    assert "on the dev set after every epoch; after the last: " in markdown.split("](figures/figure2-curves.svg)")[0]
    for text in (html, re.sub(r"\\(.)", r"\1", markdown)):
        assert text.count("What this means.") == 2
        assert text.count("The first stage starts from some-weights.") == 2
        assert re.search(r"With 1 to 2 seeds, .*significantly.* “Other_1” in Overall", text)


def test_differences_to_the_reference_say_where_they_are_significant(reported: Path) -> None:
    html, markdown = pages(reported)
    [row] = [cells for cells in Page(html).rows if cells[0] == "Good" and "[" in cells[1]]
    gap = fmean(read_scores(reported, "good", "sentiment")) - fmean(read_scores(reported, "other", "sentiment"))
    assert row[2].startswith(f"+{gap:.3f}")
    assert re.search(r"p [=<] 0\.0", row[2])  # 0.8 against 0.2
    assert "no significant difference" in row[3]  # 0.7 against 0.7
    assert "no significant difference" in markdown
    assert "differences to the reference row are significant from: Overall 0." in html
    assert "differences to the reference row are significant from: Overall 0." in re.sub(r"\\(.)", r"\1", markdown)


def test_an_encoder_from_random_weights_has_no_fingerprint_of_any(store: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(store, tmp_path / "copy")
    changed = runs / "finetune-good-0" / "inputs.json"
    inputs = json.loads(changed.read_text())
    labels = {**inputs["labels"], "start": "random, with a tokenizer learned here"}
    changed.write_text(json.dumps({**inputs, "start": {"config": {"hidden_size": 8}}, "labels": labels}))
    finish(runs)
    html = write_report(runs, "sample", tmp_path / "report").read_text(encoding="utf-8")
    assert html.count("<dd>random, with a tokenizer learned here,\nmean pooling</dd>") == 1
    assert f"sha256 <code>{'ab' * 32}</code>" in html


def test_orderings_count_pairs_that_the_published_scores_tell_apart(reported: Path) -> None:
    results = PresetResults.read(reported, "sample").tables[0]
    ours = {key: dict.fromkeys(TASKS) for key in ("good", "other", "alone")}
    for key in ("good", "other"):
        ours[key] = {column: fmean(read_scores(reported, key, column)) for column in ("overall", *TASKS)}
    evaluation = json.loads((reported / "evaluate-alone-0" / "evaluation.json").read_text())
    ours["alone"]["sentiment"] = evaluation["scores"]["sentiment"]
    published = {row.key: row.published for row in results.table.rows}
    for column in ("overall", *TASKS):
        agree = total = 0
        for first, second in combinations(ours, 2):
            theirs = published[first].get(column), published[second].get(column)
            mine = ours[first].get(column), ours[second].get(column)
            if None in (*theirs, *mine) or theirs[0] == theirs[1]:
                continue
            total += 1
            agree += (theirs[0] > theirs[1]) == (mine[0] > mine[1]) and mine[0] != mine[1]
        assert (results.agreement(column).agree, results.agreement(column).total) == (agree, total)
    assert results.agreement("sentiment").total == 2  # Good and Other_1 are published as equal
    sentiment = [ordering for ordering in results.orderings if ordering.column == "sentiment"]
    assert [(ordering.better, ordering.worse) for ordering in sentiment] == [("good", "alone"), ("other", "alone")]
    assert [ordering.agrees for ordering in sentiment] == [True, False]
    assert results.agreement("sentiment") == Agreement.of(sentiment)


def test_rows_of_different_dev_sets_are_not_compared(store: Path) -> None:
    for seed in (0, 1):
        path = store / f"evaluate-good-{seed}" / "predictions.npz"
        with np.load(path) as arrays:
            changed = {**arrays, "sentiment_labels": 1 - arrays["sentiment_labels"]}
        np.savez(path, **changed)
    finish(store)
    results = PresetResults.read(store, "sample").tables[0]
    assert {column for row, column in results.against_reference if row == "good"} == {"paraphrase", "similarity"}


def test_costs_count_shared_stages_once(reported: Path) -> None:
    cost = cost_of(PresetResults.read(reported, "sample"))
    good, other, alone, again = cost.rows
    assert (good.tokens, good.tokens_per_second, good.seconds, good.added) == (8000, 500.0, 42.0, 42.0)
    assert (other.seconds, other.added) == (42.0, 22.0)  # the pre-trainings of both seeds stand above
    assert (alone.seconds, alone.seeds, again.added) == (11.0, 1, 0.0)
    assert cost.spent == 42.0 + 22.0 + 11.0
    assert cost.machines == ("A processor",)  # evaluations here did not note theirs
    assert cost.saved == pytest.approx(1 - cost.spent / (42.0 + 42.0 + 11.0 + 11.0))


def test_page_is_well_formed_and_stands_alone(reported: Path) -> None:
    html, _ = pages(reported)
    page = Page(html)
    assert "://" not in html
    assert "<script" not in html
    assert len(page.ids) == len(set(page.ids))
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert {"#predictions", "#cost"} <= set(page.references)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(page.ids)


def test_every_figure_has_alternative_text_and_takes_the_pages_colour(reported: Path) -> None:
    html, _ = pages(reported)
    page = Page(html)
    assert len(page.figures) == 2 + 4 + 1 + 1 + 3  # pictures and curves of two tables, figure, two matrices, scatter
    assert all(figure["role"] == "img" and figure["aria-label"] and figure["viewbox"] for figure in page.figures)
    assert page.titles == len(page.figures)
    assert "currentColor" in html
    assert "#010203" not in html
    right = max(
        (json.loads(path.read_text())["overall"], path) for path in reported.glob("evaluate-[go]*/evaluation.json")
    )[1]
    counts = json.loads(right.read_text())["metrics"]["sentiment"]["confusion"]
    assert f"{np.trace(counts)} of {EXAMPLES} dev rows" in html


def test_text_from_outside_is_escaped_and_failures_and_warnings_are_shown(reported: Path) -> None:
    html, markdown = pages(reported)
    assert "it died &lt;b&gt;here&lt;/b&gt; &amp; there" in html
    assert "Heads &lt;&amp;&gt;" in html
    assert r"it died \<b\>here\</b\> \& there" in markdown
    assert "logs/x.log" in html
    for text in ("Beware.", "Some rows of a table have fewer seeds", "cut to 1,234 rows"):
        assert text in html
        assert text in markdown


def test_a_single_seed_is_said_to_have_no_spread(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    table = Table("t", "T", "", (Row("one", "One"), Row("two", "Two")), reference="one")
    write_record(runs, [(table, {key: [add_run(runs, key, 0, all_three(0.7, 0.7, 0.7))] for key in ("one", "two")})])
    html, _ = render(runs)
    assert "no spread over seeds" in html
    assert "±" not in "".join(cell for row in Page(html).rows for cell in row)
    assert "no significant difference" in html


def test_an_ensemble_chosen_by_its_dev_scores_says_so(store: Path) -> None:
    assert "makes the scores too high" not in render(store)[0]
    for seed in (0, 1):
        path = store / f"evaluate-good-{seed}" / "evaluation.json"
        evaluation = json.loads(path.read_text())
        members = {name: {"scores": {"sentiment": 0.5}} for name in ("a", "b")}
        path.write_text(json.dumps({**evaluation, "selected_on_dev": True, "members": members}))
        (store / f"finetune-good-{seed}" / "metrics.jsonl").unlink()  # nothing is trained in an ensemble
    finish(store)
    html, markdown = render(store)
    assert "makes the scores too high: Good" in html
    assert "makes the scores too high: Good" in markdown
    results = PresetResults.read(store, "sample").tables[0]
    assert {(ordering.better, ordering.worse) for ordering in results.orderings} == {("other", "alone")}  # not Good
    assert "good" not in {row for row, _ in results.against_reference}


def test_alignment_and_uniformity_are_columns_of_the_rows_that_have_them(store: Path) -> None:
    assert "Uniformity" not in render(store)[0]
    for seed, (near, spread) in enumerate([(0.2, -3.0), (0.4, -2.5)]):
        path = store / f"evaluate-good-{seed}" / "evaluation.json"
        geometry = {"alignment": near, "uniformity": spread}
        path.write_text(json.dumps({**json.loads(path.read_text()), "geometry": geometry}))
    path = store / "evaluate-alone-0" / "evaluation.json"
    geometry = {"alignment": None, "uniformity": -1.0}  # no pair is similar enough
    path.write_text(json.dumps({**json.loads(path.read_text()), "geometry": geometry}))
    finish(store)
    html, markdown = render(store)
    rows = {cells[0]: cells for cells in Page(html).rows if len(cells) == 11}
    assert ["Alignment", "Uniformity"] in [cells[-2:] for cells in Page(html).rows if cells[0] == "Row"]
    assert rows["● Good"][-2:] == ["0.300 ± 0.141", f"{markup.MINUS}2.750 ± 0.354"]
    assert rows["■ Other_1 reference"][-2:] == ["–", "–"]
    assert rows["▲ Alone"][-2:] == ["–", f"{markup.MINUS}1.000"]
    lines = [line for line in markdown.split("## Table 3")[1].split("##")[0].splitlines() if line.startswith("|")]
    assert lines[0].endswith("| Alignment | Uniformity |")
    assert lines[2].endswith(f"| 0.300 ± 0.141 | {markup.MINUS}2.750 ± 0.354 |")
    assert len({line.count("|") - line.count("\\|") for line in lines[:7]}) == 1


def test_latex_tables_are_whole(reported: Path) -> None:
    folder = reported.parent / "report" / "tables"
    assert sorted(path.name for path in folder.iterdir()) == ["failed.tex", "one.tex", "table-3.tex"]
    text = (folder / "table-3.tex").read_text()
    assert text.isascii()
    assert r"Heads \textless{}\&\textgreater{} 100\%" in text
    assert r"Other\_1" in text
    scores = read_scores(reported, "good", "overall")
    assert rf"\textbf{{{fmean(scores):.3f} $\pm$ {stdev(scores):.3f}}}" in text
    tabular = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    for line in tabular.split(r"\\")[:-1]:
        spans = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d)\}", line))
        assert len(re.findall(r"(?<!\\)&", line)) + spans == 8
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_latex_tables_compile(reported: Path, tmp_path: Path) -> None:
    paths = sorted((reported.parent / "report" / "tables").iterdir())
    inputs = "".join(rf"\input{{{path.as_posix()}}}" for path in paths)
    (tmp_path / "all.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@given(st.text())
def test_latex_text_is_plain_ascii_with_every_special_escaped(text: str) -> None:
    escaped = markup.latex(text)
    assert escaped.isascii()
    assert escaped.isprintable()
    left = re.sub(r"\\(text\w+|ldots)\{\}|\\[&%$#_{}]|\$-\$|\$\\\w+\$|\$\^\{\\\w+\}\$|\{[\[\]*]\}", "", escaped)
    assert not set(left) & set('\\{}&%$#_^~<>|[]*"')
    assert markup.latex(escaped) == escaped  # LaTeX already


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50% & a_b", r"50\% \& a\_b"),
        ("|x-y|, x*y", r"\textbar{}x-y\textbar{}, x{*}y"),
        ("naïve “τ” – 語", "naive ``$\\tau$'' -- ?"),
    ],
)
def test_latex_text(text: str, escaped: str) -> None:
    assert markup.latex(text) == escaped


def test_same_store_same_bytes(store: Path) -> None:
    assert render(store) == render(store)


def test_rendering_needs_neither_torch_nor_models(store: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from multitask.cli.main import main; "
        f"code = main(['report', 'sample', '--runs', {str(store)!r}, '--report', {str(store / 'report')!r}]); "
        "print(code, sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_preset_never_run_or_a_damaged_record_is_one_clear_error(store: Path) -> None:
    with pytest.raises(InputError, match=r"multitask experiments .*paper"):
        write_report(store, "paper", store / "report")
    version = {"preset": "paper", "format_version": FORMAT_VERSION, "schema": SCHEMA}
    good = read_sealed(Record.path(store, "sample"), dict[str, Any])
    damaged: dict[str, Any] = {
        "written by another version": {**good, "schema": SCHEMA - 1},
        "start is missing; run": version,
        "runs.0.seed is": {**good, "runs": [{**good["runs"][0], "seed": "3"}]},
        "runs of rows that no table has": {**good, "tables": good["tables"][1:]},
        "two rows have the same key": {**good, "tables": [{**t, "rows": 2 * t["rows"]} for t in good["tables"]]},
    }
    path = Record.path(store, "paper")
    for problem, record in damaged.items():
        write_sealed(path, record)
        texts = {
            problem: path.read_text(),
            "damaged; its hash does not fit": path.read_text().replace('"schema"', '"schemb"'),
        }
        texts |= {"not valid JSON": "{", "holds no hash of its content": json.dumps(record)}
        for told, text in texts.items():
            path.write_text(text)
            assert_refused_in_one_line(store, told)


def assert_refused_in_one_line(store: Path, told: str) -> None:
    with pytest.raises(InputError, match=told) as raised:
        write_report(store, "paper", store / "report")
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("run `multitask experiments run paper` again")


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (None, "–"),
        (Estimate(0.5, None, 0.4, 0.6), "0.500"),
        (Estimate(0.6, 0.1414, 0.4, 0.6), "0.600 ± 0.141"),
        (Estimate(-0.6, 0.0, -0.7, 0.6), "−0.600 ± 0.000"),
    ],
)
def test_mean_and_deviation(estimate: Estimate | None, text: str) -> None:
    assert formats.mean_and_deviation(estimate) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0304, "+0.030"), (-0.0304, "−0.030"), (0.0, "0.000"), (-0.0001, "0.000")]
)
def test_signed(value: float, text: str) -> None:
    assert formats.signed(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0.04, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("file", ["evaluate-good-0/evaluation.json", "evaluate-good-0/predictions.npz"])
def test_an_edited_score_reaches_no_report(store: Path, tmp_path: Path, file: str) -> None:
    (store / file).write_bytes((store / file).read_bytes().replace(b"0.", b"9.", 1) + b" ")
    with pytest.raises(InputError, match=f"{file}: changed since the run was complete"):
        write_report(store, "sample", tmp_path / "report")
    assert not (tmp_path / "report").exists()


HOSTILE = "weights\n\\input{secret}\n\n# Heading <b>&|`x`"


def test_names_of_folders_are_text_in_every_format(store: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(store, tmp_path / "copy")
    record = replace(Record.read(runs, "sample"), start=HOSTILE, data=HOSTILE)
    record.write(runs)
    write_report(runs, "sample", tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "# Heading <b>" not in html
    markdown = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "\n# Heading" not in markdown
    assert re.search(r"(?<!\\\\)<b>&", re.sub("`[^`]*`", "", markdown)) is None  # in code it is text anyway
    for path in (tmp_path / "report" / "tables").glob("*.tex"):
        assert "secret" not in path.read_text()


def test_the_report_names_machines_and_the_columns_whose_rows_vary_differently(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "Rows vary differently over seeds in Sentiment accuracy: each row has its own variance there."
    assert all(told not in text and "in total, on A processor" in " ".join(text.split()) for text in render(store))
    alike = {OVERALL: True, "sentiment": False, "paraphrase": True, "similarity": True}
    monkeypatch.setattr(TableResults, "alike", alike)
    assert all(told in text for text in render(store))
    found = Results.load(store.parent / "report" / "results.parquet").table("3").description.columns
    assert [column.alike for column in found] == list(alike.values())

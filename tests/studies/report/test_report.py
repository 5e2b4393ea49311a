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

import numpy as np
import pytest
from pyarrow import parquet
from scipy import stats

from minbert.errors import InputError
from minbert.files import read_json, write_json
from multitask.base.runs import Run
from multitask.evaluation import text_tables
from multitask.experiments import report_page
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.grid_frames import ANSWERS, SCORES, GridFrames
from multitask.experiments.report_page import results_in, warnings_of
from multitask.experiments.results_file import Results, scores_as_data
from multitask.experiments.score_tables import latex_float, score_table
from multitask.experiments.table_definitions import OVERALL, PresetRecord, RecordedRun, Row, StudyTable
from studies.report.study_page import render_study, write_report
from tests.studies.synthetic import SUITE_EXAMPLES, add_run

TASKS = ("sentiment", "paraphrase", "similarity")
MEASURES = {"sentiment": "accuracy", "paraphrase": "accuracy", "similarity": "pearson"}
VOID = {"meta", "br", "hr", "img", "link", "input"}
STRANGE = "weights\n\\input{secret}\n\n# Heading <b>&|`x`"
FAILED = RecordedRun("", "", 1, error="it died <b>here</b> & there", log="logs/x.log")


class Page(HTMLParser):
    """Checks that elements nest and the page stands alone, and collects what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.figures: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert "://" not in text
        assert "<script" not in text
        assert all(figure["role"] == "img" and figure["aria-label"] and figure["viewbox"] for figure in self.figures)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.references += [value for name, value in attrs if name in ("href", "xlink:href", "src") and value]
        self.figures += [dict(attrs)] if tag == "svg" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tables_in(markdown: str) -> list[dict[str, list[str]]]:
    """Each table of a text: cells by the first one of their row."""
    found: list[dict[str, list[str]]] = [{}]
    for line in markdown.splitlines():
        if line.startswith("|"):
            first, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            found[-1][first] = cells
        elif found[-1]:
            found.append({})
    return [of for of in found if of]


def tables_below(markdown: str, heading: str) -> list[dict[str, list[str]]]:
    """The tables of a part of a page."""
    (part,) = (of for of in re.split(r"^## ", markdown, flags=re.MULTILINE) if of.startswith(heading))
    return tables_in(part)


def add_runs(runs: Path, row: str, *quality: float, seeds: int = 2) -> list[RecordedRun]:
    """Finished runs of a row on as many of the tasks as there are qualities."""
    table = StudyTable("3", "", "", (Row(row, row),), columns=TASKS[: len(quality)])
    how = dict(zip(TASKS, quality, strict=False))
    return [add_run(runs, table, table.rows[0], seed, lambda key, row, task: how[task]) for seed in range(seeds)]


def finish(folder: Path) -> None:
    """Vouch for the files of all runs as they are now."""
    for path in folder.glob("*/config.json"):
        Run(path.parent).finish(1.0)


def published(*scores: float | None) -> dict[str, float]:
    return {column: score for column, score in zip((OVERALL, *TASKS), scores, strict=True) if score is not None}


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> Path:
    """A store that no test changes, and its report beside it.

    Three tables and a figure: rows that share a stage, a row of one task, failed runs, a row only published.
    """
    runs = tmp_path_factory.mktemp("reported") / "runs"
    good, other = add_runs(runs, "good", 0.8, 0.7, 0.95), add_runs(runs, "other", 0.2, 0.7, 0.9)
    other = [replace(run, chain=(first.chain[0], *run.chain)) for first, run in zip(good, other, strict=True)]
    alone = [*add_runs(runs, "alone", 0.6, seeds=3), FAILED]
    rows = (
        Row("good", "Good", published=published(0.6, 0.5, 0.7, 0.6)),
        Row("other", "Other_1", published=published(0.5, 0.5, 0.8, 0.2)),
        Row("alone", "Alone", published=published(None, 0.4, None, None)),
        Row("test", "Test | only", published=published(0.7, 0.7, 0.7, 0.7)),
    )
    tables: list[tuple[StudyTable, dict[str, Sequence[RecordedRun]]]] = [
        (
            StudyTable("3", "Heads <&> 100%", "A note.", rows, reference="other"),
            {"good": good, "other": other, "alone": alone},
        ),
        (StudyTable("one", "One", "", (Row("sentiment", "Sentiment"),), columns=("sentiment",)), {"sentiment": alone}),
        (StudyTable("failed", "Nothing", "", (Row("failed", "Failed"),)), {"failed": [FAILED]}),
        (StudyTable("figure2", "Curves", "", (Row("good", "Good"),), kind="curves"), {"good": good}),
    ]
    found = [replace(run, table=t.key, row=row) for t, rows in tables for row, of in rows.items() for run in of]
    written = tuple(table for table, _ in tables)
    PresetRecord("sample", STRANGE, STRANGE, ("Beware.",), written, tuple(found)).write(runs)
    finish(runs)
    write_report(runs, "sample", runs.parent / "report")
    return runs


@pytest.fixture(scope="module")
def results(reported) -> TableResults:
    return PresetResults.read(reported, "sample").tables[0]


@pytest.fixture
def store(reported, tmp_path) -> Path:
    """A store that a test may change."""
    return Path(shutil.copytree(reported, tmp_path / "runs"))


def change(store: Path, seed: int, **values: object) -> None:
    """Give an evaluation of the good row other values."""
    path = store / f"evaluate-3-good-{seed}" / "evaluation.json"
    write_json(path, {**read_json(path, dict), **values})


def first_table(store: Path) -> tuple[TableResults, dict[str, list[str]]]:
    """The first table of a changed store, and what the report shows of its scores."""
    finish(store)
    found = PresetResults.read(store, "sample")
    scores = scores_as_data(found).tables[0]
    (shown,) = tables_in(score_table(scores, range(len(scores.description.columns))))
    return found.tables[0], shown


def read_scores(store: Path, name: str, column: str) -> list[float]:
    found = [read_json(store / f"evaluate-3-{name}-{seed}" / "evaluation.json", dict) for seed in (0, 1)]
    return [of["overall"] if column == "overall" else of["scores"][column] for of in found]


def pages(store: Path) -> tuple[str, str]:
    """A report in HTML and in Markdown."""
    folder = store.parent / "report"
    return (folder / "index.html").read_text(encoding="utf-8"), (folder / "report.md").read_text(encoding="utf-8")


def test_tables_hold_the_means_and_deviations_of_the_runs_and_the_published_scores(reported):
    table = tables_below(pages(reported)[1], "Table 3")[0]
    good, alone = table["Good"], table["Alone"]
    for place, (column, paper) in enumerate(zip((OVERALL, *TASKS), ("0.600", "0.500", "0.700", "0.600"), strict=True)):
        scores = read_scores(reported, "good", column)
        best = fmean(scores) >= fmean(read_scores(reported, "other", column))
        cell = f"{fmean(scores):.3f} ± {stdev(scores):.3f}"
        assert good[2 * place].startswith(f"**{cell}**" if best else cell)
        assert good[2 * place + 1] == paper
    assert alone[:2] == ["–", "–"]
    assert re.fullmatch(r"0\.\d{3} ± 0\.\d{3}(\\\*)? \[.*\]", alone[2])
    assert table[r"Test \| only"] == ["–", "0.700"] * 4
    assert "Other_1 (reference)" in table


def test_a_table_s_minutes_are_those_of_its_runs_and_a_shared_one_counts_once(reported, results):
    """The rows have 2, 2 and 3 seeds, each with a training and an evaluation; the second row shares two trainings."""
    names = {name for runs in results.runs.values() for run in runs for name in (*run.chain, run.evaluated)}
    assert len(names) == 14
    seconds = sum(Run(reported / name).seconds for name in names)
    assert results.minutes == {"A processor": pytest.approx(seconds / 60)}
    assert f"one after the other: {seconds / 60:.1f} (A processor)." in pages(reported)[1]


def test_the_frame_of_scores_has_every_number_that_trainings_wrote(reported):
    found = parquet.read_table(reported.parent / "report" / "scores.parquet").to_pylist()
    assert {line["table"] for line in found} == {"3", "one", "figure2"}
    lines = [line for line in found if (line["table"], line["row"], line["seed"]) == ("3", "good", 1)]
    of_run = [line for line in lines if line["step"] is not None and line["source"] != "overall"]
    written = [json.loads(line) for line in (reported / "pretrain-3-good-1" / "metrics.jsonl").read_text().splitlines()]
    assert {(line["step"], line["source"], line["measure"]): line["value"] for line in of_run} == {
        (line["step"], source, measure): value
        for line in written
        for source, measures in (("training", line["training"]), *line["dev"].items())
        for measure, value in measures.items()
        if not isinstance(value, list)
    }
    assert {line["label"] for line in of_run} == {"Good"}


def test_a_report_is_the_same_from_its_two_frames_without_any_run(reported, tmp_path):
    frames = [reported.parent / "report" / name for name in (SCORES, ANSWERS)]
    render_study(PresetResults.of(GridFrames.load(*frames)), tmp_path / "report")
    assert pages(tmp_path / "runs") == pages(reported)


def test_without_answers_intervals_are_over_seeds_alone(reported):
    frames = GridFrames.load(reported.parent / "report" / SCORES)
    found, scores = PresetResults.of(frames).tables[0], read_scores(reported, "good", "similarity")
    expected = stats.t.interval(0.95, 1, fmean(scores), stats.sem(scores))
    assert found.interval("good", "similarity") == pytest.approx(expected, rel=1e-2)


def test_the_file_of_results_has_the_scores_of_the_runs_and_their_tests(reported, results):
    file = Results.load(reported.parent / "report" / "results.parquet")
    assert [table.description.table for table in file.tables] == ["3", "one", "figure2"]  # nothing of "failed"
    lines = file.table("3").lines
    for column, place in zip((OVERALL, *TASKS), (0.6, 0.5, 0.7, 0.6), strict=True):
        found = lines[(lines.row == "good") & (lines.task == column)]
        assert list(found.seed) == [0, 1]
        assert list(found.value) == pytest.approx(read_scores(reported, "good", column))
        assert (set(found.published), set(found.metric)) == ({place}, {MEASURES.get(column, "mean")})
    line = lines[(lines.row == "good") & (lines.task == "sentiment")].iloc[0]
    test = results.against_reference.loc["good", "sentiment"]
    assert (line.low, line.high) == results.interval("good", "sentiment")
    assert (line.difference, line.p, line.difference_low) == (test.difference, test.p, test.low)
    assert (line.preset, line.start, line.data, line.study) == ("sample", STRANGE, STRANGE, "multitask_report")
    only = lines[lines.row == "test"]
    assert only.seed.isna().all()
    assert list(only.published) == [0.7] * 4


def test_orderings_count_pairs_that_the_published_scores_tell_apart(reported, results):
    papers = {row.key: row.published for row in results.table.rows}
    columns = Results.load(reported.parent / "report" / "results.parquet").table("3").description.columns
    for column in columns:
        agree = total = 0
        for first, second in combinations(("good", "other", "alone"), 2):
            theirs = papers[first].get(column.task), papers[second].get(column.task)
            mine = results.mean(first, column.task), results.mean(second, column.task)
            if None in theirs or np.isnan(mine).any() or theirs[0] == theirs[1]:
                continue
            total += 1
            agree += bool(np.sign(np.subtract(*theirs)) == np.sign(np.subtract(*mine)))
        assert (column.agree, column.orderings) == (agree, total)
    sentiment = results.orderings.loc["sentiment"]
    assert list(sentiment.index) == [("good", "alone"), ("other", "alone")]  # Good and Other_1 are published as equal
    assert list(sentiment.agrees) == [True, False]
    assert pages(reported)[1].count("| Good | Alone | Sentiment | ") == 1


def test_rows_of_different_numbers_of_updates_show_them(store):
    assert "Steps" not in first_table(store)[1]["Row"]  # all have the same
    for seed in (0, 1):
        path = store / f"pretrain-3-good-{seed}" / "metrics.jsonl"
        *lines, last = path.read_text().splitlines()
        path.write_text("\n".join([*lines, json.dumps(json.loads(last) | {"step": 1180})]) + "\n")
        before = json.loads(last)["step"]
    _, shown = first_table(store)
    place = shown["Row"].index("Steps")
    steps = [shown[row][place] for row in ("Good", "Other_1 (reference)", "Alone", r"Test \| only")]
    assert steps == ["1,180", str(before), str(before), "–"]


def test_a_first_reader_learns_whose_tables_these_are_and_what_their_lines_mean(reported, store):
    title = "“Contrastive Learning for Generalizable Sentence Embeddings” (CS224N)"
    page = pages(reported)[1]
    first_screen, table = page.partition("## ")[0], page.partition("## Table 3")[2].partition("Differences to")[0]
    assert f"Numbered tables and published scores are those of {title}." in first_screen
    assert "[significant: " in table
    assert "In brackets, how many of these differences are significant" in table
    assert "Means ± standard deviations over seeds" in table
    record = PresetRecord.read(store, "sample")
    replace(record, runs=tuple(run for run in record.runs if run.seed == 0)).write(store)
    finish(store)
    write_report(store, "sample", store.parent / "report")
    assert "±" not in pages(store)[1]


def test_rows_of_different_dev_sets_are_not_compared(store):
    for seed in (0, 1):
        path = store / f"evaluate-3-good-{seed}" / "predictions.npz"
        with np.load(path) as arrays:
            changed = {**arrays, "sentiment_labels": 1 - arrays["sentiment_labels"]}
        np.savez(path, **changed)
    found, _ = first_table(store)
    assert set(found.against_reference.loc["good"].index) == {"paraphrase", "similarity"}


def test_a_row_of_one_seed_is_said_not_to_be_compared(store):
    record = PresetRecord.read(store, "sample")
    fewer = [run for run in record.runs if (run.table, run.row) != ("3", "good") or run.seed == 0]
    replace(record, runs=tuple(fewer)).write(store)
    found = results_in(store, "sample", store / "report")
    alone = [warning for warning in warnings_of(found) if "one seed, so without an interval" in warning]
    assert ["Good" in warning for warning in alone] == [True]
    assert found.tables[0].contrast({"good": 1, "other": -1}, "sentiment") is None


def test_a_report_replaces_a_damaged_one(store):
    output = store / "report"
    write_report(store, "sample", output)
    whole = (output / "results.parquet").read_bytes()
    (output / "results.parquet").write_bytes(b"")
    write_report(store, "sample", output)
    assert (output / "results.parquet").read_bytes() == whole


def test_a_report_without_a_study_keeps_no_page_of_one(store):
    output = store / "report"
    (output / "figures").mkdir(parents=True)
    drawn, own = output / "figures" / "study-1.svg", output / "figures" / "own.svg"
    for path in (drawn, own):
        path.write_text("<svg/>")
    (output / "study.md").write_text("A claim. ![Its figure](figures/study-1.svg)")
    (output / "study.html").write_text("A claim.")
    page = write_report(store, "sample", output)
    assert not [path for path in (drawn, output / "study.md", output / "study.html") if path.exists()]
    assert own.exists()
    assert "study.html" not in page.read_text("utf-8")


def test_a_report_keeps_no_figure_and_no_table_of_an_earlier_one(store):
    output = store / "report"
    write_report(store, "sample", output)
    record = PresetRecord.read(store, "sample")
    files = {path for path in output.rglob("*") if path.is_file()}
    own = output / "figures" / "own.svg"
    own.write_text("<svg/>")
    left, *_ = record.tables
    record.of_tables([left.key]).write(store)
    write_report(store, "sample", output)
    after = {path for path in output.rglob("*") if path.is_file()} - {own}
    gone = {path.relative_to(output).as_posix() for path in files - after}
    assert own.is_file()  # what no report wrote stays
    assert after < files
    assert [name for name in gone if left.name in name] == []
    for table in record.tables[1:]:
        assert not [path for path in after if table.name in path.name]


def test_the_curve_of_a_mean_is_that_of_the_tables_tasks(results):
    tasks = ("sentiment", "similarity")
    smaller = replace(results, table=replace(results.table, columns=tasks))
    for curve, run in zip(smaller.curves("good", OVERALL), smaller.runs["good"], strict=True):
        expected = np.mean([run.curve(task) for task in tasks], axis=0)
        assert [score for _, score in curve] == pytest.approx(list(expected))
        assert expected != pytest.approx(run.curve(OVERALL))


def test_the_page_is_well_formed_and_stands_alone_whatever_names_hold(reported):
    html, markdown = pages(reported)
    page = Page(html)
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert {"#statistics"} <= set(page.references)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(page.ids)
    assert len(page.figures) == 1 + 2 + 2 + 1  # all rows, pictures and curves of two tables, figure
    named = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    folder = reported.parent / "report"
    assert sorted(named) == sorted(path.relative_to(folder).as_posix() for path in (folder / "figures").iterdir())
    for text in ("it died &lt;b&gt;here&lt;/b&gt; &amp; there", "Heads &lt;&amp;&gt;"):
        assert text in html
    assert r"it died \<b\>here\</b\> \& there" in markdown
    for text in ("logs/x.log", "Beware.", "Some rows of a table have other seeds than others"):
        assert text in html
        assert text in markdown
    assert "Heading <b>" not in html
    assert "\n# Heading" not in markdown
    assert re.search(r"(?<!\\)<b>&", re.sub("`[^`]*`", "", markdown)) is None  # in code it is text anyway


def test_an_ensemble_chosen_by_its_dev_scores_is_not_compared(store):
    members = {name: {"scores": {"sentiment": 0.5}} for name in ("a", "b")}
    for seed in (0, 1):
        change(store, seed, selected_on_dev=True, members=members)
        (store / f"pretrain-3-good-{seed}" / "metrics.jsonl").unlink()  # nothing is trained in an ensemble
    found, _ = first_table(store)
    assert [row.label for row in found.chosen_on_dev] == ["Good"]
    assert {of[1:] for of in found.orderings.index} == {("other", "alone")}
    assert "good" not in found.against_reference.index.get_level_values(0)


def test_scores_on_examples_of_the_training_are_marked_and_shown_without_them(store):
    for seed in (0, 1):
        overlap = {"sentiment": {"rows": SUITE_EXAMPLES, "rows_seen": seed, "clean": 0.25}}
        change(store, seed, overlap=overlap)
    found, shown = first_table(store)
    assert [text_tables.SEEN in cell for cell in shown["Good"]] == [n in (0, 2) for n in range(8)]  # and the mean
    latex = latex_float(scores_as_data(PresetResults.read(store, "sample")).tables[0], "").splitlines()
    assert all(r"$^{\dagger}$" in line for line in latex if "caption" in line or "Good &" in line)
    (overlaps,) = tables_in(report_page._overlaps(found))
    assert overlaps["Good"][:2] == ["Sentiment", "0.5 of 30 (1.7%)"]
    assert overlaps["Good"][3] == "0.250"


def test_latex_tables_are_whole(reported):
    paths = sorted((reported.parent / "report" / "tables").iterdir())
    assert [path.name for path in paths] == ["one.tex", "table-3.tex"]
    text = paths[1].read_text()
    assert text.isascii()
    assert "secret" not in text
    assert r"Heads \textless{}\&\textgreater{} 100\%" in text
    assert r"Other\_1" in text
    scores = read_scores(reported, "good", "overall")
    assert rf"\textbf{{{fmean(scores):.3f} $\pm$ {stdev(scores):.3f}}}" in text
    shown = pages(reported)[1].split("## Table 3")[1].split("Differences")[0]
    assert text.count(r"\rlap{$^{\ast}$}") == len(re.findall(r"\\\* \[0", shown)) > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_latex_reads_the_tables(reported, tmp_path):
    paths = sorted((reported.parent / "report" / "tables").iterdir())
    inputs = "".join(rf"\input{{{path.as_posix()}}}" for path in paths)
    whole = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "all.tex").write_text(whole)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_command_writes_the_same_bytes_again_without_models(reported, tmp_path):
    """Where nothing that has weights can be made, not even a layer."""
    command = ["report", "sample", "--runs", str(reported), "--report", str(tmp_path / "report")]
    program = (
        "import sys, torch; from functools import partial; torch.nn.Module.__init__ = None; "
        "from multitask.experiments import compare_rows as t; "
        "t.resampled_scores = partial(t.resampled_scores, samples=2000); "
        f"from multitask.cli.main import main; code = main({command}); print(code, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False"
    assert pages(tmp_path / "runs") == pages(reported)


def test_a_preset_never_run_and_an_edited_score_are_one_clear_error(store, tmp_path):
    with pytest.raises(InputError, match=r"multitask experiments .*paper"):
        write_report(store, "paper", tmp_path / "report")
    path = store / "evaluate-3-good-0" / "evaluation.json"
    path.write_bytes(path.read_bytes().replace(b"0.", b"9.", 1) + b" ")
    with pytest.raises(InputError, match=r"evaluation\.json: changed since the run was complete"):
        write_report(store, "sample", tmp_path / "report")
    assert not (tmp_path / "report").exists()

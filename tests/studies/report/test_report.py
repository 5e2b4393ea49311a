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

from minbert.errors import InputError
from multitask.evaluation import markup
from multitask.runs.artefact import Artefact
from studies import Results
from studies.engine.record import Record, RecordedRun
from studies.engine.table import OVERALL, Row, Table
from studies.report.preset_results import PresetResults
from studies.report.report import write_report
from studies.report.table_results import TableResults
from studies.report.text import signed
from studies.results import Spent
from tests.studies.synthetic import add_run

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
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

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


def tables_below(markdown: str, heading: str) -> list[dict[str, list[str]]]:
    """Each table of a part of a page: cells by the first one of their row."""
    part = re.split(r"^## ", markdown, flags=re.MULTILINE)
    (lines,) = ([*of.splitlines()] for of in part if of.startswith(heading))
    found: list[dict[str, list[str]]] = [{}]
    for line in lines:
        if line.startswith("|"):
            first, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            found[-1][first] = cells
        elif found[-1]:
            found.append({})
    return [of for of in found if of]


EXAMPLES = 30
Runs = dict[str, Sequence[RecordedRun]]  # by the row's key
FAILED = RecordedRun("", "", 1, error="it died <b>here</b> & there", log="logs/x.log")


def add_runs(runs: Path, row: str, *quality: float, seeds: int = 2) -> list[RecordedRun]:
    """Finished runs of a row on as many of the tasks as there are qualities."""
    table = Table("3", "", "", (Row(row, row),), columns=TASKS[: len(quality)])
    how = dict(zip(TASKS, quality, strict=False))
    return [add_run(runs, table, table.rows[0], seed, lambda key, row, task: how[task]) for seed in range(seeds)]


def write_record(folder: Path, tables: Sequence[tuple[Table, Runs]], notes: tuple[str, ...] = ()) -> None:
    """A preset's record; runs are given the keys of the table and the row under which they stand here."""
    runs = [replace(run, table=t.key, row=row) for t, rows in tables for row, found in rows.items() for run in found]
    Record("sample", "some-weights", "data", notes, tuple(table for table, _ in tables), tuple(runs)).write(folder)
    finish(folder)


def finish(folder: Path) -> None:
    """Vouch for the files of all runs as they are now."""
    for path in folder.glob("*/config.json"):
        Artefact(path.parent).finish(1.0)


def published(*scores: float | None) -> dict[str, float]:
    return {column: score for column, score in zip((OVERALL, *TASKS), scores, strict=True) if score is not None}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes, and its report beside it.

    Three tables and a figure: rows that share a stage, a row of one task, failed runs, a row only published.
    """
    runs = tmp_path_factory.mktemp("reported") / "runs"
    good, other = add_runs(runs, "good", 0.8, 0.7, 0.95), add_runs(runs, "other", 0.2, 0.7, 0.9)
    other = [replace(run, chain=(first.chain[0], *run.chain)) for first, run in zip(good, other, strict=True)]
    alone = [*add_runs(runs, "alone", 0.6, seeds=1), FAILED]
    config = {"note": "<script>&", "train_limit": 1234, "sources": ["unlabelled"]}
    (runs / str(good[0].model) / "config.json").write_text(json.dumps(config))
    (runs / str(good[0].model) / "inputs.json").write_text(json.dumps({"start": "ab" * 32, "machine": "A processor"}))
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
    tables: list[tuple[Table, Runs]] = [
        (table, {"good": good, "other": other, "alone": alone}),
        (one_column, {"sentiment": alone}),
        (Table("failed", "Nothing", "", (Row("failed", "Failed"),)), {"failed": [FAILED]}),
        (Table("figure2", "Curves", "", (Row("good", "Good"),), kind="curves"), {"good": good}),
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
        evaluation = json.loads((store / f"evaluate-3-{name}-{seed}" / "evaluation.json").read_text())
        found.append(evaluation["overall"] if column == "overall" else evaluation["scores"][column])
    return found


def render(store: Path) -> tuple[str, str]:
    write_report(store, "sample", store.parent / "report")
    return pages(store)


def pages(store: Path) -> tuple[str, str]:
    """A report in HTML and in Markdown."""
    report = store.parent / "report"
    return (report / "index.html").read_text(encoding="utf-8"), (report / "report.md").read_text(encoding="utf-8")


def test_tables_hold_the_means_and_deviations_of_the_runs_and_the_published_scores(reported: Path) -> None:
    _, markdown = pages(reported)
    table = tables_below(markdown, "Table 3")[0]
    good, alone = table["Good"], table["Alone"]
    for place, (column, paper) in enumerate(zip((OVERALL, *TASKS), ("0.600", "0.500", "0.700", "0.600"), strict=True)):
        scores = read_scores(reported, "good", column)
        best = fmean(scores) >= fmean(read_scores(reported, "other", column))
        cell = f"{fmean(scores):.3f} ± {stdev(scores):.3f}"
        assert good[2 * place].startswith(f"**{cell}**" if best else cell)
        assert good[2 * place + 1] == paper
    assert alone[:2] == ["–", "–"]
    assert re.fullmatch(r"0\.\d{3}(\\\*)? \[0\.\d{3}, 0\.\d{3}\]", alone[2])  # one seed: no deviation, yet an interval
    assert table[r"Test \| only"] == ["–", "0.700"] * 4
    assert "Other\\_1 (reference)" in table or "Other_1 (reference)" in table


def test_a_significant_difference_to_the_reference_has_a_mark(reported: Path) -> None:
    _, markdown = pages(reported)
    table, differences = tables_below(markdown, "Table 3")[:2]
    gap = fmean(read_scores(reported, "good", "sentiment")) - fmean(read_scores(reported, "other", "sentiment"))
    assert re.match(rf"\+{gap:.3f}\\\* \[\+0.\d+, \+0.\d+\], p [<=] 0.0", differences["Good"][1])  # 0.8 against 0.2
    assert r"\*" in table["Good"][2]
    assert r"\*" not in differences["Good"][2] + table["Good"][4]  # 0.7 against 0.7
    results = PresetResults.read(reported, "sample").tables[0]
    least, most = results.significant_from("sentiment") or (0, 0)
    assert table["*Significant from*"][2] in (f"{least:.3f} to {most:.3f}", f"{least:.3f}")
    assert list(differences) == ["Row", "---", "Good", "Alone"]  # neither the reference row nor a row without runs


def test_the_file_of_curves_has_every_number_that_trainings_wrote(reported: Path) -> None:
    found = parquet.read_table(reported.parent / "report" / "curves.parquet").to_pylist()
    assert {line["table"] for line in found} == {"3", "one", "figure2"}
    of_run = [line for line in found if (line["table"], line["row"], line["seed"]) == ("3", "good", 1)]
    values = {(line["step"], line["source"], line["measure"]): line["value"] for line in of_run}
    written = [json.loads(line) for line in (reported / "pretrain-3-good-1" / "metrics.jsonl").read_text().splitlines()]
    assert values == {
        (line["step"], source, measure): value
        for line in written
        for source, measures in (("training", line["training"]), *line["dev"].items())
        for measure, value in measures.items()
        if not isinstance(value, list)
    }
    assert {line["label"] for line in of_run} == {"Good"}


def test_the_file_of_results_has_the_scores_of_the_runs_and_what_the_report_says_of_them(reported: Path) -> None:
    results = Results.load(reported.parent / "report" / "results.parquet")
    assert [table.description.table for table in results.tables] == ["3", "one", "figure2"]  # nothing of "failed"
    about, lines = results.table("3").description, results.table("3").lines
    for column, place in zip((OVERALL, *TASKS), (0.6, 0.5, 0.7, 0.6), strict=True):
        found = lines[(lines.row == "good") & (lines.task == column)]
        assert list(found.seed) == [0, 1]
        assert list(found.value) == pytest.approx(read_scores(reported, "good", column))
        assert (set(found.published), set(found.metric)) == ({place}, {MEASURES.get(column, "mean")})
    table = PresetResults.read(reported, "sample").tables[0]
    line = lines[(lines.row == "good") & (lines.task == "sentiment")].iloc[0]
    test = table.against_reference.loc["good", "sentiment"]
    assert (line.low, line.high) == table.interval("good", "sentiment")
    assert (line.difference, line.p, line.difference_low) == (test.difference, test.p, test.low)
    assert (line.preset, line.start, line.data, line.study) == ("sample", "some-weights", "data", "multitask_report")
    only = lines[lines.row == "test"]
    assert only.seed.isna().all()
    assert list(only.published) == [0.7] * 4
    assert set(lines[lines.row == "alone"].seed.dropna()) == {0}
    assert about.spent == Spent(10, 20.0, ("A processor",))  # stages that two rows share count once
    assert [column.alike for column in about.columns] == [table.alike[column] for column in (OVERALL, *TASKS)]


def test_orderings_count_pairs_that_the_published_scores_tell_apart(reported: Path) -> None:
    results = PresetResults.read(reported, "sample").tables[0]
    rows, published = ("good", "other", "alone"), {row.key: row.published for row in results.table.rows}
    columns = Results.load(reported.parent / "report" / "results.parquet").table("3").description.columns
    for column in columns:
        agree = total = 0
        for first, second in combinations(rows, 2):
            theirs = published[first].get(column.task), published[second].get(column.task)
            mine = results.mean(first, column.task), results.mean(second, column.task)
            if None in theirs or np.isnan(mine).any() or theirs[0] == theirs[1]:
                continue
            total += 1
            agree += bool(np.sign(np.subtract(*theirs)) == np.sign(np.subtract(*mine)))
        assert (column.agree, column.orderings) == (agree, total)
    sentiment = results.orderings.loc["sentiment"]
    assert list(sentiment.index) == [("good", "alone"), ("other", "alone")]  # Good and Other_1 are published as equal
    assert list(sentiment.agrees) == [True, False]
    assert (columns[1].significant, columns[1].contrary) == tuple(
        int((sentiment.significant & (sentiment.agrees == agrees)).sum()) for agrees in (True, False)
    )
    _, markdown = pages(reported)
    assert tables_below(markdown, "Table 3")[0]["*Pairs in published order*"][2].startswith("1 of 2 [significant: ")
    assert markdown.count("| Good | Alone | Sentiment | ") == 1


def test_rows_of_different_dev_sets_are_not_compared(store: Path) -> None:
    for seed in (0, 1):
        path = store / f"evaluate-3-good-{seed}" / "predictions.npz"
        with np.load(path) as arrays:
            changed = {**arrays, "sentiment_labels": 1 - arrays["sentiment_labels"]}
        np.savez(path, **changed)
    finish(store)
    results = PresetResults.read(store, "sample").tables[0]
    assert set(results.against_reference.loc["good"].index) == {"paraphrase", "similarity"}


def test_page_is_well_formed_and_stands_alone(reported: Path) -> None:
    html, markdown = pages(reported)
    page = Page(html)
    assert "://" not in html
    assert "<script" not in html
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.references)
    assert {"#predictions-of-the-best-model", "#statistics"} <= set(page.references)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(page.ids)
    assert len(page.figures) == 2 + 2 + 1 + 3  # pictures and curves of two tables, figure, two matrices and a scatter
    assert all(figure["role"] == "img" and figure["aria-label"] and figure["viewbox"] for figure in page.figures)
    named = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    report = reported.parent / "report"
    assert sorted(named) == sorted(path.relative_to(report).as_posix() for path in (report / "figures").iterdir())
    assert "figures/figure2-curves.svg" in named


def test_text_from_outside_is_escaped_and_failures_and_warnings_are_shown(reported: Path) -> None:
    html, markdown = pages(reported)
    assert "it died &lt;b&gt;here&lt;/b&gt; &amp; there" in html
    assert "Heads &lt;&amp;&gt;" in html
    assert "&lt;script&gt;&amp;" in html  # in a configuration
    assert r"it died \<b\>here\</b\> \& there" in markdown
    for text in ("logs/x.log", "Beware.", "Some rows of a table have fewer seeds", "cut to 1,234 rows", "ab" * 32):
        assert text in html
        assert text in markdown


def test_a_single_seed_is_said_to_have_no_spread(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    table = Table("t", "T", "", (Row("one", "One"), Row("two", "Two")), reference="one")
    write_record(runs, [(table, {key: add_runs(runs, key, 0.7, 0.7, 0.7, seeds=1) for key in ("one", "two")})])
    _, markdown = render(runs)
    assert "One seed: " in markdown
    assert "±" not in "".join(cell for cells in tables_below(markdown, "T")[0].values() for cell in cells)


def test_an_ensemble_chosen_by_its_dev_scores_says_so(store: Path) -> None:
    assert "makes the scores too high" not in render(store)[1]
    for seed in (0, 1):
        path = store / f"evaluate-3-good-{seed}" / "evaluation.json"
        evaluation = json.loads(path.read_text())
        members = {name: {"scores": {"sentiment": 0.5}} for name in ("a", "b")}
        path.write_text(json.dumps({**evaluation, "selected_on_dev": True, "members": members}))
        (store / f"pretrain-3-good-{seed}" / "metrics.jsonl").unlink()  # nothing is trained in an ensemble
    finish(store)
    assert "makes the scores too high: Good" in render(store)[1]
    results = PresetResults.read(store, "sample").tables[0]
    assert {of[1:] for of in results.orderings.index} == {("other", "alone")}  # not Good
    assert "good" not in results.against_reference.index.get_level_values(0)


def test_alignment_and_uniformity_are_columns_of_the_rows_that_have_them(store: Path) -> None:
    assert "Uniformity" not in render(store)[1]
    geometry = {"good-0": (0.2, -3.0), "good-1": (0.4, -2.5), "alone-0": (None, -1.0)}  # no pair is similar enough
    for name, (near, spread) in geometry.items():
        path = store / f"evaluate-3-{name}" / "evaluation.json"
        measured = {"alignment": near, "uniformity": spread}
        path.write_text(json.dumps({**json.loads(path.read_text()), "geometry": measured}))
    finish(store)
    table = tables_below(render(store)[1], "Table 3")[0]
    assert table["Row"][-2:] == ["Alignment", "Uniformity"]
    assert table["Good"][-2:] == ["0.300 ± 0.141", f"{markup.MINUS}2.750 ± 0.354"]
    assert table["Other_1 (reference)"][-2:] == ["–", "–"]
    assert table["Alone"][-2:] == ["–", f"{markup.MINUS}1.000"]
    assert {len(cells) for cells in table.values()} == {10}


def test_scores_on_examples_of_the_training_are_marked_and_shown_without_them(store: Path) -> None:
    for seed in (0, 1):
        path = store / f"evaluate-3-good-{seed}" / "evaluation.json"
        overlap = {"sentiment": {"rows": EXAMPLES, "rows_seen": 10 + seed, "clean": 0.25}}
        path.write_text(json.dumps({**json.loads(path.read_text()), "overlap": overlap}))
    finish(store)
    table, overlaps, *_ = tables_below(render(store)[1], "Table 3")
    assert [markup.SEEN in cell for cell in table["Good"]] == [place in (0, 2) for place in range(8)]  # and the mean
    assert overlaps["Good"][:2] == ["Sentiment", "10.5 of 30 (35.0%)"]
    assert overlaps["Good"][3] == "0.250"


def test_latex_tables_are_whole(reported: Path) -> None:
    folder = reported.parent / "report" / "tables"
    assert sorted(path.name for path in folder.iterdir()) == ["one.tex", "table-3.tex"]
    text = (folder / "table-3.tex").read_text()
    assert text.isascii()
    assert r"Heads \textless{}\&\textgreater{} 100\%" in text
    assert r"Other\_1" in text
    scores = read_scores(reported, "good", "overall")
    assert rf"\textbf{{{fmean(scores):.3f} $\pm$ {stdev(scores):.3f}}}" in text
    assert text.count(r"\rlap{$^{\ast}$}") == len(re.findall(r"\\\* \[0", pages(reported)[1].split("Differences")[0]))
    tabular = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    for line in tabular.split(r"\\")[:-1]:
        spans = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d)\}", line))
        assert len(re.findall(r"(?<!\\)&", line)) + spans == 8


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


def test_same_store_same_bytes_without_torch_or_models(store: Path) -> None:
    before = render(store)
    report = store.parent / "report"
    program = (
        "import sys; from multitask.cli.main import main; "
        f"code = main(['report', 'sample', '--runs', {str(store)!r}, '--report', {str(report)!r}]); "
        "print(code, sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert pages(store) == before


@pytest.mark.parametrize(
    ("value", "text"), [(0.0304, "+0.030"), (-0.0304, "−0.030"), (0.0, "0.000"), (-0.0001, "0.000")]
)
def test_signed(value: float, text: str) -> None:
    assert signed(value) == text


def test_a_preset_never_run_and_an_edited_score_are_one_clear_error(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"multitask experiments .*paper"):
        write_report(store, "paper", tmp_path / "report")
    for file in ("evaluate-3-good-0/evaluation.json", "evaluate-3-good-0/predictions.npz"):
        original = (store / file).read_bytes()
        (store / file).write_bytes(original.replace(b"0.", b"9.", 1) + b" ")
        with pytest.raises(InputError, match=f"{file}: changed since the run was complete"):
            write_report(store, "sample", tmp_path / "report")
        (store / file).write_bytes(original)
    assert not (tmp_path / "report").exists()


HOSTILE = "weights\n\\input{secret}\n\n# Heading <b>&|`x`"


def test_names_of_folders_are_text_in_every_format(store: Path, tmp_path: Path) -> None:
    replace(Record.read(store, "sample"), start=HOSTILE, data=HOSTILE).write(store)
    write_report(store, "sample", tmp_path / "report")
    assert "Heading <b>" not in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    markdown = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "\n# Heading" not in markdown
    assert re.search(r"(?<!\\)<b>&", re.sub("`[^`]*`", "", markdown)) is None  # in code it is text anyway
    for path in (tmp_path / "report" / "tables").glob("*.tex"):
        assert "secret" not in path.read_text()


def test_columns_whose_rows_vary_differently_say_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "*Variance over seeds*" not in render(store)[1]
    alike = {OVERALL: True, "sentiment": False, "paraphrase": True, "similarity": True}
    monkeypatch.setattr(TableResults, "alike", alike)
    assert tables_below(render(store)[1], "Table 3")[0]["*Variance over seeds*"][2] == "by row"

"""Pages of a suite's results, and plain-text tables: columns, marks, valid LaTeX."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from multitask.data.markup import aligned
from multitask.evaluation.statistics import DevAnswers
from multitask.evaluation.suite_pages import suite_text, write_suite
from multitask.evaluation.suite_sets import PUBLISHED
from multitask.evaluation.suites import SUITES, SuiteResult
from multitask.evaluation.text_tables import ensemble_table, intervals_table, metrics_table, probe_table, scores_table
from multitask.evaluation.training_overlap import ScoresWithOverlap
from multitask.experiments.score_tables import format_score

STS_NAMES = [entry.name for entry in SUITES["sts"].sets]


def sts_scores(spearman: float) -> dict[str, dict]:
    way = {"spearman": spearman, "pearson": spearman + 0.01}
    return {"all": way, "mean": way, "weighted_mean": way, "subsets": {"headlines": way}}


def task(scores, clean=None, seen: int = 0) -> ScoresWithOverlap:
    return ScoresWithOverlap(1000, scores, 1900, seen, seen // 2, clean or scores, clean or scores)


def suite_result(suite="sts", tasks=None, missing=None, unknown=()) -> SuiteResult:
    tasks = tasks or {name: task(sts_scores(0.7 + 0.01 * place)) for place, name in enumerate(STS_NAMES)}
    settings = {"pooling": "mean", "max_length": 256, "seed": 0}
    seconds = {"embedding": 12.34, "scoring": 0.5}
    return SuiteResult(suite, "my_run", settings, tasks, missing or {}, unknown, 5000, seconds, {})


def cells(text: str, label: str) -> list[str]:
    """The cells of the row of a Markdown or LaTeX table that begins with a label."""
    line = next(line for line in text.splitlines() if re.match(rf"(\| |  )?{re.escape(label)} [|&]", line))
    return [cell.strip() for cell in re.split(r"[|&]", line.strip("| \\"))][1:]


def written(result, tmp_path):
    paths = write_suite(result, tmp_path / "sts.json")
    scores, *pages = (path.read_text(encoding="utf-8") for path in paths)
    return json.loads(scores), *pages


def test_undefined_scores_are_named_and_null_and_absent_ones_a_dash(tmp_path):
    rows = {
        "MR": {"accuracy": 0.5, "f1": math.nan},
        "CR": {"accuracy": math.nan, "f1": 0.25},
        "TREC": {"accuracy": 1.0, "f1": None},
    }
    paths = write_suite(suite_result("transfer", {name: task(of) for name, of in rows.items()}), tmp_path / "x.json")
    values = json.loads(paths[0].read_text(), parse_constant=pytest.fail)
    assert {name: values["tasks"][name]["scores"] for name in rows} == {
        "MR": {"accuracy": 0.5, "f1": None},
        "CR": {"accuracy": None, "f1": 0.25},
        "TREC": {"accuracy": 1.0, "f1": None},
    }
    assert values["average"] is None
    details = paths[1].read_text().partition("## All measures")[2]
    assert cells(details, "MR")[1:] == ["50.00", "undefined"]
    assert cells(details, "CR")[1:] == ["undefined", "25.00"]
    assert cells(details, "TREC")[1:] == ["100.00", "–"]
    assert cells(paths[1].read_text(), "my_run")[-1] == "undefined"


@pytest.mark.parametrize("suite", ["sts", "transfer"])
def test_published_rows_fit_the_columns_and_their_own_averages(suite):
    for row in PUBLISHED[suite]:
        assert len(row["scores"]) == len(SUITES[suite].sets) == 7
        assert sum(row["scores"]) / 7 == pytest.approx(row["average"], abs=0.035)  # one printed average is off by 0.03
        assert re.search(r"(arXiv|doi).*Table", row["source"])


def test_columns_are_the_papers(tmp_path):
    values, markdown, latex = written(suite_result(), tmp_path)
    expected = ["70.00", "71.00", "72.00", "73.00", "74.00", "75.00", "76.00", "73.00"]
    assert cells(markdown, "my_run") == expected
    assert cells(latex, r"my\_run") == expected
    header = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg."]
    assert cells(markdown, "Model") == cells(latex, "Model") == header
    assert cells(markdown, "Unsupervised SimCSE-BERT-base")[-1] == "76.25"
    assert "| all spearman | all pearson | mean spearman | mean pearson | weighted mean spearman |" in markdown
    assert values["average"] == pytest.approx(0.73)
    assert "pooling mean, max length 256" in markdown
    assert "†" not in markdown + suite_text(suite_result())
    assert not re.search("dagger|not trained on", latex)
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", latex)
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") + 1 for line in rows} == {len(columns)}


def test_cells_of_tasks_that_were_trained_on_are_marked(tmp_path):
    tasks = {name: task(sts_scores(0.8)) for name in STS_NAMES}
    tasks["STSBenchmark"] = task(sts_scores(0.8), clean=sts_scores(0.75), seen=190)
    result = suite_result(tasks=tasks, unknown=("base: pre-trained on Wikipedia",))
    _, markdown, latex = written(result, tmp_path)
    assert cells(markdown, "my_run") == ["80.00"] * 5 + ["80.00†", "80.00", "80.00"]
    assert cells(markdown, "my_run, rows not trained on") == ["80.00"] * 5 + ["75.00", "80.00", "79.29"]
    assert cells(latex, r"my\_run")[5] == r"80.00$^{\dagger}$"
    assert cells(markdown, "STSBenchmark") == ["190 of 1,900", "95 of 1,000", "spearman", "80.00", "75.00", "75.00"]
    assert "not known: base: pre-trained on Wikipedia" in markdown
    assert "80.00†" in suite_text(result)


def test_a_partial_average_says_so(tmp_path):
    tasks = {"STS12": task(sts_scores(0.5)), "STS13": task(sts_scores(0.7))}
    missing = {name: f"data/{name}" for name in STS_NAMES[2:]}
    _, markdown, latex = written(suite_result(tasks=tasks, missing=missing), tmp_path)
    assert cells(markdown, "my_run") == ["50.00", "70.00", *["–"] * 5, "60.00‡"]
    assert cells(latex, r"my\_run")[-1] == r"60.00$^{\ddagger}$"
    assert "SICKRelatedness (no data/SICKRelatedness)" in markdown


def test_transfer_and_geometry_tables(tmp_path):
    names = [entry.name for entry in SUITES["transfer"].sets]
    tasks = {name: task({"accuracy": 0.9, "f1": 0.8 if name == "MRPC" else None}) for name in names}
    _, markdown, _ = written(suite_result("transfer", tasks), tmp_path)
    assert cells(markdown, "my_run") == ["90.00"] * 8
    assert cells(markdown, "Model") == ["MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "Avg."]
    names = ("alignment", "uniformity", "mean_cosine", "top_eigenvalue_share", "effective_rank")
    geometry = dict(zip(names, (0.3, -3.5, 0.02, 0.05, 300.0), strict=True))
    values, markdown, latex = written(suite_result("geometry", {"STS12": task(geometry, seen=2)}), tmp_path)
    assert cells(markdown, "STS12†") == ["0.300", "-3.500", "0.020", "0.050", "300.000"]
    assert values["average"] is None
    assert "STS12" in latex


def test_a_line_break_in_a_name_ends_no_comment_and_begins_no_heading(tmp_path):
    hostile = "weights\n\\input{secret}\n# Heading"
    result = replace(suite_result(unknown=(f"the training data of {hostile} is not recorded",)), model=hostile)
    _, markdown, latex = written(result, tmp_path)
    assert r"\input" not in latex
    assert "\n# Heading" not in markdown


# Plain-text tables: what is marked as best.


def test_the_best_defined_score_of_a_column_is_marked():
    scores = [
        {"overall": math.nan, "a": 0.5, "b": math.nan},
        {"overall": 0.25, "a": math.nan, "b": math.nan},
        {"overall": 0.2, "a": 0.5, "b": math.nan},
    ]
    history = [{"epoch": number, "scores": line} for number, line in enumerate(scores, start=1)]
    lines = scores_table(history).splitlines()
    assert [line.split() for line in lines] == [
        ["epoch", "overall", "a", "b"],
        ["1", "undefined", "0.5000*", "undefined"],
        ["2", "0.2500*", "undefined", "undefined"],
        ["3", "0.2000", "0.5000*", "undefined"],
    ]


def test_several_evaluations_of_an_epoch_are_told_apart_by_their_steps():
    history = [{"epoch": 1, "step": step, "scores": {"a": score}} for step, score in ((8, 0.5), (16, 0.25))]
    assert [line.split() for line in scores_table(history).splitlines()] == [
        ["step", "a"], ["8", "0.5000*"], ["16", "0.2500"]
    ]  # fmt: skip


def test_an_undefined_score_of_an_ensemble_is_shown_as_undefined():
    scored = {"overall": math.nan, "scores": {"a": math.nan, "b": 0.5}}
    evaluation = {**scored, "method": "average", "selected_on_dev": False, "members": {"m": scored}, "weights": {}}
    evaluation["weights"] = {"a": {"m": 1.0}, "b": {"m": 1.0}}
    lines = ensemble_table(evaluation).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        [name, "undefined", "undefined", "0.5000"] for name in ("m", "average")
    ]


@pytest.mark.parametrize("method", ["average", "best_per_task"])
@pytest.mark.parametrize("second", ["a", "b"])
def test_an_ensemble_is_optimistic_where_a_task_had_several_members_to_choose_from(method, second):
    members = {name: {"overall": 0.5, "scores": {task: 0.5}} for name, task in (("m", "a"), ("n", second))}
    evaluation = {"overall": 0.5, "scores": dict.fromkeys(("a", second), 0.5), "method": method, "members": members}
    evaluation |= {"selected_on_dev": method != "average", "weights": {"a": {"m": 1.0}, second: {"n": 1.0}}}
    assert ("optimistic" in ensemble_table(evaluation)) == (method == "best_per_task" and second == "a")


def test_an_undefined_score_has_no_interval_and_resamples_without_a_value_are_counted():
    labels, answers = np.array([0.0, 0.0, 1.0]), {}
    answers["same"] = DevAnswers(labels, 1 - 1e-7 * labels, "pearson", None, math.nan)
    answers["right"] = DevAnswers(labels, labels, "matthews", 2, 1.0)
    answers["near"] = DevAnswers(labels, np.array([0.0, 0.5, 1.0]), "pearson", None, 0.75**0.5)
    _, *rows, near, left_out = intervals_table(answers).splitlines()
    assert [row.split() for row in rows] == [
        *([name, "undefined", "-"] for name in ("overall", "same")),
        ["right", "1.0000", "-"],  # each defined resample has the same score
    ]
    # Of the 18 defined resamples, 6 have all three rows, and the others two different ones.
    assert near.split() == ["near", "0.8660", "0.8660", "to", "1.0000"]
    count = re.fullmatch(r"near is undefined on ([\d,]+) of 10,000 resamples: left out", left_out)[1]
    only_one_class = (1 / 3) ** 3 + (2 / 3) ** 3
    assert int(count.replace(",", "")) / 10_000 == pytest.approx(only_one_class, abs=0.02)


def test_a_probe_says_in_how_many_batches_a_mean_is_undefined():
    batches = [{"dissipation": 0.0, "ratio": math.nan, "push": push} for push in (0.5, math.nan, 0.5)]
    *rows, why = probe_table(batches).splitlines()
    shown = [["dissipation", "0.0000", "0.0000"], ["ratio", "-", "-"], ["push", "0.5000", "0.0000"]]
    assert [row.split() for row in rows[1:]] == shown
    assert why.endswith(": ratio (in 3 of 3 batches), push (in 1 of 3 batches)")
    assert len(probe_table([{"ratio": 1.0}]).splitlines()) == 2


def test_a_number_that_rounds_to_zero_has_no_sign():
    assert metrics_table({"same": {"kappa": -1e-9}}, -1e-9).count(" 0.0000") == 2
    assert format_score(-1e-9) == "0.000"


def test_cells_give_a_terminal_no_orders():
    assert aligned([["a\x1b[31m", "b"], ["c\n\x9b", "d"]]) == "a [31m  b\nc       d"

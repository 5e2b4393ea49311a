"""Numbers and verdicts on the studies' pages are those of the published results, which tell what the runs told."""

import csv
import re
import shutil
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy import stats

from minbert.errors import InputError
from minbert.files import read_json, write_json
from multitask.base.runs import Run
from multitask.data.markup import markdown_text
from multitask.experiments.compare_rows import PresetResults
from multitask.experiments.grid_frames import SCORES, GridFrames
from multitask.experiments.results_file import Results, TableScores, scores_as_data
from multitask.experiments.table_definitions import OVERALL, PresetRecord
from multitask.stages.settings_of_pretraining import HELD_OUT
from multitask.tasks import MAIN_TASKS
from scripts import publish_results
from scripts.publish_results import publish, publish_runs
from scripts.published_runs import unpack
from scripts.refresh_study_pages import FIGURES, PAGES, all_contrasts, all_costs, all_verdicts, claims, with_verdicts
from studies.report.claims import judge
from tests.conftest import ROOT
from tests.studies.gradient_paradigm.published import as_published, probed_as_published
from tests.studies.synthetic import write_store

FILES = sorted(PAGES.glob("*.md"))
RESULTS = sorted((PAGES / "results").glob("*.parquet"))
COLUMNS = (OVERALL, *MAIN_TASKS)
CLAIMS, CONTRASTS, COSTS = (PAGES / "results" / f"{name}.csv" for name in ("claims", "contrasts", "costs"))


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.stem)
def test_a_page_has_the_verdicts_of_the_list(page):
    text = page.read_text(encoding="utf-8")
    assert with_verdicts(text, pandas.read_csv(CLAIMS, keep_default_na=False)) == text


@pytest.mark.slow
def test_the_lists_of_claims_and_contrasts_have_the_numbers_of_the_results():
    for file, expected in ((CLAIMS, all_verdicts()), (CONTRASTS, all_contrasts()), (COSTS, all_costs())):
        assert file.read_text(encoding="utf-8") == expected.to_csv(index=False, lineterminator="\n")


NUMBER = r"[+−]?\d[\d,]*(?:\.\d+)?"
WITH_INTERVAL = re.compile(rf"({NUMBER})[%°]?\*?\s+\\?\[({NUMBER})[%°]?,\s+({NUMBER})[%°]?\\?\]")
"""`+0.012 [0.003, 0.021]`, also as percentages and degrees, and where a line breaks within."""
OF_NO_TABLE = re.compile(r"<!-- numbers of no table: (.*?) -->", re.DOTALL)
Known = set[tuple[float, ...]]


def with_intervals(text: str) -> set[tuple[str, ...]]:
    """The numbers of a text that have an interval, with its ends."""
    return set(WITH_INTERVAL.findall(text))


def read(number: str) -> tuple[float, int]:
    """A number, and its decimals."""
    plain = number.replace("−", "-").replace(",", "")
    return float(plain), len(plain.partition(".")[2])


def is_known(found: tuple[str, ...], known: Known) -> bool:
    """Whether results have a number and its interval, or the same with the opposite sign."""
    (value, decimals), (low, _), (high, _) = map(read, found)
    signs = ((value, low, high), (-value, -high, -low))
    return any(tuple(round(one, decimals) + 0.0 for one in of) in known for of in signs)


@cache
def known_numbers(decimals: int) -> Known:
    """Numbers with intervals of all results, so rounded: claims, contrasts, tables, and what other files list."""
    found = [
        tuple(read(one)[0] for one in numbers)
        for number in pandas.read_csv(CLAIMS, keep_default_na=False).number
        for numbers in with_intervals(number)
    ]
    for file in sorted((PAGES / "results").glob("*.csv")):
        listed = pandas.read_csv(file)
        if {"low", "high"} <= set(listed.columns):
            found += listed[["value" if "value" in listed.columns else "mean", "low", "high"]].itertuples(index=False)
    for file in RESULTS:
        for table in Results.load(file).tables:
            for names in (("mean", "low", "high"), ("difference", "difference_low", "difference_high")):
                found += table.cells[list(names)].dropna().itertuples(index=False)
    return {tuple(round(float(one), decimals) + 0.0 for one in of) for of in found}


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.stem)
def test_every_number_with_an_interval_is_that_of_results(page):
    text = page.read_text(encoding="utf-8")
    named = {of for part in OF_NO_TABLE.findall(text) for of in with_intervals(part)}
    shown = with_intervals(OF_NO_TABLE.sub("", text))
    assert named <= shown, "a number that the comment names is no longer on the page"
    unknown = [of for of in shown - named if not is_known(of, known_numbers(read(of[0])[1]))]
    assert unknown == []


def test_a_number_of_no_result_is_found():
    known = known_numbers(3)
    of_claims = with_intervals(pandas.read_csv(CLAIMS, keep_default_na=False).number[0]).pop()
    assert is_known(of_claims, known)
    assert not is_known((of_claims[0], of_claims[1], "0.999"), known)
    assert with_intervals("by 0.091 [0.077, 0.105], +2.2° \\[+1.7°, +2.7°\\] and 816 [599, 1,111]") == {
        ("0.091", "0.077", "0.105"), ("+2.2", "+1.7", "+2.7"), ("816", "599", "1,111")
    }  # fmt: skip


def test_what_few_steps_teach_stands_beside_the_most_frequent_labels():
    """The lowest and highest means of the report's tables, and the majorities of its dev sets and of the recipe's."""
    found = Results.load(PAGES / "results" / "multitask-report-small.parquet").tables
    tables = {of.description.table: of for of in found}

    def shown(keys: Collection[str], task: str) -> str:
        place = [column.task for column in tables["1"].description.columns].index(task)
        means = pandas.concat([tables[key].column(place)["mean"] for key in keys])
        return f"{means.min():.3f} to {means.max():.3f}"

    def majorities(table: TableScores) -> list[str]:
        return [f"{column.majority:.3f}" for column in table.description.columns if column.majority is not None]

    report, best = (
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("studies/multitask-report.md", "best/index.md")
    )
    rows = {"Table 1": ["1"], "Tables 2 to 10": list(map(str, range(2, 11)))}
    for name, keys in rows.items():
        scores = " | ".join(shown(keys, task) for task in ("sentiment", "paraphrase", "similarity"))
        assert f"| {name}, lowest to highest row | {scores} |" in report
    always = "| always the most frequent label | {} | {} | – |"
    assert always.format("–", " | ".join(majorities(tables["2"]))) in report
    [recipe] = Results.load(PAGES / "results" / "multitask-report-best.parquet").tables
    assert always.format("–", " | ".join(majorities(recipe))) in best


def test_what_a_thousand_steps_teach_are_means_of_the_seeds():
    scores = GridFrames.load(PAGES / "results" / "scores" / "multitask-report-medium.parquet")
    labels = {(of.key, row.key): row.label for of in scores.record.tables for row in of.rows}
    found = pandas.DataFrame(
        {"table": run.table, "row": run.row, OVERALL: run.overall, **run.scores}
        | {"at threshold": run.numbers.get("paraphrase", {}).get("accuracy_at_threshold")}
        for run in scores.runs
    ).groupby(["table", "row"])
    means, page = found.mean(), (PAGES / "multitask-report.md").read_text(encoding="utf-8")
    for key in ("none", "nli", "given", "given-single-task"):
        assert f"| {labels['2', key]} | {' | '.join(as_shown(means.loc['2', key]))} |" in page
    assert f"best on the dev set ({', '.join(as_shown(means.loc['2', 'ensemble-dev'])[1:])})" in page
    of_report = means.loc[list(map(str, range(2, 11)))]
    ends = (f"{of_report[task].min():.3f} to {of_report[task].max():.3f}" for task in COLUMNS)
    assert f"| Tables 2 to 10, lowest to highest row of `medium` | {' | '.join(ends)} |" in page
    for key, of_row in means.loc["1"].iterrows():
        shown = [*as_shown(of_row), f"{of_row['at threshold']:.3f}"]
        assert f"| {labels['1', key]} | {' | '.join(shown)} |" in page
    six = GridFrames.load(PAGES / "results" / "scores" / "multitask-report-medium-six-seeds.parquet").runs
    accuracy = np.mean([run.scores["paraphrase"] for run in six if run.row == "none"])
    assert f"fixed (accuracy {accuracy:.3f})" in " ".join(page.split())
    sizes = {(table in ("1", "pairs", "supervision"), size) for (table, _), size in found.size().items()}
    assert sizes == {(True, 3), (False, 6)}
    assert {run.steps for run in scores.runs if run.row == "scheduler=batch_round_robin"} == {3000}


def test_the_wikipedia_start_and_what_losses_make_of_it_are_as_measured():
    page = (PAGES / "random-weights.md").read_text(encoding="utf-8")
    last = pandas.read_csv(PAGES / "results" / "wikipedia-start.csv").iloc[-1]
    reached = f"{last.accuracy:.1%} of the masked tokens of held-out sentences (perplexity {last.perplexity:.1f})"
    assert f"predicts {reached}" in page
    assert f"one epoch: {last.step:,.0f} steps of 64 sentences, {last.tokens / 1e6:.1f} million tokens" in page
    starts = pandas.read_csv(PAGES / "results" / "starts.csv")
    for start, rows in starts.groupby("start"):
        ends = (
            (f"{rows[name].min():.{places}f}", f"{rows[name].max():.{places}f}") for name, places in MEASURED.items()
        )
        assert f"| {start} | {' | '.join(low if low == high else f'{low} to {high}' for low, high in ends)} |" in page
    tables = []
    for name in ("gradient-paradigm", "gradient-paradigm-wikipedia"):
        table = Results.load(PAGES / "results" / f"{name}.parquet").table("objectives")
        tables.append(table.column(0)["mean"].rename(dict(zip(table.lines.row, table.lines.label, strict=True))))
    before = starts.similarity[starts.start.str.contains("and the tasks")].tolist()
    gains = np.subtract(table.column(0)["values"]["infonce"], before)
    assert f"which predicts more masked tokens, by {gains.min():.2f} to {gains.max():.2f}" in " ".join(page.split())
    rows = re.findall(r"^\| ([\w ,]+) \| (0\.\d{3}) \| [^|]+ \| (0\.\d{3}) \| [^|]+ \|$", page, re.MULTILINE)
    assert {label: (of_mlm, of_wikipedia) for label, of_mlm, of_wikipedia in rows} == {
        label: tuple(f"{means[label]:.3f}" for means in tables) for label in tables[0].index
    }


def test_what_pre_training_adds_stands_below_the_scores_without_it():
    page = (PAGES / "random-weights.md").read_text(encoding="utf-8")
    for start, name in {
        "MLM start": "multitask-report-medium",
        "Wikipedia start": "multitask-report-wikipedia",
    }.items():
        scores = GridFrames.load(PAGES / "results" / "scores" / f"{name}.parquet")
        runs = {
            key: pandas.DataFrame(
                {OVERALL: run.overall, **run.scores} for run in scores.runs if (run.table, run.row) == ("2", key)
            ).mean()
            for key in ("none", "nli", "given")
        }
        [at] = [place for place, line in enumerate(page.splitlines()) if line.startswith(f"| {start} | None |")]
        of_none, *added = page.splitlines()[at : at + 3]
        assert of_none == f"| {start} | None | {' | '.join(as_shown(runs['none']))} |"
        for (key, label), line in zip({"nli": "NLI", "given": "3 given"}.items(), added, strict=True):
            expected = [f"{value:+.3f}".replace("-", "−") for value in (runs[key] - runs["none"])[[*COLUMNS]]]
            assert re.findall(r"\| ([+−]0\.\d{3}) \[", line) == expected
            assert line.startswith(f"| | {label}, less None |")
    assert len([run for run in scores.runs if run.table == "2"]) == 9


MEASURED = {"accuracy": 3, "perplexity": 0, "similarity": 3}
"""The columns of starts.csv that the page shows, with their decimals."""


def as_shown(scores: pandas.Series) -> list[str]:
    """Overall and the scores of the report's tasks, as pages show them."""
    return [f"{scores[column]:.3f}" for column in COLUMNS]


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.stem)
def test_a_page_is_read_in_five_minutes(page):
    text = re.sub(r"<!--.*?-->|```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 1500


def test_every_figure_is_drawn_and_shown():
    shown = {name for page in FILES for name in re.findall(r"\]\(figures/([\w-]+)\.svg\)", page.read_text("utf-8"))}
    assert shown == set(FIGURES) == {file.stem for file in (PAGES / "figures").iterdir()}


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[PresetResults, Path]:
    """Results from runs, and a report's files of data."""
    folder = tmp_path_factory.mktemp("report")
    write_store(folder / "runs", ["objectives", "gradient"], as_published, probe=probed_as_published)
    results = PresetResults.read(folder / "runs", "sample")
    scores_as_data(results).save(folder / "results.parquet")
    GridFrames.of_runs(folder / "runs", "sample").save_scores(folder / SCORES)
    return results, folder


def without_answers(results: Path) -> PresetResults:
    """Published results whose answers are not published."""
    return PresetResults.of(GridFrames.load(results / "scores" / "new.parquet"))


@pytest.mark.slow
def test_published_results_tell_what_runs_tell(report, tmp_path):
    """Scores, curves and probes are the same; an interval is that of the paired t test, without other examples."""
    runs, folder = report
    publish(folder, tmp_path / "results" / "new.parquet", ["gradient"])
    (found,) = without_answers(tmp_path / "results").tables
    expected = runs.finished_tables["gradient"]
    assert [(row.key, row.label, row.point) for row in found.table.rows] == [
        (row.key, row.label, row.point) for row in expected.table.rows
    ]
    for row, of in expected.runs.items():
        for run, same in zip(of, found.runs[row], strict=True):
            assert (same.seed, same.curve("similarity")) == (run.seed, run.curve("similarity"))
            for place in ("training batches", "held-out sentences"):
                assert same.probed("distance gap", place) == run.probed("distance gap", place) != []
    contrast = found.contrast({"margin=2": 1, "defaults": -1}, "similarity")
    scores = [[run.scores["similarity"] for run in expected.runs[row]] for row in ("margin=2", "defaults")]
    paired = stats.ttest_rel(*scores).confidence_interval()
    assert contrast is not None
    assert contrast.interval() == pytest.approx((paired.low, paired.high), abs=2e-4)
    assert HELD_OUT not in found.runs["defaults"][0].sources


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_both_files_of_a_study_have_the_same_scores_and_no_folder_of_a_machine(file):
    results, frames = Results.load(file), GridFrames.load(file.parent / "scores" / file.name)
    scores = results.to_pandas()
    names = {*scores.start, *scores.data, *(table.description.start for table in results.tables)}
    assert not [name for name in names if name.startswith("/")]
    runs = {(run.table, run.row, run.seed): run.numbers for run in frames.runs}
    lines = scores.dropna(subset=["seed", "value"])
    numbers = [runs[key] for key in zip(lines.table, lines.row, lines.seed, strict=True)]
    found = zip(numbers, lines.task, lines.metric, lines.value, strict=True)
    apart = [abs(of[task][metric] - value) for of, task, metric, value in found if metric in of.get(task, ())]
    assert len(apart) > len(lines) / 2
    assert max(apart) < 1e-12  # the order in which a mean is summed


def test_a_claim_s_row_gets_the_number_and_the_verdict(report, tmp_path):
    publish(report[1], tmp_path / "results" / "new.parquet", ["objectives"])
    row = "| <!-- new plain --> All fail. | old | old |"
    text = with_verdicts(
        f"# Page\n\n| Claim | Found | Verdict |\n|---|---|---|\n{row}\n| By hand. | 1 | ✓ |\n", all_verdicts(tmp_path)
    )
    assert text.endswith("| By hand. | 1 | ✓ |\n")
    assert re.search(r"All fail\. \| InfoNCE less [\w ]+ \+0\.\d+ .* \| ✓ shown \|\n", text)
    with pytest.raises(InputError, match="no claim other"):
        with_verdicts(row.replace("plain", "other"), all_verdicts(tmp_path))


@pytest.mark.slow
def test_a_claim_s_interval_covers_other_examples_where_runs_are_published(report, tmp_path):
    runs, folder = report
    publish(folder, tmp_path / "results" / "new.parquet", ["objectives", "gradient"])
    (tmp_path / "results" / "runs").mkdir()
    publish_runs(runs.folder, "sample", tmp_path / "results" / "runs" / "new.parquet", ["objectives"])
    verdicts = all_verdicts(tmp_path)
    covers = verdicts.set_index("key").covers
    assert (covers["modified-as-good"], covers["margin"]) == ("seeds and dev examples", "seeds")
    found = with_verdicts("| <!-- new modified-as-good --> Text. | old | old |", verdicts)
    with_examples, seeds_alone = (
        judge([claims()["modified-as-good"]], of.finished_tables).number.iloc[0]
        for of in (runs, without_answers(tmp_path / "results"))
    )
    assert markdown_text(with_examples) in found
    assert markdown_text(seeds_alone) not in found
    other = with_verdicts("| <!-- new margin --> Text, of a table without runs. | old | old |", verdicts)
    without_runs = judge([claims()["margin"]], without_answers(tmp_path / "results").finished_tables)
    assert markdown_text(without_runs.number.iloc[0]) in other


def test_runs_of_another_start_are_not_added_to_a_file(report, tmp_path):
    runs = report[0]
    publish_runs(runs.folder, "sample", tmp_path / "new.parquet", ["objectives"])
    shutil.copytree(runs.folder, tmp_path / "runs")
    record = PresetRecord.read(runs.folder, "sample")
    replace(record, inputs={"dev similarity": "b"}).write(tmp_path / "runs")
    for_others = tmp_path / "others.parquet"
    publish_runs(tmp_path / "runs", "sample", for_others, ["objectives"])
    replace(record, inputs={"dev similarity": "c"}).write(tmp_path / "runs")
    with pytest.raises(InputError, match=r"others\.parquet: has runs of another version of dev similarity"):
        publish_runs(tmp_path / "runs", "sample", for_others, ["gradient"])
    replace(record, start="another").write(tmp_path / "runs")
    with pytest.raises(InputError, match=r"new\.parquet: has runs of .* take another name"):
        publish_runs(tmp_path / "runs", "sample", tmp_path / "new.parquet", ["gradient"])


def test_nothing_is_published_of_a_report_that_lacks_a_table(report, tmp_path, monkeypatch):
    runs, folder = report
    (tmp_path / "results" / "runs").mkdir(parents=True)
    monkeypatch.setattr(publish_results, "PAGES", tmp_path)
    monkeypatch.setattr(publish_results, "PUBLISHED", tmp_path / "results" / "runs")
    (tmp_path / "report").mkdir()
    whole = Results.load(folder / "results.parquet")
    Results(tuple(table for table in whole.tables if table.description.table != "gradient")).save(
        tmp_path / "report" / "results.parquet"
    )
    shutil.copy(folder / SCORES, tmp_path / "report")
    given = ["new", "objectives", "gradient", "--runs", str(runs.folder), "--preset", "sample"]
    monkeypatch.setattr("sys.argv", ["publish_results", str(tmp_path / "report"), *given])
    with pytest.raises(InputError, match="no table gradient"):
        publish_results.main()
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == []


def test_tables_that_are_not_named_stay_as_they_are_published(report, tmp_path):
    file = tmp_path / "new.parquet"
    publish(report[1], file, ["objectives"])
    publish(report[1], file, ["gradient"])
    assert [of.description.table for of in Results.load(file).tables] == ["objectives", "gradient"]
    assert {of.table.key for of in without_answers(tmp_path).tables if of.runs} == {"objectives", "gradient"}
    with pytest.raises(InputError, match="no table u"):
        publish(report[1], file, ["u"])
    (report[1] / SCORES).rename(tmp_path / SCORES)
    with pytest.raises(InputError, match=r"scores\.parquet: no such file"):
        publish(report[1], tmp_path / "half.parquet", ["gradient"])
    (tmp_path / SCORES).rename(report[1] / SCORES)
    assert not (tmp_path / "half.parquet").exists()


def test_runs_that_lack_a_table_are_refused_before_anything_is_published(report, tmp_path, monkeypatch):
    runs = shutil.copytree(report[0].folder, tmp_path / "runs")
    record = PresetRecord.read(runs, "sample")
    of_one = tuple(run for run in record.runs if run.table == "objectives")
    replace(record, tables=tuple(of for of in record.tables if of.key == "objectives"), runs=of_one).write(runs)
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(publish_results, "PAGES", tmp_path)
    monkeypatch.setattr(publish_results, "PUBLISHED", tmp_path)
    options = ["--runs", str(runs), "--preset", "sample"]
    monkeypatch.setattr("sys.argv", ["publish_results", str(report[1]), "new", "objectives", "gradient", *options])
    with pytest.raises(InputError, match="runs: the preset sample has no table gradient; it has objectives"):
        publish_results.main()
    assert not [*(tmp_path / "results").iterdir()]


def test_runs_with_other_settings_are_refused_before_anything_is_published(report, tmp_path, monkeypatch):
    publish_runs(report[0].folder, "sample", tmp_path / "new.parquet", ["objectives"])
    runs = shutil.copytree(report[0].folder, tmp_path / "runs")
    record = PresetRecord.read(runs, "sample")
    replace(record, notes=(*record.notes, "Not with the preset's own settings, but with --epochs 1.")).write(runs)
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(publish_results, "PAGES", tmp_path)
    monkeypatch.setattr(publish_results, "PUBLISHED", tmp_path)
    options = ["--runs", str(runs), "--preset", "sample"]
    monkeypatch.setattr("sys.argv", ["publish_results", str(report[1]), "new", "gradient", *options])
    with pytest.raises(InputError, match=r"new\.parquet: has runs of .*, not of .*--epochs 1.*; take another name"):
        publish_results.main()
    assert not [*(tmp_path / "results").iterdir()]


def test_trials_of_the_best_recipe_have_every_column():
    with (ROOT / "docs" / "best" / "trials.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    low, value, high = (header.index(name) for name in ("low", "difference", "high"))
    assert all(float(row[low]) < float(row[value]) < float(row[high]) for row in rows if row[low])


def test_the_best_recipe_s_page_has_the_numbers_of_its_trials():
    """Intervals are those of trials, but those of gains, which are paired over the seeds that both have."""
    page = (ROOT / "docs" / "best" / "index.md").read_text(encoding="utf-8")
    trials = pandas.read_csv(ROOT / "docs" / "best" / "trials.csv", dtype={"seed": str})
    trials["model"] = trials.question + ": " + trials.variant
    values = trials.groupby(["model", "score", "seed"]).value.first()
    fewer, all_pairs = "best small model: phrases, cleaned", "more labelled pairs: recipe"
    known = set()
    for more, less in ((fewer, "best small model: defaults (reference)"), (all_pairs, fewer)):
        for score in trials.score[trials.model == all_pairs].unique():
            both = pandas.concat([values[more, score], values[less, score]], axis=1, join="inner").to_numpy()
            test = stats.ttest_rel(*both.T)
            assert len(both) == 3
            found = (both[:, 0] - both[:, 1]).mean(), *test.confidence_interval()
            known |= {tuple(np.round(found, 3) + 0.0), tuple(np.round([-found[0], -found[2], -found[1]], 3) + 0.0)}
    columns = trials[["difference", "low", "high"]].dropna().itertuples(index=False)
    known |= {tuple(round(one, 3) + 0.0 for one in of) for of in columns}
    assert [of for of in with_intervals(page) if not is_known(of, known)] == []
    means = [values[all_pairs, score].mean() for score in trials.score[trials.model == all_pairs].unique()]
    assert f"| {' | '.join(f'{value:.3f}' for value in means)} | 7.8 |" in page
    overall = trials[trials.score == "overall mean"]
    ensembles = overall.value[(overall.question == "ensembles") & (overall.rows_scored == 4964)]
    assert len(ensembles) == 9
    assert all(f"{value:.3f}" in page for value in ensembles)


@pytest.mark.slow
def test_published_runs_give_the_results_again_and_hold_no_model(tmp_path):
    """Predictions have the digits of float16, all else is the same."""
    runs = write_store(tmp_path / "runs", ["2", "objectives", "simulations"], as_published)
    model = next(runs.glob("pretrain-2-*"))
    (model / "checkpoints" / "best").mkdir(parents=True)
    (model / "checkpoints" / "best" / "model.safetensors").write_bytes(b"weights")
    write_json(model / "best.json", {"overall": "best"})
    inputs = read_json(model / "inputs.json", dict)
    labels = {"data": f"{tmp_path}/data", "start": "a-model", "teacher": f"{runs}/a-run/checkpoints/best"}
    write_json(model / "inputs.json", {**inputs, "labels": labels})
    Run(model).finish(7.5)
    for keys in (["2", "objectives"], ["objectives"], ["simulations"], ["2"]):
        publish_runs(runs, "sample", tmp_path / "2.parquet", keys)
    unpack(tmp_path / "2.parquet", tmp_path / "new")
    copy = Run(tmp_path / "new" / model.name)
    assert (copy.seconds, copy.kept_models()) == (7.5, {})
    labels = {"data": "data", "start": "a-model", "teacher": "a-run/checkpoints/best"}
    assert read_json(copy.folder / "inputs.json", dict)["labels"] == labels
    assert not [*(tmp_path / "new").rglob("*.safetensors")]
    expected, found = (PresetResults.read(folder, "sample") for folder in (runs, tmp_path / "new"))
    assert [table.key for table in found.record.tables] == ["objectives", "simulations", "2"]
    assert found.record.artefacts() == expected.record.artefacts()
    for row, of in expected.finished_tables["2"].runs.items():
        for run, same in zip(of, found.finished_tables["2"].runs[row], strict=True):
            assert (same.numbers, same.history) == (run.numbers, run.history)
            for task, answers in run.answers.items():
                np.testing.assert_array_equal(same.answers[task].labels, answers.labels)
                np.testing.assert_allclose(
                    same.answers[task].predictions, answers.predictions, rtol=2**-11, atol=2**-24
                )

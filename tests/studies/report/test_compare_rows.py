"""What tables and verdicts are made of: contrasts of rows, and measures of training."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr, ttest_rel

from minbert.files import read_json, write_json
from multitask.evaluation.statistics import Uncertain, draws_of
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.grid_frames import SCORES, GridFrames, RunFacts, RunResult
from multitask.experiments.results_file import TableScores, scores_as_data
from multitask.experiments.score_tables import difference, latex_float, score_table, signed
from multitask.experiments.table_definitions import PresetRecord
from studies.report.claims import Claim, ClaimPlace, UntestedError, covers, judge, last, measured, shrinks
from tests.studies.gradient_paradigm.published import as_published, probed_as_published
from tests.studies.synthetic import without_rows, write_store


@pytest.mark.parametrize("exponent", [1.2, 3])
def test_differences_of_measures_are_paired(exponent):
    a, b = ({seed: 0.02 * seed**power for seed in range(4)} for power in (exponent, 1))
    difference = measured([(1, a), (-1, b)])
    assert difference is not None
    expected = ttest_rel(list(a.values()), list(b.values()))
    assert difference.interval() == pytest.approx(tuple(expected.confidence_interval()), rel=0.012)
    assert difference.p_value() == pytest.approx(expected.pvalue, abs=4e-4)
    assert measured([(1, a), (-1, {seed: b[seed] for seed in (0, 1)})]) is None  # three seeds are needed


@pytest.fixture(scope="module")
def gradient(tmp_path_factory) -> TableResults:
    runs = write_store(tmp_path_factory.mktemp("runs"), ["gradient"], as_published, probe=probed_as_published)
    [results] = PresetResults.read(runs, "sample").tables
    return results


def as_data(table: TableResults) -> TableScores:
    record = SimpleNamespace(preset="sample", data="data", start="start")
    [found] = scores_as_data(SimpleNamespace(record=record, finished_tables={"gradient": table})).tables
    return found


def test_tasks_whose_names_differ_in_case_have_different_headings(gradient):
    alike = replace(gradient, runs={}, table=replace(gradient.table, columns=("topic", "Topic", "urgency")))
    assert [*map(alike.heading, alike.table.score_columns)] == ["Overall", "topic", "Topic", "Urgency"]


def test_other_rows_change_no_contrast(gradient):
    rows = gradient.table.rows[:2]
    weights = {rows[0].key: 1, rows[1].key: -1}
    alone = replace(gradient, table=replace(gradient.table, rows=rows))
    found = alone.contrast(weights, "similarity")
    assert found is not None
    assert found.interval() == gradient.contrast(weights, "similarity").interval()


def test_a_row_with_one_seed_is_not_tested_where_others_have_several(gradient):
    first, second = (row.key for row in gradient.table.rows[:2])
    less = replace(gradient, runs={**gradient.runs, first: gradient.runs[first][:1]})
    assert less.contrast({first: 1, second: -1}, "similarity") is None
    assert np.isnan(less.interval(first, "similarity")).all()
    single = replace(gradient, runs={row: runs[:1] for row, runs in gradient.runs.items()})
    assert single.contrast({first: 1, second: -1}, "similarity").degrees == 0
    assert np.isfinite(single.interval(first, "similarity")).all()


def test_a_model_that_all_seeds_share_varies_over_examples_alone(gradient):
    first, second, *_ = (row.key for row in gradient.table.rows)
    [one, *_], varied = gradient.runs[first], gradient.runs[second]
    shared = replace(gradient, runs={first: tuple(replace(one, seed=seed) for seed in range(3)), second: varied})
    draws = shared.scores[first, "similarity"].resampled[:, 0]
    assert shared.interval(first, "similarity") == pytest.approx(
        tuple(np.quantile(draws, (0.025, 0.975), method="hazen"))
    )


def test_a_contrast_needs_every_row(gradient):
    weights = {"defaults": 1.0, "ratio=2": -1.0}
    assert gradient.contrast(weights, "similarity") is not None
    assert gradient.contrast({**weights, "ratio=3": 1.0}, "similarity") is None
    assert without_rows(gradient, "ratio=2").contrast(weights, "similarity") is None


def test_the_end_of_training_is_its_last_line_or_nothing(gradient):
    run = gradient.runs["defaults"][0]
    lines = deepcopy(run.history)
    seen = lines[-1]["numbers"]["training"]
    assert last("distance gap")(run) == seen["unlabelled distance gap"]
    begun = lines[0]["numbers"]["training"]["unlabelled distance gap"]
    assert shrinks("distance gap")(run) == pytest.approx(np.log(seen["unlabelled distance gap"] / begun))
    both = "distance gap", next(n for n in probed_as_published(gradient.table.rows[0]) if n != "distance gap")
    assert last(" + ".join(both))(run) == pytest.approx(sum(seen[f"unlabelled {name}"] for name in both))
    del seen["unlabelled distance gap"]
    assert last("distance gap")(replace(run, history=lines)) is None
    assert shrinks("distance gap")(replace(run, history=lines)) is None


def untested(_):
    raise UntestedError("for a reason")


def test_a_verdict_is_written_with_the_interval_that_decides_and_what_that_covers(gradient):
    """Of four claims that count, two are shown, so that their level is a half of 5%; one is refuted at a third."""
    good, bad = "defaults", "margin=2"
    says = {
        "higher": lambda results: results.above(good, bad),
        "lower": lambda results: results.above(bad, good),
        "gap": lambda results: results.above(bad, good, measure=last("distance gap")),
        "untested": untested,
    }
    claims = [Claim(key, "p", "s", "t", "c", function, (ClaimPlace("gradient"),)) for key, function in says.items()]
    found, read_twice = (judge(claims, {"gradient": gradient}, readings=n).set_index("key") for n in (1, 2))
    assert found.status.to_list() == ["shown", "equivalent or opposite", "shown", "not tested here"]
    assert found.covers.to_list() == ["seeds and dev examples", "seeds and dev examples", "seeds", ""]
    for key, first, second, level in (("higher", good, bad, 0.05 / 2), ("lower", bad, good, 0.05 / 3)):
        contrast = gradient.contrast({first: 1, second: -1}, "similarity")
        for verdicts, at in ((found, level), (read_twice, level / 2)):
            assert verdicts.corrected[key] == f"[{', '.join(map(signed, contrast.interval(at)))}]"
    alone = {row: (replace(runs[0], answers={}),) for row, runs in gradient.runs.items()}
    assert set(judge(claims, {"gradient": replace(gradient, runs=alone)}).status) == {"not tested here"}


def test_an_interval_covers_examples_also_where_a_resample_is_undefined():
    draws = np.array([0.1, 0.2, np.nan])
    assert covers(Uncertain(0.15, draws, 0.01, 2)) == "seeds and dev examples"
    assert covers(Uncertain(0.15, draws)) == "dev examples"  # one seed
    assert covers(Uncertain(0.15, np.full(3, 0.15), 0.01, 2)) == "seeds"


def test_probed_values_are_found_by_their_exact_names(gradient):
    run = gradient.runs["defaults"][0]
    assert [step for step, _ in run.probed("distance gap")] == [8, 16, 24]
    assert run.probed("ratio") == run.probed("gap") == []  # the median is another statistic, and a part is none
    assert run.probed("none") == []


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_differences_are_significant_from_the_size_that_is_told(tmp_path, noise):
    """Of rows whose scores rise in small steps, and vary alike or not over seeds."""
    (table,) = PresetResults.read(write_store(tmp_path, ["objectives"]), "sample").tables
    rows = [row.key for row in table.table.rows]
    rising = {}
    for place, row in enumerate(rows):
        usual = table.scores[row, "similarity"]
        observed = np.array([0.5, 0.51, 0.52]) + (0.004 + noise / 4) * place
        observed[::2] += noise * (place % 2) * np.array([-1, 1])
        moved = usual.resampled - usual.observed + observed
        rising[row, "similarity"] = replace(usual, observed=observed, resampled=moved)
    table = replace(table)
    table.__dict__["scores"] = rising
    least, most = table.significant_from("similarity") or (0, 0)
    tests = table.against_reference.droplevel(1)
    differences, sure = dict(tests.difference.abs()), set(tests.index[tests.significant])
    assert {row for row, size in differences.items() if size > most} <= sure < set(differences)
    assert max(differences[row] for row in differences if row not in sure) <= most
    assert min(differences[row] for row in sure) >= 0.9 * least  # those that Holm's correction lets pass later
    assert table.significant_from("sentiment") is None
    alone = replace(table, runs={row: runs[:1] for row, runs in table.runs.items()})
    assert alone.significant_from("similarity") is None  # one seed does not tell


def test_a_run_that_is_not_scored_yet_has_no_place_in_the_results(tmp_path):
    runs = write_store(tmp_path, ["gradient"], as_published)
    record = PresetRecord.read(runs, "sample")
    first, *others = record.runs
    replace(record, runs=(replace(first, chain=first.chain[:1]), *others)).write(runs)
    [results] = PresetResults.read(runs, "sample").tables
    assert {run.seed for run in results.runs[first.row]} == {run.seed for run in others if run.row == first.row}


def test_a_table_is_compared_by_the_metric_that_chooses_checkpoints_and_shows_the_task_s_own(gradient):
    """The Spearman correlation of the predictions, in scores, intervals and curves; the task's own stands beside it."""
    first = gradient.table.rows[0].key
    runs = gradient.runs[first]
    answers = [run.answers["similarity"] for run in runs]
    expected = [spearmanr(of.predictions, of.labels).statistic for of in answers]
    assert gradient.scores[first, "similarity"].observed == pytest.approx(expected)
    assert runs[0].curve("similarity") == [line["numbers"]["similarity"]["spearman"] for line in runs[0].history]
    draws = draws_of("similarity").integers(len(answers[0].labels), size=len(answers[0].labels))
    resampled = spearmanr(answers[0].predictions[draws], answers[0].labels[draws]).statistic
    assert gradient.scores[first, "similarity"].resampled[0, 0] == pytest.approx(resampled)
    found = as_data(gradient)
    assert [(column.task, column.metric) for column in found.description.columns] == [
        ("similarity", "spearman"), ("similarity", "pearson")
    ]  # fmt: skip
    assert found.column(1)["mean"][first] == pytest.approx(
        np.mean([pearsonr(of.predictions, of.labels).statistic for of in answers])
    )
    assert found.column(1).low.isna().all()


def test_one_seed_whose_answers_are_unknown_is_shown_without_intervals_and_tests(tmp_path):
    write_store(tmp_path, ["1"], lambda _, row, __: 0.9 if row.key == "fusion" else 0.6, seeds=1)
    GridFrames.of_runs(tmp_path, "sample").save_scores(tmp_path / SCORES)
    results = PresetResults.of(GridFrames.load(tmp_path / SCORES))
    [found] = scores_as_data(results).tables
    header, _, *rows = score_table(found, [2]).splitlines()
    assert header == "| Row | Paraphrase accuracy | Published |"
    assert rows[0] == "| Vanilla BERT (baseline) | 0.600 | 0.388 |"
    assert rows[3] == "| Fusion (reference) | **0.900** | 0.410 |"
    assert r" & \textbf{0.900} & 0.410 & " in latex_float(found, "")
    ordering = results.tables[0].orderings.loc["paraphrase", "fusion", "vanilla"]
    assert difference(ordering) == "+0.300"


def test_what_an_evaluation_says_of_other_rows_and_of_its_members(tmp_path):
    """A score on other rows is by the evaluation's measure alone; members of different tasks leave no choice."""
    write_store(tmp_path, ["1"], seeds=1)
    path = tmp_path / "evaluate-1-fusion-0" / "evaluation.json"
    written, overlap = read_json(path, dict), {"rows": 30, "rows_seen": 1, "clean": 0.25}
    facts = RunFacts("1", "fusion", 0, "pretrain-1-fusion-0", "evaluate-1-fusion-0")
    for other, chosen in (("paraphrase", False), ("sentiment", True)):
        members = {name: {"scores": {task: 0.5}} for name, task in (("a", "sentiment"), ("b", other))}
        more = {"overlap": {"sentiment": overlap}, "selected_on_dev": True, "members": members}
        write_json(path, written | more)
        usual, another = (RunResult.read(tmp_path, facts, of_table) for of_table in ({}, {"sentiment": "macro_f1"}))
        assert usual.overlap("sentiment") == overlap
        assert another.overlap("sentiment") == {"rows": 30, "rows_seen": 1}
        assert usual.chosen_on_dev == chosen


def test_the_most_frequent_label_stands_below_every_accuracy(tmp_path):
    """Of five classes and of two that are equally frequent; similarity and means have none."""
    results = PresetResults.read(write_store(tmp_path, ["2"], as_published), "sample")
    [found] = scores_as_data(results).tables
    expected = {"overall": None, "sentiment": 0.2, "paraphrase": 0.5, "similarity": None}
    assert {column.task: column.majority for column in found.description.columns} == expected
    [line] = [line for line in score_table(found, range(4)).splitlines() if "Most frequent label" in line]
    assert [cell.strip() for cell in line.strip("| ").split("|") if cell.strip()] == [
        "*Most frequent label*", "0.200", "0.500"
    ]  # fmt: skip


def test_the_share_of_resamples_without_a_score_stands_below_it(gradient):
    """Of one row 30% of the resamples, of another one less."""
    table = replace(gradient)
    table.__dict__["scores"] = dict(gradient.scores)
    for row, part in (("defaults", 0.3), ("ratio=2", 0.1)):
        scores = table.scores[row, "similarity"]
        resampled = scores.resampled.copy()
        resampled[: round(part * len(resampled)), 0] = np.nan
        table.scores[row, "similarity"] = replace(scores, resampled=resampled)
    for shown, cell in ((gradient, ""), (table, "| *Resamples left out* | 30.0% |")):
        lines = [line for line in score_table(as_data(shown), [0]).splitlines() if "left out" in line]
        assert "".join(" ".join(line.split()) for line in lines) == cell

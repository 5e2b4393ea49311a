"""The table of a tasks file, run whole: three tasks of the kinds and metrics that the course's tasks lack."""

import csv
import json
import math
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from minbert.errors import InputError
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.cli.main import main
from multitask.experiments.compare_rows import PresetResults, TableResults
from multitask.experiments.grid import write_best_predictions
from multitask.experiments.grid_frames import ANSWERS, SCORES, GridFrames
from multitask.experiments.own_tasks_table import tasks_preset
from multitask.experiments.report_page import report_of
from multitask.experiments.results_file import scores_as_data
from multitask.experiments.score_tables import best_mean
from multitask.experiments.table_definitions import OVERALL, PresetRecord
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import FinetuneConfig
from tests.multitask import declared

TASKS = "\n".join(
    f'[tasks.{name}]\ntext = "text"\nlabel = "{name}"\n{own}\n'
    'train = "train.jsonl"\ndev = "dev.jsonl"\ntest = "dev.jsonl"\n'
    for name, own in {
        "topic": 'kind = "classification"\nlabels = ["food", "music"]\nmetric = "macro_f1"',
        "tags": 'kind = "multilabel"\nmetric = "average_precision"',
        "stars": 'kind = "regression"\nmetric = "rmse"',
    }.items()
)
NAMES = ("topic", "tags", "stars")
ROWS = ("alone=topic", "alone=tags", "alone=stars", "alone", "scheduler=average", "scheduler=pcgrad")


def write_rows(path: Path, count: int) -> None:
    """Rows whose topic, tags and stars can be read off their words."""
    draw = random.Random(path.name)
    rows = []
    for number in range(count):
        topic, tags = ("food", "music")[number % 2], draw.sample(["cheap", "loud", "late"], k=1 + number % 2)
        words = [*{"food": ("soup", "bread"), "music": ("band", "song")}[topic], *tags]
        text = f"the {' and the '.join(draw.sample(words, k=len(words)))} {number}"
        rows.append({"text": text, "topic": topic, "tags": tags, "stars": 1.0 + len(tags) + number % 3})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def tasks_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own-tasks")
    write_rows(folder / "train.jsonl", 40)
    write_rows(folder / "dev.jsonl", 24)
    (folder / "tasks.toml").write_text(TASKS, encoding="utf-8")
    return folder / "tasks.toml"


def arguments(command: str, tasks_file: Path, tiny_encoder: Path, work: Path, *more: object) -> list[str]:
    given = ("--tasks-file", tasks_file, "--start", tiny_encoder, "--runs", work / "runs", "--device", "cpu")
    settings = ("--epochs", 2, "--learning-rate", 1e-3, "--conflicts-every", 1, "--patience", 9, "--ordinal", "topic")
    schedulers = ("--schedulers", "average", "pcgrad")
    return [str(part) for part in ("experiments", command, *given, *settings, *schedulers, *more)]


@pytest.fixture(scope="module")
def work(tasks_file, tiny_encoder, few_resamples, tmp_path_factory) -> Path:
    """A folder with the runs, the report and the predictions of two seeds."""
    folder = tmp_path_factory.mktemp("table")
    places = ("--report", folder / "report", "--predictions", folder / "predictions", "--workers", 1, "--seeds", 2)
    assert main(arguments("run", tasks_file, tiny_encoder, folder, *places)) == 0
    return folder


@pytest.fixture(scope="module")
def results(work) -> TableResults:
    (results,) = PresetResults.read(work / "runs", "tasks").tables
    return results


@pytest.mark.parametrize(("name", "united"), [("Topic", "Each alone"), ("Each", "Each task alone")])
def test_names_that_differ_in_case_or_are_part_of_a_label_are_of_two_rows(
    name, united, tasks_file, tiny_encoder, tmp_path, capsys
):
    shutil.copytree(tasks_file.parent, tmp_path / "data")
    named = tmp_path / "data" / "tasks.toml"
    named.write_text(TASKS.replace("tasks.stars", f"tasks.{name}"), encoding="utf-8")
    assert main(arguments("plan", named, tiny_encoder, tmp_path)) == 0
    shown = capsys.readouterr().out
    assert f"{name} alone" in shown
    assert united in shown


def test_rows_are_the_tasks_alone_and_together(work, results):
    assert tuple(row.key for row in results.table.rows) == ROWS
    assert results.table.columns == NAMES
    record = PresetRecord.read(work / "runs", "tasks")
    assert record.failures == []
    for row in ROWS:
        scored = NAMES if "alone=" not in row else (row.removeprefix("alone="),)
        for run in record.of_row("tasks", row):
            found = json.loads((work / "runs" / str(run.evaluation) / "evaluation.json").read_text())
            assert set(found["scores"]) == set(scored)
            trained = json.loads((work / "runs" / run.chain[0] / "config.json").read_text())
            assert (trained["epochs"], trained["epoch_size"], trained["seed"]) == (2, 40, run.seed)


def test_the_note_says_that_patience_may_end_a_training_early(tasks_file, tiny_encoder):
    for changed, trained in (({"patience": 1}, "at most 5 epochs"), ({}, "5 epochs"), ({"epochs": 1}, "one epoch")):
        settings = FinetuneConfig(**{"epochs": 5, "epoch_size": 8} | changed)
        [table] = tasks_preset(tasks_file, str(tiny_encoder), settings, ["average"]).experiments
        assert table.table.note.startswith(f"Every row trains for {trained} of 8 examples of each task;")


def test_each_alone_has_the_scores_of_the_single_models_and_an_overall_score(results):
    for task in NAMES:
        ours, single = results.scores["alone", task], results.scores[f"alone={task}", task]
        np.testing.assert_array_equal(ours.observed, single.observed)
        np.testing.assert_array_equal(ours.resampled, single.resampled)
        assert (f"alone={task}", OVERALL) not in results.scores
        assert results.curves(f"alone={task}", OVERALL) == []
    assert results.curves("scheduler=average", OVERALL) != []


def test_overall_leaves_out_the_error_and_the_lowest_error_is_the_best(work, results):
    for row in ROWS[3:]:
        parts = [results.scores[row, task].observed.mean() for task in ("topic", "tags")]
        assert results.scores[row, OVERALL].observed.mean() == pytest.approx(fmean(parts))
    (table,) = scores_as_data(PresetResults.read(work / "runs", "tasks")).tables
    stars, tags = ([column.task for column in table.description.columns].index(task) for task in ("stars", "tags"))
    assert best_mean(table, stars) == pytest.approx(min(results.mean(row, "stars") for row in ROWS[2:]))
    assert best_mean(table, tags) == pytest.approx(max(results.mean(row, "tags") for row in (ROWS[1], *ROWS[3:])))


def test_only_models_that_differ_from_the_reference_are_tested_and_each_counts_once(results):
    columns = (OVERALL, *NAMES)
    assert {*results.against_reference.index} == {(row, column) for row in ROWS[4:] for column in columns}


def test_predictions_of_average_precision_are_probabilities(results):
    (run, *_) = results.runs["scheduler=average"]
    labels, predictions, *_ = run.answers["tags"]
    assert predictions.shape == labels.shape == (24, 3)
    expected = average_precision_score(labels > 0.5, predictions)
    assert run.scores["tags"] == pytest.approx(expected)


def test_frames_hold_what_runs_hold(work):
    """Every number and every answer, also of several labels a row, with its type."""
    frames = GridFrames.load(work / "report" / SCORES, work / "report" / ANSWERS)
    read = GridFrames.of_runs(work / "runs", "tasks")
    assert len(frames.runs) == len(read.runs) == 2 * len(ROWS)
    for found, run in zip(frames.runs, read.runs, strict=True):
        facts, expected = ({name: of for name, of in vars(one).items() if name != "answers"} for one in (found, run))
        np.testing.assert_equal(facts, expected)  # also where a number is NaN
        assert found.answers.keys() == run.answers.keys()
        for task, (labels, predictions, *others) in run.answers.items():
            same = found.answers[task]
            assert (same.labels.dtype, same.predictions.dtype) == (labels.dtype, predictions.dtype)
            np.testing.assert_array_equal(same.labels, labels)
            np.testing.assert_array_equal(same.predictions, predictions)
            assert [*same[2:]] == others


@pytest.mark.parametrize("name", [SCORES, ANSWERS])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes((path.parent / "results.parquet").read_bytes()),
    ],
)
def test_a_damaged_frame_and_another_file_are_one_clear_line(damage, name, work, tmp_path):
    for file in (SCORES, ANSWERS, "results.parquet"):
        shutil.copy(work / "report" / file, tmp_path)
    damage(tmp_path / name)
    with pytest.raises(InputError) as raised:
        GridFrames.load(tmp_path / SCORES, tmp_path / ANSWERS)
    assert str(raised.value).startswith(str(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_scores_that_are_not_there_are_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="no such file; `multitask experiments run` writes"):
        GridFrames.load(tmp_path / SCORES)


def test_a_second_run_and_a_plan_find_everything_computed(work, tasks_file, tiny_encoder, capsys):
    assert main(arguments("plan", tasks_file, tiny_encoder, work, "--seeds", 2)) == 0
    assert "to do: 0 of 22 stages" in capsys.readouterr().out
    changed = tasks_file.with_name("changed.toml")
    changed.write_text(TASKS.replace('"rmse"', '"pearson"'), encoding="utf-8")
    assert main(arguments("plan", changed, tiny_encoder, work, "--seeds", 2)) == 0
    assert "to do: 18 of 22 stages" in capsys.readouterr().out  # two tasks alone are trained as before


def test_the_report_begins_with_the_best_model_and_its_first_dev_example(work, tasks_file):
    page = (work / "report" / "report.md").read_text(encoding="utf-8")
    (part,) = re.findall(r"^## The best model\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    row = json.loads(tasks_file.with_name("dev.jsonl").read_text().splitlines()[0])
    shown = {line.split("**")[1]: line for line in part.splitlines() if line.startswith("- **")}
    with (work / "predictions" / "topic-dev-output.csv").open(encoding="utf-8") as file:
        (_, predicted), *_ = [*csv.reader(file)][1:]
    assert f"“{row['text']}” Label {row['topic']}, prediction {predicted.strip()}." in shown["Topic"]
    assert f"“{row['text']}” Label {row['stars']:.2f}, prediction" in shown["Stars"]
    assert "example" not in shown["Tags"]  # its metric compares probabilities


def test_a_better_row_that_keeps_no_model_is_named_and_writes_the_prediction_files(
    work, tasks_file, tiny_encoder, few_resamples, tmp_path
):
    """As if the models of single tasks, which answer together in seed 1, were better than all others, or as good."""
    preset = tasks_preset(tasks_file, str(tiny_encoder), FinetuneConfig(), ["average"])
    frames = GridFrames.of_runs(work / "runs", "tasks")
    options = RunOptions("cpu", "fp32", work / "runs")
    for score in (0.75, 0.5):
        overall = {(run.row, run.seed): 0.25 for run in frames.runs} | {("scheduler=pcgrad", 0): 0.5}
        overall["alone", 1] = score
        runs = tuple(
            replace(run, numbers={**run.numbers, OVERALL: {"mean": overall[run.row, run.seed]}}) for run in frames.runs
        )
        results = PresetResults.of(replace(frames, runs=runs), work / "runs")
        text = report_of(results, tmp_path / "report").with_name("report.md").read_text(encoding="utf-8")
        (best,) = [line for line in text.splitlines() if line.startswith("**Together, pcgrad:reduction=mean** ")]
        scored = "has the best overall dev score of the models that are kept, 0.500." in best
        named = (
            "Better, but not kept as one model: **Each alone** (Each task alone and all tasks together), 0.750." in best
        )
        assert scored == named == (score == 0.75)
        if score == 0.75:
            (alone,) = [run for run in frames.record.of_row("tasks", "alone") if run.seed == 1]
            written = write_best_predictions(preset, results, options, tmp_path)
            assert {path.name for path in written} == {
                f"{task}-{part}-output.csv" for task in NAMES for part in ("dev", "test")
            }
            for path in written:
                assert path.read_bytes() == (work / "runs" / alone.chain[-1] / "predictions" / path.name).read_bytes()


def test_the_report_is_written_again_and_says_what_is_undefined(work, tmp_path):
    """As if one seed's models of `topic` had predicted a constant."""
    runs = tmp_path / "runs"
    shutil.copytree(work / "runs", runs)
    chosen = next(run for run in PresetRecord.read(runs, "tasks").of_row("tasks", "scheduler=pcgrad") if run.seed == 1)
    changed = Run(runs / str(chosen.evaluation))
    found = json.loads((changed.folder / "evaluation.json").read_text())
    found["scores"]["topic"] = found["overall"] = math.nan
    (changed.folder / "evaluation.json").write_text(json.dumps(found))
    changed.finish()
    assert main(["report", "tasks", "--runs", str(runs), "--report", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| Together, pcgrad:reduction=mean | undefined")]
    assert [cell.strip() for cell in line.split("|")][2:4] == ["undefined", "undefined"]
    assert "nan" not in text.lower()


def test_all_takes_every_installed_scheduler_but_the_one_for_single_tasks(tasks_file, tiny_encoder, tmp_path, capsys):
    given = arguments("plan", tasks_file, tiny_encoder, tmp_path)
    assert main([*given[: given.index("--schedulers")], "--schedulers", "all", "pcgrad:reduction=sum"]) == 0
    shown = capsys.readouterr().out
    for name in ("average", "epoch_round_robin", "annealed", "mgda", "random", "pcgrad:reduction=sum"):
        assert f"Together, {name} " in shown
    assert "Together, single" not in shown


def test_tasks_without_a_score_to_choose_by_say_what_is_kept_and_that_nothing_is_predicted(
    work, tasks_file, tiny_encoder, tmp_path, caplog
):
    """Lower errors are better; here as if no model's overall score were defined."""
    preset = tasks_preset(tasks_file, str(tiny_encoder), FinetuneConfig(), ["average"])
    assert "Overall leaves out stars, because lower scores are better there; alone, the last epoch is kept." in (
        preset.experiments[0].table.note
    )
    frames = GridFrames.of_runs(work / "runs", "tasks")
    runs = tuple(replace(run, numbers={**run.numbers, OVERALL: {"mean": math.nan}}) for run in frames.runs)
    results = PresetResults.of(replace(frames, runs=runs))
    assert write_best_predictions(preset, results, RunOptions(), tmp_path / "out") == []
    assert caplog.messages[-1] == "no predictions for topic, tags, stars: no model has an overall score"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "topic-dev-output.csv").write_text("of another model")
    assert write_best_predictions(preset, results, RunOptions(), tmp_path / "out") == []
    assert caplog.messages[-1] == f"{tmp_path / 'out'}: not of these results, but there before: topic-dev-output.csv"


def test_a_task_alone_has_the_settings_that_are_for_it(tmp_path):
    pair = {"text": ["a", "b"], "label": "score"}
    tasks = {
        "alike": {"kind": "cosine", **pair},
        "stars": {"kind": "regression", "text": "a", "label": "score"},
        "topic": {"kind": "classification", "text": "a", "label": "topic"},
        "same": {"kind": "pair_classification", **pair, "labels": [0, 1]},
    }
    columns = {"a": ["one", "two"], "b": ["four", "five"], "score": [0, 1], "topic": ["x", "y"]}
    settings = FinetuneConfig(
        calibrate=True,
        matryoshka=(8,),
        patience=2,
        ordinal=("topic",),
        heads=HeadsConfig("none", similarity_pairs="embeddings"),
    )
    preset = tasks_preset(declared.tasks_file(tmp_path, columns, **tasks), "start", settings, ["average"])
    found = {key.removeprefix("alone="): node.config for key, node in preset.experiments[0].models.items()}
    given = {
        name: [field for field in ("calibrate", "matryoshka", "patience", "ordinal") if getattr(found[name], field)]
        for name in tasks
    }
    assert given == {
        "alike": ["matryoshka", "patience"],
        "stars": ["patience"],
        "topic": ["calibrate", "patience", "ordinal"],
        "same": ["calibrate", "matryoshka", "patience"],
    }
    assert found["scheduler=average"].matryoshka == (8,)


def test_a_scheduler_that_is_written_in_two_ways_has_one_row(tasks_file, tiny_encoder):
    written = ["pcgrad", "cagrad:c=0.40", "pcgrad:reduction=mean", "cagrad:c=0.4", "cagrad"]
    preset = tasks_preset(tasks_file, str(tiny_encoder), FinetuneConfig(), written)
    keys = [key.removeprefix("scheduler=") for key in preset.experiments[0].models if key.startswith("scheduler=")]
    assert keys == ["pcgrad", "cagrad:c=0.40", "cagrad"]


def test_a_number_of_workers_is_refused_with_ray(tasks_file, tmp_path, capsys):
    given = ["--tasks-file", str(tasks_file), "--runs", str(tmp_path), "--engine", "ray", "--workers", "2"]
    assert main(["experiments", "run", *given]) == 2
    expected = "error: --workers is for --engine local; a Ray cluster computes on all its machines\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--tasks topic", "FILE: a table compares two or more tasks; for one use `multitask finetune`"),
        ("--scheduler pcgrad", "--scheduler is not for a table; with --tasks-file it takes --schedulers"),
        ("--seed 1", "--seed is not for a table; it takes --seeds"),
        ("--no-new-heads", "--new-heads is not for a table, whose rows begin all heads anew"),
        ("--held-out 0.3", "--held-out is not for a table, whose rows are compared on each task's dev set"),
        ("--schedulers averge", '--schedulers: unknown scheduler "averge"; expected one of: aligned_mtl, annealed, '),
        ("--schedulers all averge", '--schedulers: unknown scheduler "averge"; expected one of: aligned_mtl'),
        ("--schedulers single", "--schedulers: scheduler single trains one task; name only one of topic, tags, stars"),
    ],
)
def test_what_cannot_be_a_table_is_refused(more, line, tasks_file, tmp_path, capsys):
    given = ["experiments", "plan", *more.split(), "--tasks-file", str(tasks_file), "--runs", str(tmp_path)]
    assert main(given) == 2
    assert capsys.readouterr().err.startswith(f"error: {line.replace('FILE', str(tasks_file))}")

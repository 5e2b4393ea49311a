"""Calibration, scores of classes and the worst errors, against scikit-learn, closed forms and slow loops."""

import csv
import json
import logging
import re
import time
import tracemalloc
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.data.tables import Format, RowsFrom
from multitask.evaluation.calibration_and_errors import (
    calibration,
    class_scores,
    confidence_of,
    worst_errors,
    write_details,
)
from multitask.models.estimates import estimate, load_split, with_files_of, write_predictions, written
from multitask.models.multitask_model import MultitaskModel, load_model
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from tests.conftest import with_files
from tests.multitask.declared import declared_tasks

RNG = np.random.default_rng(0)
ROWS = 400
LABELS = RNG.integers(3, size=ROWS)
LOGITS = (RNG.normal(size=(ROWS, 3)) + 1.5 * np.eye(3)[LABELS]).astype(np.float32)


def examples(labels, columns=1) -> Examples:
    texts = tuple([f"-text {column} {row}" for row in range(len(labels))] for column in range(columns))
    return Examples(texts, np.asarray(labels, np.float32), (), None, "x.csv")


@pytest.mark.parametrize("bins", [1, 5, 10, 15])
def test_bins_of_confidence_are_scikit_learns_and_their_mean_gap_is_the_calibration_error(bins):
    probabilities = softmax(LOGITS.astype(float), axis=1)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == LABELS
    error, found = calibration(confidence, right, bins)
    share, mean = calibration_curve(right, confidence, n_bins=bins)
    np.testing.assert_array_equal(found.rows, np.histogram(confidence, bins, (0, 1))[0])
    filled = found[found.rows > 0]
    np.testing.assert_allclose(filled.accuracy, share)
    np.testing.assert_allclose(filled.confidence, mean)
    assert error == pytest.approx(np.average(abs(share - mean), weights=filled.rows))


def test_scores_of_classes_equal_scikit_learn_and_intervals_hold_them():
    predicted = LOGITS.argmax(axis=1)
    every = np.arange(3)
    found = class_scores(predicted[:, None] == every, LABELS[:, None] == every, ("a", "b", "c"))
    expected = precision_recall_fscore_support(LABELS, predicted)
    np.testing.assert_allclose(found[["precision", "recall", "f1", "rows"]].T, expected)
    assert (found.f1_low < found.f1).all()
    assert (found.f1 < found.f1_high).all()


def test_scores_without_a_prediction_or_a_row_are_undefined():
    nothing, everything = np.zeros((4, 1), bool), np.ones((4, 1), bool)
    rows = [class_scores(*given, "a").iloc[0, 1:5].tolist() for given in ((nothing, everything), (everything, nothing))]
    np.testing.assert_array_equal(rows, [[4, np.nan, 0, 0], [0, 0, np.nan, 0]])
    absent = class_scores(nothing, nothing, "a")
    assert absent[["f1", "f1_low", "f1_high"]].isna().all(axis=None)
    assert absent.f1_left_out.tolist() == [2000]


def test_resamples_without_a_class_are_left_out_of_its_interval_and_counted():
    """One of 30 rows has the class, and it alone is predicted to: F1 is 1 wherever it is drawn."""
    one = np.arange(30)[:, None] == 0
    found = class_scores(one, one, "a").iloc[0]
    assert (found.f1, found.f1_low, found.f1_high) == (1, 1, 1)
    assert found.f1_left_out / 2000 == pytest.approx((29 / 30) ** 30, abs=0.05)


def test_intervals_of_classes_are_those_of_resampled_rows():
    predicted = LOGITS.argmax(axis=1)[:, None] == np.arange(3)
    gold = LABELS[:, None] == np.arange(3)
    rows = np.random.default_rng(1).integers(ROWS, size=(4000, ROWS))
    right = (gold & predicted)[rows].sum(axis=1)  # [samples, classes]
    samples = 2 * right / (gold[rows].sum(axis=1) + predicted[rows].sum(axis=1))
    first = rows[0]
    np.testing.assert_allclose(samples[0], f1_score(LABELS[first], LOGITS[first].argmax(axis=1), average=None))
    expected = np.quantile(samples, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(class_scores(predicted, gold, "abc")[["f1_low", "f1_high"]], expected, atol=0.01)


def test_intervals_of_classes_need_no_memory_for_each_row_and_sample():
    gold = np.random.default_rng(3).random((50_000, 4)) < 0.5
    tracemalloc.start()
    class_scores(gold, gold, "abcd")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 * gold.nbytes


@pytest.mark.parametrize("name", ["topic", "same", "tags"])
def test_temperature_scaling_recovers_the_true_temperature(name):
    draws, several = np.random.default_rng(2), {"topic": 3, "same": None, "tags": 2}[name]
    logits = 2 * draws.normal(size=(20_000, several) if several else 20_000)
    labels = (logits + draws.logistic(size=logits.shape) > 0).astype(np.float32)
    if name == "topic":
        labels = (logits + draws.gumbel(size=logits.shape)).argmax(axis=1).astype(np.float32)
    outputs = (2.5 * logits).astype(np.float32)
    task = declared_tasks()[name].calibrated(outputs, labels)
    assert task.temperature == pytest.approx(2.5, rel=0.05)
    if name == "topic":
        estimates = task.estimate(outputs)
        np.testing.assert_array_equal(task.decide(estimates), logits.argmax(axis=1))
        assert calibration(confidence_of(task, estimates), task.decide(estimates) == labels)[0] < 0.02


UNCALIBRATED = {
    "all its rows are predicted right": (np.array([-3.0, 2, 5, -1]), np.array([0, 1, 1, 0])),
    "the less the probabilities differ": (np.array([-3.0, 2, 5, -1]), np.array([1, 0, 0, 1])),
    "the outputs differ too little": (1e-3 * np.array([-3.0, 2, 5, 1]), np.array([0, 1, 1, 0])),
}


@pytest.mark.parametrize("why", UNCALIBRATED)
@pytest.mark.parametrize("name", ["topic", "same", "tags"])
def test_a_temperature_at_the_end_of_the_search_stays_one_and_says_why(name, why, caplog):
    outputs, labels = UNCALIBRATED[why]
    if name == "topic":
        outputs = np.stack([0 * outputs, outputs, 0 * outputs - 100], axis=1)
    elif name == "tags":
        outputs, labels = np.stack([outputs, outputs], axis=1), np.stack([labels, labels], axis=1)
    task = replace(declared_tasks()[name], temperature=3.0)
    assert task.calibrated(outputs.astype(np.float32), labels.astype(np.float32)).temperature == 1
    assert f"{name}: the temperature stays 1, as none fits the dev set: {why}" in caplog.text


def test_worst_errors_are_the_most_confident_wrong_rows():
    task = declared_tasks()["topic"]
    estimates = softmax(LOGITS, axis=1)
    found = worst_errors(task, estimates, examples(LABELS), 5).to_dict("records")
    wrong = [(estimates[i].max(), i) for i in range(ROWS) if estimates[i].argmax() != LABELS[i]]
    assert [error["row"] for error in found] == [i for _, i in sorted(wrong, reverse=True)[:5]]
    for error in found:
        assert error["question"] == f"-text 0 {error['row']}"
        assert error["label"] == task.names[LABELS[error["row"]]]
        assert error["predicted"] != error["label"]
    assert worst_errors(task, np.eye(3)[LABELS], examples(LABELS), 5).empty


def test_worst_errors_of_a_regression_are_the_farthest_rows():
    task = declared_tasks()["stars"]
    labels = np.linspace(1, 5, 9)
    estimates = (labels - 1) / 4 + np.array([0, 0.1, -0.3, 0, 0.2, 0, 0, -0.05, 0])
    found = worst_errors(task, estimates, examples(labels), 3)
    assert [*found["row"]] == [2, 4, 1]
    assert [*found["error"]] == pytest.approx([1.2, 0.8, 0.4], abs=1e-5)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (("row", "error"), ("text_row", "text_error")),
        (("predicted", "first"), ("text_predicted", "first")),
        (("text_label", "label"), ("text_label", "text_text_label")),
    ],
)
def test_sentences_take_the_place_of_no_other_column_of_the_worst_errors(columns, names):
    task = declared_tasks()["similar"]
    own = replace(task, files=replace(task.files, text=columns))
    (found,) = worst_errors(own, np.array([0.2]), examples([4.5], 2), 1).to_dict("records")
    assert [*found] == ["row", *names, "label", "predicted", "error"]
    assert [found[name] for name in ("row", *names, "label")] == [0, "-text 0 0", "-text 1 0", 4.5]


def test_details_are_written_for_every_kind(tmp_path):
    tasks = declared_tasks()
    tasks["topic"] = replace(tasks["topic"], labels=("=gold", "class", "'=gold"))
    pairs = {"same": LABELS % 2, "entails": LABELS, "similar": LABELS.astype(float)}
    labels = {"topic": LABELS, "tags": np.stack([LABELS > 0, LABELS > 1], axis=1), "stars": 1.0 + LABELS, **pairs}
    draws = np.random.default_rng(4)
    estimates = {
        "topic": softmax(LOGITS, axis=1),
        "tags": draws.uniform(size=(ROWS, 2)),
        "stars": draws.uniform(size=ROWS),
        "same": draws.uniform(size=ROWS),
        "entails": softmax(LOGITS, axis=1),
        "similar": draws.uniform(size=ROWS),
    }
    rows = {name: examples(values, len(tasks[name].files.text)) for name, values in labels.items()}
    paths = write_details(tmp_path, tasks, estimates, rows)
    assert sorted(paths) == sorted(tmp_path.iterdir())
    with (tmp_path / "topic-confusion.csv").open() as file:
        header, *lines = csv.reader(file)
    assert header[1:] == [line[0] for line in lines] == ["'=gold", "class", "''=gold"]  # no formulas of a spreadsheet
    for name, column in {"topic-classes.csv": "class", "topic-errors.csv": "label"}.items():
        with (tmp_path / name).open() as file:
            found = list(csv.DictReader(file))
        assert {row[column] for row in found} <= {*header}
    assert all(row[tasks["topic"].files.text[0]].startswith("'-text 0 ") for row in found)
    confusion = [list(map(int, line[1:])) for line in lines]
    np.testing.assert_array_equal(confusion, confusion_matrix(LABELS, LOGITS.argmax(axis=1)))
    stored = json.loads((tmp_path / "same-calibration.json").read_text())
    confidence = np.maximum(estimates["same"], 1 - estimates["same"])
    right = (estimates["same"] > 0.5) == (LABELS % 2 == 1)
    assert stored["expected_calibration_error"] == pytest.approx(calibration(confidence, right)[0])
    assert sum(part["rows"] for part in stored["bins"]) == ROWS
    write_details(tmp_path, {"topic": tasks["topic"]}, {"topic": np.eye(3)[LABELS]}, rows)
    no_errors = (tmp_path / "topic-errors.csv").read_text().splitlines()  # none of another evaluation are left
    assert no_errors == [f"row,{tasks['topic'].files.text[0]},label,predicted,confidence"]
    assert not (tmp_path / "stars-classes.csv").exists()
    assert (tmp_path / "tags-reliability.png").read_bytes().startswith(b"\x89PNG")


# Loading the rows that a model is scored on.


def test_a_model_of_declared_tasks_asks_for_its_tasks_file(tiny_encoder, small_data, tmp_path):
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[tasks.topic]\nkind = "classification"\ntext = "a"\nlabel = "b"\nlabels = ["x", "y"]\ntrain = "c.csv"'
    )
    torch.manual_seed(0)
    model = MultitaskModel(SentenceEncoder.read(tiny_encoder, "mean"), load_tasks(file), HeadsConfig())
    with pytest.raises(
        InputError, match=r'task "topic" is not declared there, only .*; give the tasks file .*--tasks-file'
    ):
        load_split(model, small_data, "dev")


def test_files_of_a_task_are_read_as_they_are_declared_now():
    task = declared_tasks()["stars"]
    other = Format(encoding="latin-1", decimal=",", missing=("-",), separator=";", quotes=False)
    declared = replace(with_files(task, format=other, id="key"), weight=3.0)
    assert with_files_of(replace(task, weight=2.0), declared) == replace(declared, weight=2.0)


def test_several_labels_are_read_as_their_files_are_written_now():
    task = replace(declared_tasks()["tags"], label_separator="|", empty="none")
    declared = replace(task, label_separator=";", empty=None, aliases={"x": "a"}, labels=(), thresholds=())
    found = with_files_of(task, declared)
    assert found == replace(declared, labels=("a", "b"), thresholds=task.thresholds)
    assert [found.labels_from({"tags": text}) for text in ("x;b", "")] == [("a", "b"), None]


def test_a_model_of_another_range_is_refused():
    task = declared_tasks()["stars"]
    assert with_files_of(task, replace(task, range=None)).range == task.range
    with pytest.raises(InputError, match=r"range is \[1, 50\]; the model has \["):
        with_files_of(task, replace(task, range=(1, 50)))


def test_numbers_are_written_with_as_few_decimals_as_labels_have():
    """They are fp32, where 9.8 is 9.80000019."""
    values = np.array([9.8, 0.1, 10, -3.25e-5], np.float32)
    assert list(map(str, written(declared_tasks()["stars"], values))) == ["9.8", "0.1", "10.0", "-3.25e-05"]


def test_without_ids_predictions_name_the_lines_of_their_rows(tmp_path):
    """Also of rows that are held out, and after one without a label."""
    lines = ["question,stars", *(f"question {i},{'' if i == 3 else i % 5 + 1}" for i in range(40))]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    task = with_files(declared_tasks()["stars"], train=RowsFrom(str(tmp_path / "x.csv")))
    rows = load_rows(task, "dev")
    shares = (rows.labels.astype(float) - 1) / 4
    [path] = write_predictions({"stars": task}, {"stars": shares}, {"stars": rows}, "dev", tmp_path)
    with path.open(newline="") as file:
        answers = [(int(row["id"]), float(row["stars"])) for row in csv.DictReader(file)]
    assert len(answers) == 4
    assert [lines[line - 1] for line, _ in answers] == [
        f"{text},{stars:g}" for text, (_, stars) in zip(rows.sentences[0], answers, strict=True)
    ]


def test_estimates_that_take_long_say_in_a_log_how_many_rows_are_done(tiny_encoder, small_data, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    model = load_model(tiny_encoder, load_tasks(small_data))
    dev = load_split(model, small_data, "dev")
    caplog.clear()
    estimate(model, dev)
    assert caplog.messages == []  # it takes less than ten seconds
    ticks = count(step=20.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    estimate(model, dev)
    assert [len(dev), *map(len, dev.values())] == [2, 32, 32]
    done = [
        int(re.fullmatch(r"(\d+) of 64 rows, [\d.]+ rows/s, \d min \d\d s left", line)[1]) for line in caplog.messages
    ]
    assert done == sorted(done)
    assert done[-1] == 64

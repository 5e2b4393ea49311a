"""Loading the rows that a model is scored on."""

import csv
import logging
import re
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.base.device import start
from multitask.data.tables import Format, RowsFrom
from multitask.models.estimates import estimate, load_split, located, write_predictions, written
from multitask.models.multitask_model import MultitaskModel, load_model
from multitask.models.settings import HeadsConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from tests.conftest import with_files
from tests.multitask.declared import declared_tasks

CPU = start("cpu", "fp32")


def test_a_model_of_declared_tasks_asks_for_its_tasks_file(tiny_encoder, small_data, tmp_path):
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[tasks.topic]\nkind = "classification"\ntext = "a"\nlabel = "b"\nlabels = ["x", "y"]\ntrain = "c.csv"'
    )
    torch.manual_seed(0)
    encoder, tokenizer = BertModel.from_pretrained(str(tiny_encoder)), load_tokenizer(str(tiny_encoder))
    model = MultitaskModel(encoder, tokenizer, load_tasks(file), "mean", HeadsConfig())
    with pytest.raises(
        InputError, match=r'task "topic" is not declared there, only .*; give the tasks file .*--tasks-file'
    ):
        load_split(model, small_data, "dev")


def test_files_of_a_task_are_read_as_they_are_declared_now():
    task = declared_tasks()["stars"]
    other = Format(encoding="latin-1", decimal=",", missing=("-",), separator=";", quotes=False)
    declared = replace(with_files(task, format=other, id="key"), weight=3.0)
    assert located(replace(task, weight=2.0), declared) == replace(declared, weight=2.0)


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
    model = load_model(tiny_encoder, load_tasks(small_data)).to("cpu")
    dev = load_split(model, small_data, "dev")
    caplog.clear()
    estimate(model, dev, CPU)
    assert caplog.messages == []  # it takes less than ten seconds
    ticks = count(step=20.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    estimate(model, dev, CPU)
    assert [len(dev), *map(len, dev.values())] == [2, 32, 32]
    done = [
        int(re.fullmatch(r"(\d+) of 64 rows, [\d.]+ rows/s, \d min \d\d s left", line)[1]) for line in caplog.messages
    ]
    assert done == sorted(done)
    assert done[-1] == 64

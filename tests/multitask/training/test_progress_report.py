"""What a training says while it runs: a bar on a terminal, lines elsewhere."""

import fcntl
import json
import logging
import math
import os
import re
import struct
import sys
import termios
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
import torch

from multitask.training.checkpoints_and_resume import Progress
from multitask.training.progress_report import ProgressReport
from tests.multitask.training.toy import EPOCHS, Problem, backward, run

STATE = r"loss \d\.\d{3}, [\d,]+ tokens/s, \d+ min \d\d s left"


@pytest.fixture
def slow(monkeypatch):
    """A clock that advances by two seconds at every reading."""
    ticks = count(step=2.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))


def test_a_log_has_a_line_every_ten_seconds_and_at_each_epochs_end(tmp_path, slow, caplog):
    caplog.set_level(logging.INFO)
    run(tmp_path)
    lines = [record.getMessage() for record in caplog.records]
    ended = [re.fullmatch(rf"epoch (\d) of 4, step (\d+) of 12: overall .*; {STATE}", line) for line in lines]
    assert [tuple(map(int, found.groups())) for found in ended if found] == [(1, 3), (2, 7), (3, 11), (4, 16)]
    assert lines.count("evaluating") == 1  # of the first evaluation
    between = [found for line in lines if (found := re.fullmatch(rf"step (\d+) of 12: {STATE}", line))]
    assert len(between) >= 4


@pytest.mark.parametrize("columns", [80, 100])
def test_a_bar_shows_all_and_is_not_cut(columns, slow, monkeypatch):
    """Of a long training on a GPU, while it is evaluated."""
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    monkeypatch.setattr(sys, "stderr", os.fdopen(terminal, "w", encoding="utf-8"))
    progress = Progress(step=12_343, tokens=10**9, seconds=1e4)
    with ProgressReport(progress, 23_456, 10) as report:
        progress.step, progress.tokens, progress.seconds = 12_344, 10**9 + 123_456, 1e4 + 1
        report.step(0.7884)
        report.evaluating()
    sys.stderr.close()
    written = b""
    with suppress(OSError):  # at the end
        while True:
            written += os.read(screen, 1000)
    shown = written.decode().removesuffix("\r\n").rpartition("\r")[2]
    rest = "step 12344/23456, loss 0.788, 123,456 tokens/s, "
    assert re.fullmatch(rf"evaluating\|[^|]+\| {rest}\d{{3}} min \d\d s left", shown)
    assert len(shown) <= columns


def test_a_notebook_sees_the_lines_too(tmp_path, capsys):
    """Nobody has set up logging there."""
    run(tmp_path)
    assert len(re.findall(r"^epoch \d of 4", capsys.readouterr().err, re.MULTILINE)) == 4


FAULT = "the encoder has collapsed"
NOTHING = "nothing was learned: the gradient was 0 in all 16 steps"


def idle(problem, update):
    """A step on rows that are all duplicates of each other."""
    losses = backward(problem, update)
    for parameter in problem.module.parameters():
        parameter.grad.zero_()
    zero = torch.zeros(())
    return replace(losses, terms={**losses.terms, "left": zero}, watched={"left duplicates": zero + 1})


def still(problem, update):
    """A step without a gradient, but for what is below the optimizer's epsilon."""
    losses = backward(problem, update)
    for parameter in problem.module.parameters():
        parameter.grad *= 1e-12
    return losses


@pytest.mark.parametrize(
    ("step", "score", "fault", "said"),
    [
        (backward, 1.0, "", ""),
        (backward, 1.0, FAULT, FAULT),
        (backward, math.nan, FAULT, FAULT),
        (backward, math.nan, "", "overall was undefined at every evaluation: the last model is kept"),
        (still, math.nan, FAULT, NOTHING),
        (idle, math.nan, FAULT, "nothing was learned from left: the loss is 0, as every row repeats others"),
    ],
)
def test_a_training_that_taught_nothing_says_so_in_one_warning(step, score, fault, said, tmp_path, caplog):
    problem = Problem([{"overall": score}] * EPOCHS)
    problem.fault = lambda: fault
    run(tmp_path, problem, step=step)
    warnings = [record.getMessage() for record in caplog.records if not re.search("busy|may ruin", record.getMessage())]
    assert [line.startswith(said) for line in warnings] == [True] * bool(said)


def test_an_undefined_score_is_named_in_the_log_and_null_in_the_metrics(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    run(tmp_path, Problem([{"overall": math.nan}] * EPOCHS))
    assert "step 3 of 12: overall undefined; " in caplog.text
    assert "nan" not in caplog.text
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line, parse_constant=pytest.fail)["scores"] == {"overall": None}

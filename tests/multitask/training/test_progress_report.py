"""What a training says while it runs: a bar on a terminal, lines elsewhere."""

import fcntl
import logging
import os
import re
import struct
import sys
import termios
import time
from contextlib import suppress
from itertools import count

import pytest

from multitask.training.checkpoints_and_resume import Progress
from multitask.training.progress_report import ProgressReport
from tests.multitask.training.toy import run

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

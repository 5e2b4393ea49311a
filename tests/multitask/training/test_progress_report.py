"""What a training says while it runs, where there is no terminal for a bar."""

import logging
import os
import re
import time
from itertools import count

import pytest
import torch

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
    between = [found for line in lines if (found := re.fullmatch(rf"step (\d+) of 12: {STATE}", line))]
    assert len(between) >= 4


def test_a_notebook_sees_the_lines_too(tmp_path, capsys):
    """Nobody has set up logging there."""
    run(tmp_path)
    assert len(re.findall(r"^epoch \d of 4", capsys.readouterr().err, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("load", "threads", "said"), [(4.0, 2, True), (2.4, 2, False), (9.0, 1, False)], ids=["busy", "own", "one thread"]
)
def test_a_busy_machine_is_named_once(load, threads, said, tmp_path, slow, monkeypatch, caplog):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    run(tmp_path)
    assert caplog.text.count("OMP_NUM_THREADS=1") == said

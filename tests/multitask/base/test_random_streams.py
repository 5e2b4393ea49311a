"""Each use of random numbers has its own stream, by a name that stands once in the code; bars of progress."""

import ast
import io
import sys
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multitask.base import progress
from multitask.base.progress import RowsDone
from multitask.base.random_streams import generator, torch_seed
from tests.conftest import ROOT

FILES = [path for package in ("minbert", "multitask", "studies") for path in sorted((ROOT / package).rglob("*.py"))]
STREAMS = [
    (0, "a"),
    (1, "a"),
    (0, "b"),
    (0, "a", 0),
    (0, "a", 1),
    (0, "a", "0"),
    (0, "a", 0, 1),
    (0, "a", "b"),
    (0, "ab"),
]
SEEDING = ("default_rng", "manual_seed", "SeedSequence", "RandomState")
SEEDED_ELSEWHERE = {  # what draws from torch's global generator, whose state a resumed run restores, and torch's own
    "multitask/base/random_streams.py",
    "multitask/stages/training_run.py",
    "minbert/checkpoint.py",
    "studies/gradient_paradigm/random_encoder.py",
}


@cache
def calls() -> list[tuple[Path, ast.Call, str]]:
    """Every call in the code, with the called function's last name."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found.append((path.relative_to(ROOT), node, name))
    return found


def test_every_use_has_a_name_of_its_own():
    uses = [call.args[1] for path, call, name in calls() if name in ("generator", "torch_seed") and len(call.args) > 1]
    uses = [use for use in uses if not isinstance(use, ast.Name)]  # torch_seed hands its own argument on
    assert all(isinstance(use, ast.Constant) and isinstance(use.value, str) for use in uses)
    counts = Counter(use.value for use in uses)
    assert len(counts) >= 10
    assert [name for name, count in counts.items() if count > 1] == []


def test_nothing_else_makes_random_streams():
    others = {path.as_posix() for path, call, name in calls() if name in SEEDING and not _from_stream(call)}
    assert others <= SEEDED_ELSEWHERE


def _from_stream(call: ast.Call) -> bool:
    return any(getattr(getattr(arg, "func", None), "id", "") == "torch_seed" for arg in call.args)


def test_streams_are_fixed_and_differ_in_every_part_of_their_key():
    drawn = [generator(*stream).random(64) for stream in STREAMS]
    for stream, numbers in zip(STREAMS, drawn, strict=True):
        assert (generator(*stream).random(64) == numbers).all()
        assert torch_seed(*stream) == torch_seed(*stream)
    for first, second in combinations(drawn, 2):
        assert not np.isin(first, second).any()


@given(st.integers(0, 2**63 - 1), st.text(max_size=5), st.lists(st.integers() | st.text(max_size=3), max_size=3))
def test_any_key_makes_a_stream(seed, use, keys):
    assert 0 <= torch_seed(seed, use, *keys) < 2**63


# How many rows are done: a bar on a terminal, and nothing of what ends soon. Tests of what computes rows see lines.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "total"), [(0.0, None), (0.0, 30_000), (60.0, 30_000)])
def test_a_terminal_has_a_bar_of_what_takes_long(seconds, total, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", seconds)
    with RowsDone(total, passes=2) as shown:
        for _ in range(4):
            shown.add(15_000)
    last = sys.stderr.getvalue().strip().rpartition("\r")[2]
    if seconds:
        assert last == ""
    elif total is None:
        assert last.startswith("30,000 rows, ")
    else:
        assert last.startswith("30,000 of 30,000 rows, ")
        assert last.endswith(("|##########|", "|██████████|"))
    assert caplog.messages == []

"""How many rows are done: a bar on a terminal, and nothing of what ends soon. Tests of what computes rows see lines."""

import io
import sys

import pytest

from multitask.base import progress
from multitask.base.progress import RowsDone


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

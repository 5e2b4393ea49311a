"""`python -m benchmarks.gpu` keeps what a part measured, and its measurements see what is wrong."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from benchmarks.gpu import equality as equality_part
from benchmarks.gpu.__main__ import Outcome, run_part, summary
from benchmarks.gpu.contrastive import SOURCE, contrastive_problem, contrastive_speeds, contrastive_updates
from benchmarks.gpu.equality import equality
from benchmarks.gpu.parts import Sizes, compared, compiled
from multitask.stages.pretrain.training import Pretraining

ROWS = "print('{\"value\": 1}', flush=True); "


def run(tmp_path: Path, script: str, seconds: float = 60) -> Outcome:
    return run_part("part", [sys.executable, "-c", script], seconds, tmp_path, dict(os.environ))


@pytest.fixture
def sizes(sample_data: Path) -> Sizes:
    return Sizes.of("cpu", True, sample_data, None)


def test_a_part_that_ends_is_done(tmp_path):
    outcome = run(tmp_path, ROWS)
    assert (outcome.ended, outcome.rows, outcome.good) == ("done", [{"value": 1}], True)


def test_a_part_that_fails_keeps_its_rows_and_says_why(tmp_path):
    outcome = run(tmp_path, ROWS + "raise ValueError('the device is lost')")
    assert (outcome.ended, outcome.rows) == ("failed: ValueError: the device is lost", [{"value": 1}])
    assert not outcome.good


def test_a_part_out_of_time_keeps_its_whole_rows_and_its_processes_end(tmp_path):
    script = f"echo '{{\"value\": 1}}'; sleep 60 & echo $! > {tmp_path}/child; printf '{{\"val'; wait"
    outcome = run_part("part", ["sh", "-c", script], 0.6, tmp_path, dict(os.environ))
    assert (outcome.ended, outcome.rows, outcome.good) == ("stopped after 0.0 minutes", [{"value": 1}], True)
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    deadline = time.monotonic() + 20  # a busy machine takes a moment to end a killed process
    while state.exists() and state.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page_says_what_is_not_as_it_should_be():
    outcomes = [
        Outcome("a", "done", 1.5, [{"name": "x|y", "ok": True}, {"name": "z", "more": 1234.5, "ok": False}]),
        Outcome("b", "left out: the minutes are over"),
    ]
    assert [outcome.good for outcome in outcomes] == [False, True]
    page = summary("A GPU", outcomes)
    assert "## a\n\ndone, with values that are not ok; 1.5 s\n" in page
    assert "| name | ok | more |\n| --- | --- | --- |\n| x/y | yes |  |\n| z | **no** | 1,234 |\n" in page
    assert "## b\n\nleft out: the minutes are over; 0.0 s\n" in page


def test_a_device_that_computes_otherwise_is_found(sizes, monkeypatch):
    seen, compute = [], equality_part.found  # for each training: exact, rounded, fp32 and bf16 on the device
    monkeypatch.setattr(equality_part, "found", lambda *arguments: seen.append(compute(*arguments)) or seen[-1])
    rows = list(equality(sizes))
    assert len(rows) == 4
    assert all(row["ok"] for row in rows)
    assert all(row["gradient difference"] == 0 for row in rows if row["precision"] == "fp32")
    wrong = (replace(one, gradient=1.01 * one.gradient) if number % 4 == 2 else one for number, one in enumerate(seen))
    for name in ("build_problem", "contrastive_problem", "contrastive_updates"):
        monkeypatch.setattr(equality_part, name, MagicMock())
    monkeypatch.setattr(equality_part, "found", lambda *_: next(wrong))
    assert [row["ok"] for row in equality(sizes)] == [False, True, False, True]


def test_contrastive_loops_train_on_the_same_sentences_with_the_same_loss(sizes, monkeypatch):
    """`contrastive_speeds` compares the losses itself; here it must see a loss of another temperature."""
    speeds = contrastive_speeds("tiny", sizes.data, 8, 1, "cpu")
    assert {name: len(values) for name, values in speeds.items()} == {"tuned": 1, "ours": 1}
    problem = contrastive_problem("tiny", sizes.data, "cpu", "bf16")
    (batch,) = contrastive_updates(problem, 8, 1)[0]
    assert len(set(problem.contrastive[SOURCE].identities[0][batch.rows])) == len(batch.rows) == 8
    losses = Pretraining.losses

    def warmer(problem, update):
        found = losses(problem, update)
        return replace(found, terms={name: 1.1 * term for name, term in found.terms.items()})

    monkeypatch.setattr(Pretraining, "losses", warmer)
    with pytest.raises(AssertionError, match="ours"):
        contrastive_speeds("tiny", sizes.data, 8, 1, "cpu")


def test_layers_that_do_not_compile_are_noted():
    def fails():
        raise RuntimeError("no compiler")

    assert compiled({"batch": 4}, fails, "tiny", 1.0)["note"] == "RuntimeError: no compiler"


def test_speeds_are_compared_by_their_medians():
    row = compared({"plain": [10.0, 50.0, 20.0], "ours": [30.0, 40.0, 90.0]}, "ours", "tiny", rate=1e9)
    work = 6 * 2 * (4 * 32**2 + 2 * 32 * 64)
    assert row == {"plain": 20, "ours": 40, "/ plain": 2.0, "utilisation": round(40 * work / 1e9, 3)}

"""`python -m benchmarks.gpu` keeps what a part measured; timings take turns; measurements see what is wrong."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from benchmarks import gpu, measure, pretrain
from benchmarks.gpu import Outcome, Sizes, compared, equality, run_part
from benchmarks.measure import added_memory, alternate, print_table
from multitask.stages.pretrain import Pretraining

ROW = "print('{\"value\": 1}', flush=True); "


@pytest.fixture
def sizes(sample_data) -> Sizes:
    return Sizes.small("cpu", sample_data)


@pytest.mark.parametrize(
    ("script", "ended"),
    [("", "done"), ("raise ValueError('the device is lost')", "failed: ValueError: the device is lost")],
)
def test_a_part_keeps_its_rows_and_says_how_it_ended(tmp_path, script, ended):
    outcome = run_part("part", [sys.executable, "-c", ROW + script], 60, tmp_path)
    assert (outcome.ended, outcome.rows, outcome.good) == (ended, [{"value": 1}], not script)


@pytest.mark.slow
def test_a_part_out_of_time_keeps_its_whole_rows_and_its_processes_end(tmp_path):
    script = f"echo '{{\"value\": 1}}'; sleep 60 & echo $! > {tmp_path}/child; printf '{{\"val'; wait"
    outcome = run_part("part", ["sh", "-c", script], 0.6, tmp_path)
    assert (outcome.ended, outcome.rows, outcome.good) == ("stopped after 0.0 minutes", [{"value": 1}], True)
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    deadline = time.monotonic() + 20  # a busy machine takes a moment to end a killed process
    while state.exists() and state.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page_says_what_is_not_as_it_should_be():
    rows = [{"name": "x|y", "ok": True}, {"name": "z", "more": 1234.5, "ok": False}]
    section = Outcome("a", "done", 1.5, rows).section()
    assert section.startswith("## a\n\ndone, with values that are not ok; 1.5 s\n")
    assert [line.split() for line in section.splitlines()[5:8]] == [
        ["name", "ok", "more"], ["x|y", "True"], ["z", "False", "1234.5"]
    ]  # fmt: skip
    assert Outcome("b", "left out").good


@pytest.mark.slow
def test_a_device_that_computes_otherwise_is_found(sizes, monkeypatch):
    seen, compute = [], gpu.computed  # for each training: exact, rounded, fp32 and bf16 on the device
    monkeypatch.setattr(gpu, "computed", lambda *arguments: seen.append(compute(*arguments)) or seen[-1])
    rows = list(equality(sizes))
    assert [row["ok"] for row in rows] == [True] * 4
    assert [row["gradient difference"] for row in rows if row["precision"] == "fp32"] == [0, 0]
    wrong = ((x, 1.01 * g if number % 4 == 2 else g, y) for number, (x, g, y) in enumerate(seen))
    monkeypatch.setattr(gpu, "finetune", MagicMock())
    monkeypatch.setattr(gpu, "pretrain", MagicMock())
    monkeypatch.setattr(gpu, "computed", lambda *_: next(wrong))
    assert [row["ok"] for row in equality(sizes)] == [False, True, False, True]


@pytest.mark.slow
def test_contrastive_loops_train_on_distinct_sentences_with_the_same_loss(sizes, monkeypatch):
    """`pretrain.measure` compares the losses itself; here it must see a loss of another temperature."""
    speeds = pretrain.measure("tiny", sizes.data, 8, 1, "cpu")
    assert {name: len(values) for name, values in speeds.items()} == {"tuned": 1, "ours": 1}
    problem = pretrain.prepare("tiny", sizes.data)
    (batch,) = pretrain.updates(problem, 8, 1)[0]
    assert len(set(problem.contrastive[pretrain.SOURCE].identities[0][batch.rows])) == len(batch.rows) == 8
    losses = Pretraining.losses

    def warmer(problem, update):
        found = losses(problem, update)
        return replace(found, terms={name: 1.1 * term for name, term in found.terms.items()})

    monkeypatch.setattr(Pretraining, "losses", warmer)
    with pytest.raises(AssertionError, match="ours"):
        pretrain.measure("tiny", sizes.data, 8, 1, "cpu")


def test_speeds_are_compared_by_their_medians(sizes, monkeypatch):
    monkeypatch.setattr(gpu, "matrix_rate", lambda *_, **__: 1e9)
    row = compared({"plain": [10.0, 50.0, 20.0], "ours": [30.0, 40.0, 90.0]}, "tiny", sizes)
    work = 6 * 2 * (4 * 32**2 + 2 * 32 * 64)
    assert row == {"plain": 20, "ours": 40, "ours / plain": 2.0, "utilisation": round(40 * work / 1e9, 3)}


# Timings take turns and leave the first round out; memory is that of a new process; tables are Markdown.


def test_sides_take_turns_and_the_first_round_does_not_count():
    called: list[tuple[str, int]] = []
    seconds = alternate({name: lambda k, name=name: called.append((name, k)) for name in "ab"}, 2)
    assert called == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}
    assert min(min(taken) for taken in seconds.values()) >= 0


def test_memory_of_a_step_on_the_processor_is_not_that_of_a_gpu(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(pretrain, "memory", lambda *_: 5 if os.environ["CUDA_VISIBLE_DEVICES"] == "" else 0)
    monkeypatch.setattr(sys, "argv", ["pretrain", "--only", "8", "0"])
    pretrain.main()
    assert capsys.readouterr().out == "5\n"


def test_added_memory_is_what_the_peak_grows_by(monkeypatch):
    peaks = [10.0]
    monkeypatch.setattr(measure, "peak_memory", lambda: max(peaks))
    assert added_memory(lambda: peaks.append(15.0)) == 5


def test_a_table(capsys):
    print_table(["a", "b"], [["x", 1]])
    assert capsys.readouterr().out == "| a | b |\n| --- | ---: |\n| x | 1 |\n"

"""The loop equals one written out by hand; it evaluates, watches, reports and stops when it should."""

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
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from minbert.errors import InputError
from multitask.base.errors import TrainingError
from multitask.training.checkpoints_and_resume import Progress
from multitask.training.loop import MOST_SCHEDULED_EPOCHS, LoopConfig
from multitask.training.progress_report import ProgressReport
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Batch
from tests.multitask.training.toy import (
    EPOCHS,
    OPTIMIZER,
    SCRIPT,
    SOURCES,
    Cut,
    Problem,
    backward,
    cut_before,
    history,
    parameters,
    result,
    run,
    steps_of,
)


def by_hand(config: OptimizerConfig) -> tuple[Problem, list[dict[str, float]]]:
    """AdamW (Loshchilov & Hutter 2019, algorithm 2), clipping and schedule, written out; losses and norms by step."""
    problem, seen = Problem(), []
    torch.manual_seed(7)
    total = len(steps_of(problem))
    moments = {name: (0.0, 0.0) for name, _ in problem.module.named_parameters()}
    for number, update in enumerate(steps_of(problem), start=1):
        losses = problem.losses(update).terms
        gradients = torch.autograd.grad(sum(losses.values()), list(problem.module.parameters()))
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        seen.append({name: loss.item() for name, loss in losses.items()} | {"gradient": norm})
        warmup = round(config.warmup * total)
        factor = number / warmup if number <= warmup else 1.0
        if config.schedule == "linear" and number > warmup:
            factor = (total - number + 1) / (total - warmup)
        for (name, parameter), gradient in zip(problem.module.named_parameters(), gradients, strict=True):
            if config.clip is not None:
                gradient = gradient * min(1.0, config.clip / (norm + 1e-6))
            rate = factor * (config.learning_rate if name.startswith("encoder") else config.head_learning_rate)
            first = 0.9 * moments[name][0] + 0.1 * gradient
            second = 0.999 * moments[name][1] + 0.001 * gradient.square()
            moments[name] = first, second
            decay = config.weight_decay if parameter.ndim == 2 else 0.0
            change = first / (1 - 0.9**number) / ((second / (1 - 0.999**number)).sqrt() + 1e-8)
            with torch.no_grad():
                parameter.mul_(1 - rate * decay).sub_(rate * change)
    return problem, seen


@pytest.mark.parametrize(
    "config",
    [
        OPTIMIZER,
        OptimizerConfig(0.03, 0.1, "constant", warmup=0.5, weight_decay=0.0, clip=None),
        OptimizerConfig(0.1, 0.02, "linear", warmup=0.0, weight_decay=0.5, clip=2.0),
    ],
    ids=str,
)
def test_weights_equal_a_loop_by_hand(tmp_path, config):
    expected, seen = by_hand(config)
    problem = run(tmp_path, config=LoopConfig(EPOCHS, config))
    for ours, theirs in zip(parameters(problem), parameters(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    lines, start = history(tmp_path), 0
    for epoch, line in enumerate(lines):
        end = start + len(problem.plan(epoch))
        for name in (*SOURCES, "gradient"):
            assert line["training"][name] == pytest.approx(np.mean([one[name] for one in seen[start:end]]), abs=1e-12)
        start = end
    if config.clip is not None:
        assert max(one["gradient"] for one in seen) > config.clip  # otherwise nothing was clipped


def test_metrics_lines(tmp_path):
    seen = []
    problem = run(tmp_path, on_evaluation=lambda step, record: seen.append((step, record)))
    lines = history(tmp_path)
    lengths = [len(problem.plan(epoch)) for epoch in range(EPOCHS)]
    assert lengths == [3, 4, 4, 5]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["step"] for line in lines] == np.cumsum(lengths).tolist()
    assert [line["tokens"] for line in lines] == np.cumsum([2 * (10 + 3 * epoch) for epoch in range(EPOCHS)]).tolist()
    assert seen == [(line["step"], line) for line in lines]
    problem.module.eval()
    final = problem.module(problem.inputs).sub(problem.targets).square().mean(dim=0).tolist()
    assert lines[-1]["dev"] == {name: {"error": error} for name, error in zip(SOURCES, final, strict=True)}
    assert lines[-1]["scores"]["overall"] == -sum(final)
    assert (np.diff([line["seconds"] for line in lines]) >= 0).all()


@pytest.mark.parametrize("every", [1, 5, 100])
def test_evaluation_every_so_many_steps_and_at_the_end(tmp_path, every):
    problem = run(tmp_path, config=LoopConfig(EPOCHS, OPTIMIZER, evaluate_every=every))
    total = len(steps_of(problem))
    assert [line["step"] for line in history(tmp_path)] == [*range(every, total, every), total]


class Watched(Problem):
    """Records every call of `watch`: the step, the update and the norm of the gradient at that time."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[tuple[int, tuple[Batch, ...], float]] = []

    def watch(self, update: tuple[Batch, ...], step: int) -> dict[str, Tensor]:
        norm = sum(p.grad.square().sum() for p in self.module.parameters()).sqrt()
        self.looked.append((step, update, norm.item()))
        return {"gradient before clipping": norm, "step": torch.tensor(float(step))}


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_trainable_is_watched_every_so_many_steps(tmp_path, every):
    problem = run(tmp_path, Watched(), LoopConfig(EPOCHS, OPTIMIZER, watch_every=every))
    updates = steps_of(problem)
    assert [step for step, *_ in problem.looked] == list(range(0, len(updates), every))
    for step, update, _ in problem.looked:
        for ours, theirs in zip(update, updates[step], strict=True):
            assert ours.source == theirs.source
            assert (ours.rows == theirs.rows).all()
    start = 0
    for line in history(tmp_path):
        seen = [(step, norm) for step, _, norm in problem.looked if start <= step < line["step"]]
        assert ("step" in line["training"]) == bool(seen)
        if seen:
            means = [line["training"]["step"], line["training"]["gradient before clipping"]]
            assert means == pytest.approx(np.mean(seen, axis=0))
        if every == 1:
            assert line["training"]["gradient"] == pytest.approx(line["training"]["gradient before clipping"])
        start = line["step"]


@pytest.mark.parametrize("patience, evaluations", [(1, 3), (2, 4), (None, 4)])
def test_patience(tmp_path, patience, evaluations):
    run(tmp_path, Problem(SCRIPT), LoopConfig(EPOCHS, OPTIMIZER, patience))
    assert len(history(tmp_path)) == evaluations
    assert json.loads((tmp_path / "best.json").read_text())["overall"] == "step-0000007"


class Counted(Problem):
    """Counts the epochs that are planned."""

    planned = 0

    def plan(self, epoch):
        self.planned = max(self.planned, epoch + 1)
        return super().plan(0)


@pytest.mark.parametrize("evaluate_every", [None, 2])
def test_epochs_are_planned_when_their_first_step_comes(tmp_path, evaluate_every):
    config = LoopConfig(10**12, OptimizerConfig(0.03), evaluate_every=evaluate_every)
    with pytest.raises(Cut):
        run(tmp_path, problem := Counted(), config, step=cut_before(4), save_every=-1)
    assert problem.planned == 2
    with pytest.raises(Cut):  # and likewise when it goes on
        run(tmp_path, problem := Counted(), config, step=cut_before(4))
    assert problem.planned <= 3


def test_a_schedule_that_plans_all_epochs_bounds_them():
    for optimizer in (OptimizerConfig(schedule="linear"), OptimizerConfig(warmup=0.1)):
        LoopConfig(MOST_SCHEDULED_EPOCHS, optimizer)
        with pytest.raises(InputError, match="epochs is 99999999; expected at most 10000 with"):
            LoopConfig(99_999_999, optimizer)


# A loss or gradient that is not finite stops the run before it does harm, and the message says where it came from.


@pytest.mark.parametrize(("at", "source", "value"), [(0, SOURCES[0], math.nan), (9, SOURCES[1], math.inf)])
def test_a_loss_that_is_not_finite_stops_the_run_in_time(tmp_path, at, source, value):
    problem = Problem()
    problem.poison = (at, source, value)
    update = next(batch for batch in steps_of(problem)[at] if batch.source == source)
    check_divergence(tmp_path, problem, backward, at, f"the {source} loss is {value}", [update])


class InfiniteGradient(torch.autograd.Function):
    """The identity, with a gradient that is infinite."""

    @staticmethod
    def forward(ctx, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient / 0


def test_a_gradient_that_is_not_finite_stops_the_run_in_time(tmp_path):
    def step(problem, update):
        losses = problem.losses(update)
        terms = losses.terms if problem.calls != 6 else {n: InfiniteGradient.apply(t) for n, t in losses.terms.items()}
        sum(terms.values()).backward()
        return losses.detached()

    check_divergence(tmp_path, Problem(), step, 5, "the gradient norm is ", steps_of(Problem())[5])


def check_divergence(folder: Path, problem: Problem, step, at: int, message: str, batches) -> None:
    """The error names value, step and rows; the weights in memory and on disk are those before the step."""
    before: list[list[Tensor]] = []

    def watched(problem, update):
        before.append(parameters(problem))
        return step(problem, update)

    with pytest.raises(TrainingError) as caught:
        run(folder, problem, step=watched, save_every=-1)
    assert str(caught.value).startswith(f"step {at + 1}: {message}")
    for batch in batches:
        assert f"{batch.source} rows {', '.join(map(str, batch.rows))}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(before) == at + 1
    for ours, theirs in zip(parameters(problem), before[-1], strict=True):
        assert torch.equal(ours, theirs)
        assert ours.isfinite().all()
    if at:
        state = torch.load(folder / "state" / "state.pt", weights_only=True)
        assert json.loads(state["progress"])["step"] == at
        assert all(tensor.isfinite().all() for tensor in state["module"].values())
    run(folder)  # the saved state is good: without the fault, the run ends as usual
    run(folder.with_name("whole"))
    assert result(folder) == result(folder.with_name("whole"))


# What a training says while it runs: a bar on a terminal, lines elsewhere.


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

"""Best checkpoints are kept, and a run that is cut short anywhere ends as if it had not been."""

import json
import math
import os
import signal
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from multitask.runtime.errors import Interrupted
from multitask.training import checkpoints_and_resume, loop
from multitask.training.loop import LoopConfig, train
from tests.multitask.training.toy import (
    CONFIG,
    CPU,
    EPOCHS,
    NEVER,
    OPTIMIZER,
    SCRIPT,
    Cut,
    Problem,
    backward,
    cut_before,
    history,
    parameters,
    result,
    run,
)


def test_best_checkpoints_are_kept_and_others_removed(tmp_path):
    folders = []

    def step(problem, update):
        folders.append({path.name for path in (tmp_path / "checkpoints").glob("*")})
        return backward(problem, update)

    problem = run(tmp_path, Problem(SCRIPT), step=step, save_every=-1)
    expected = {"overall": "step-0000007", "left": "step-0000016"}
    assert json.loads((tmp_path / "best.json").read_text()) == expected
    assert list(json.loads((tmp_path / "best.json").read_text())) == ["overall", "left"]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == set(expected.values())
    assert folders[3] == {"step-0000003"}
    assert folders[7] == folders[11] == {"step-0000003", "step-0000007"}
    saved = load_file(tmp_path / "checkpoints" / "step-0000016" / "module.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in problem.module.state_dict().items())


def test_without_scores_the_last_model_is_kept(tmp_path):
    run(tmp_path, Problem([{}] * EPOCHS))
    assert json.loads((tmp_path / "best.json").read_text()) == {"last": "step-0000016"}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000016"]


@pytest.mark.parametrize(
    "scores, kept",
    [
        ([math.nan] * 4, "step-0000003"),  # a model is always kept
        ([math.nan, -5.0, math.nan, -6.0], "step-0000007"),
        ([1.0, math.nan, 2.0, math.nan], "step-0000011"),
    ],
)
def test_an_undefined_score_is_worse_than_any(tmp_path, scores, kept):
    run(tmp_path, Problem([{"overall": score} for score in scores]), save_every=-1)
    assert json.loads((tmp_path / "best.json").read_text()) == {"overall": kept}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [kept]


# Resume.


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, list[Tensor]]:
    """Result and final weights of a run without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    problem = run(folder)
    return result(folder), parameters(problem)


def assert_resumed_like(whole, folder: Path, save_every=NEVER) -> None:
    problem = Problem()
    with torch.no_grad():
        for parameter in problem.module.parameters():
            parameter.add_(1)  # neither weights nor generator at the start may change a resumed run
    torch.manual_seed(99)
    problem.backward = partial(backward, problem)
    train(problem, CONFIG, folder, CPU, save_every)
    expected, weights = whole
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(parameters(problem), weights, strict=True))
    assert result(folder) == expected


@pytest.mark.parametrize("at", [1, 3, 6, 7, 12, 15])
def test_resumed_after_a_step(tmp_path, whole, at):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(at), save_every=-1)
    assert json.loads(torch.load(tmp_path / "state" / "state.pt")["progress"])["step"] == at
    assert_resumed_like(whole, tmp_path)


def test_resumed_again_and_again(tmp_path, whole):
    for _ in range(5):
        with pytest.raises(Cut):
            run(tmp_path, step=cut_before(3), save_every=-1)
        (tmp_path / "state" / ".state.pt.x.tmp").touch()  # files that a kill leaves half written
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp").mkdir()
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp" / "module.safetensors").touch()
    assert_resumed_like(whole, tmp_path)


@pytest.mark.parametrize("at", [1, 5, 9, 14])
def test_resumed_from_an_older_state(tmp_path, whole, at, monkeypatch):
    ticks = iter(range(10**6))  # a clock that advances by a second at every reading
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(at), save_every=3)
    if (tmp_path / "state").exists():
        saved = json.loads(torch.load(tmp_path / "state" / "state.pt")["progress"])["step"]
        assert at - 5 < saved <= at
    else:
        torch.manual_seed(7)
        with pytest.raises(Cut):  # without a state a run begins again, with its stage's seed
            run(tmp_path, step=cut_before(12), save_every=-1)
    assert_resumed_like(whole, tmp_path, save_every=3)


@pytest.mark.parametrize("evaluation", [0, EPOCHS - 1])
@pytest.mark.parametrize("where", ["evaluate", "save", "on_evaluation"])
def test_resumed_after_a_cut_around_an_evaluation(tmp_path, whole, evaluation, where, monkeypatch):
    counts = []

    def failing(*arguments):
        counts.append(arguments)
        if len(counts) > evaluation:
            raise Cut
        return original(*arguments) if original else None

    if where == "on_evaluation":
        original = None
        with pytest.raises(Cut):
            run(tmp_path, save_every=-1, on_evaluation=failing)
    else:
        original = getattr(Problem, where)
        with monkeypatch.context() as patch:
            patch.setattr(Problem, where, lambda self, *arguments: failing(self, *arguments))
            with pytest.raises(Cut):
                run(tmp_path, save_every=-1)
    assert_resumed_like(whole, tmp_path)


def test_lines_from_after_the_saved_state_go_when_it_is_taken_up(tmp_path):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(5), save_every=-1)
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(7))  # evaluates at 7 and 11 without saving a state
    assert [line["step"] for line in history(tmp_path)] == [3, 7, 11]
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(0))
    assert [line["step"] for line in history(tmp_path)] == [3]


def test_resumed_after_a_cut_at_the_very_end(tmp_path, whole, monkeypatch):
    def failing(*_):
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints_and_resume, "write_json", failing)
        with pytest.raises(Cut):
            run(tmp_path, save_every=-1)
    assert_resumed_like(whole, tmp_path)


@pytest.mark.parametrize("at", [4, 10])
def test_patience_survives_a_cut(tmp_path, at):
    config = LoopConfig(EPOCHS, OPTIMIZER, patience=1)
    run(tmp_path / "whole", Problem(SCRIPT), config)
    with pytest.raises(Cut):
        run(tmp_path / "cut", Problem(SCRIPT), config, cut_before(at), save_every=-1)
    problem = Problem(SCRIPT)
    problem.calls = at  # the script depends on the number of calls
    run(tmp_path / "cut", problem, config)
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


# Signals.


@pytest.mark.parametrize(("number", "at"), [(signal.SIGTERM, 0), (signal.SIGINT, 6), (signal.SIGTERM, 15)])
def test_a_signal_saves_the_state_and_the_run_resumes(tmp_path, whole, number, at):
    def step(problem, update):
        losses = backward(problem, update)
        if problem.calls == at + 1:
            os.kill(os.getpid(), number)
        return losses

    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Interrupted) as caught:
        run(tmp_path, step=step)
    assert caught.value.signal_number == number
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert json.loads(torch.load(tmp_path / "state" / "state.pt")["progress"])["step"] == at + 1
    assert_resumed_like(whole, tmp_path)


def test_trains_outside_the_main_thread(tmp_path, whole):
    thread = threading.Thread(target=run, args=(tmp_path,))
    thread.start()
    thread.join()
    assert result(tmp_path) == whole[0]

"""Best checkpoints are kept; a run that is cut short anywhere ends as if it had not been; nothing bad is saved."""

import errno
import json
import logging
import math
import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from multitask.base.errors import Interrupted, Stopped, TrainingError
from multitask.training import checkpoints_and_resume
from multitask.training.loop import LoopConfig, train
from multitask.training.settings import OptimizerConfig
from tests.multitask.training.toy import (
    CONFIG,
    CPU,
    EPOCHS,
    NEVER,
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
from tests.reliability.faulty_files import Fault, FaultyFiles


def test_best_checkpoints_are_kept_and_others_removed(tmp_path):
    folders = []

    def step(problem, update):
        folders.append({path.name for path in (tmp_path / "checkpoints").glob("*")})
        return backward(problem, update)

    problem = run(tmp_path, Problem(SCRIPT), step=step, save_every=-1)
    expected = {"overall": "step-0000007", "left": "step-0000016"}
    best = json.loads((tmp_path / "best.json").read_text())
    assert list(best.items()) == list(expected.items())
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == set(expected.values())
    assert folders[3] == {"step-0000003"}
    assert folders[7] == folders[11] == {"step-0000003", "step-0000007"}
    saved = load_file(tmp_path / "checkpoints" / "step-0000016" / "module.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in problem.module.state_dict().items())


def test_without_a_saved_state_only_the_best_checkpoints_are_there(tmp_path):
    found = []
    script = [{"overall": float(epoch)} for epoch in range(EPOCHS)]
    run(
        tmp_path,
        Problem(script),
        on_evaluation=lambda step, line: found.append({path.name for path in (tmp_path / "checkpoints").iterdir()}),
    )
    assert found == [{f"step-{step:07d}"} for step in (3, 7, 11, 16)]


def test_checkpoints_that_the_saved_state_names_stay_until_it_is_replaced(tmp_path):
    problem, found = Problem([{"overall": float(epoch)} for epoch in range(EPOCHS)]), []
    with pytest.raises(Stopped):
        run(tmp_path, problem, on_evaluation=lambda step, line: step == 3)
    problem.calls = 3
    run(
        tmp_path,
        problem,
        on_evaluation=lambda step, line: found.append({path.name for path in (tmp_path / "checkpoints").iterdir()}),
    )
    assert found == [{"step-0000003", f"step-{step:07d}"} for step in (7, 11, 16)]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000016"]


def test_the_loss_of_a_resumed_run_has_all_sources_since_the_last_evaluation(tmp_path, caplog):
    """Sources may take turns, so that the steps after a cut have a part of them."""

    def one_source(problem, update):
        return backward(problem, update[problem.calls < 14 :][:1])

    def stopped(problem, update):
        if problem.calls == 14:
            raise Cut
        return one_source(problem, update)

    def said() -> str:
        return [line for line in caplog.messages if line.startswith("epoch 4 of 4")][-1].partition("loss ")[2][:5]

    caplog.set_level(logging.INFO)
    run(tmp_path / "whole", step=one_source)
    whole, problem = said(), Problem()
    with pytest.raises(Cut):
        run(tmp_path / "cut", step=stopped, save_every=-1)
    problem.calls = 14
    run(tmp_path / "cut", problem, step=one_source)
    assert said() == whole


def test_the_leading_score_leads_although_it_is_undefined(tmp_path):
    """Which model stands for the run follows from the order of best.json."""
    run(tmp_path, Problem([{"overall": math.nan, "left": 1.0 * epoch} for epoch in range(EPOCHS)]))
    assert list(json.loads((tmp_path / "best.json").read_text())) == ["overall", "left"]


@pytest.mark.parametrize(
    "scores, kept",
    [
        ([math.nan] * 4, "step-0000016"),  # a model is always kept; none of these is better than the last
        ([math.nan, -5.0, math.nan, -6.0], "step-0000007"),
        ([1.0, math.nan, 2.0, math.nan], "step-0000011"),
        (None, "step-0000016"),  # without scores the last model is kept
    ],
)
def test_an_undefined_score_is_worse_than_any(tmp_path, scores, kept):
    run(tmp_path, Problem([{}] * EPOCHS if scores is None else [{"overall": s} for s in scores]), save_every=-1)
    assert json.loads((tmp_path / "best.json").read_text()) == {"last" if scores is None else "overall": kept}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [kept]


# Resume.


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, list[Tensor]]:
    """Result and final weights of a run without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    problem = run(folder)
    return result(folder), parameters(problem)


def assert_resumed_like(whole, folder: Path) -> None:
    problem = Problem()
    with torch.no_grad():
        for parameter in problem.module.parameters():
            parameter.add_(1)  # neither weights nor generator at the start may change a resumed run
    torch.manual_seed(99)
    problem.backward = partial(backward, problem)
    train(problem, CONFIG, folder, CPU, NEVER)
    expected, weights = whole
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(parameters(problem), weights, strict=True))
    assert result(folder) == expected


def step_of_state(folder: Path) -> int:
    return json.loads(torch.load(folder / "state" / "state.pt", weights_only=True)["progress"])["step"]


@pytest.mark.parametrize("at", [1, 6, 7, 15])
def test_resumed_after_a_step(tmp_path, whole, at):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(at), save_every=-1)
    assert step_of_state(tmp_path) == at
    assert_resumed_like(whole, tmp_path)


def test_resumed_after_a_stop_at_an_evaluation(tmp_path, whole):
    with pytest.raises(Stopped):
        run(tmp_path, on_evaluation=lambda step, line: step == 7)
    assert [line["step"] for line in history(tmp_path)] == [3, 7]
    assert step_of_state(tmp_path) == 7
    assert_resumed_like(whole, tmp_path)


def test_resumed_again_and_again(tmp_path, whole):
    for _ in range(5):
        with pytest.raises(Cut):
            run(tmp_path, step=cut_before(3), save_every=-1)
        (tmp_path / "state" / ".state.pt.x.tmp").touch()  # files that a kill leaves half written
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp").mkdir()
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp" / "module.safetensors").touch()
        (tmp_path / "checkpoints" / ".DS_Store").touch()  # of a Mac that shows the folder
    assert_resumed_like(whole, tmp_path)


def test_resumed_from_an_older_state_without_the_lines_after_it(tmp_path, whole):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(5), save_every=-1)
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(7))  # evaluates at 7 and 11 without saving a state
    assert [line["step"] for line in history(tmp_path)] == [3, 7, 11]
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(0))
    assert [line["step"] for line in history(tmp_path)] == [3]
    assert_resumed_like(whole, tmp_path)


@pytest.mark.parametrize("evaluation", [0, EPOCHS - 1])
@pytest.mark.parametrize("where", ["evaluate", "save", "on_evaluation", "write_json"])
def test_resumed_after_a_cut_around_an_evaluation(tmp_path, whole, evaluation, where, monkeypatch):
    counts = []

    def failing(original, *arguments):
        counts.append(arguments)
        if len(counts) > (0 if where == "write_json" else evaluation):  # best.json is written once, at the very end
            raise Cut
        return original(*arguments)

    calls = {"on_evaluation": partial(failing, print)} if where == "on_evaluation" else {}
    with monkeypatch.context() as patch:
        if not calls:
            owner = checkpoints_and_resume if where == "write_json" else Problem
            original = getattr(owner, where)
            patch.setattr(owner, where, lambda *arguments: failing(original, *arguments))
        with pytest.raises(Cut):
            run(tmp_path, save_every=-1, **calls)
    assert_resumed_like(whole, tmp_path)


@pytest.mark.parametrize(("number", "at"), [(signal.SIGTERM, 0), (signal.SIGINT, 6), (signal.SIGTERM, 15)])
def test_a_signal_saves_the_state_and_the_run_resumes(tmp_path, whole, number, at):
    def step(problem, update):
        losses = backward(problem, update)
        if problem.calls == at + 1:
            os.kill(os.getpid(), number)
        return losses

    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Interrupted, match=r"stopped; the state is saved\. Run the same command again") as caught:
        run(tmp_path, step=step)
    assert caught.value.signal_number == number
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert step_of_state(tmp_path) == at + 1
    assert_resumed_like(whole, tmp_path)


def test_trains_outside_the_main_thread(tmp_path, whole):
    thread = threading.Thread(target=run, args=(tmp_path,))
    thread.start()
    thread.join()
    assert result(tmp_path) == whole[0]


# What is bad is not kept, and not read.


class OneStep(Problem):
    """Its only epoch is one step, so that no later loss can show what the step did to the weights."""

    def plan(self, epoch):
        return super().plan(epoch)[:1]


@pytest.mark.parametrize("evaluate_every", [None, 1, 99])
@pytest.mark.parametrize("save_every", [NEVER, -1])
def test_a_last_step_that_spoils_the_weights_keeps_nothing(tmp_path, evaluate_every, save_every):
    exploding = OptimizerConfig(learning_rate=1e300, weight_decay=1e300)
    with pytest.raises(TrainingError, match=r"step 1: the weights encoder\.0\.weight are NaN or infinite"):
        run(tmp_path, OneStep(), LoopConfig(1, exploding, evaluate_every=evaluate_every), save_every=save_every)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def flipped(place: float):
    return lambda content: bytes(byte ^ (i == int(place * (len(content) - 1))) for i, byte in enumerate(content))


@pytest.mark.parametrize("damage", [flipped(0), flipped(0.6), flipped(1), *(lambda x, n=n: x[:n] for n in (0, 1000))])
def test_a_damaged_state_is_put_aside_and_computed_again(tmp_path, whole, damage, caplog):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(9), save_every=-1)
    path = tmp_path / "state" / "state.pt"
    path.write_bytes(content := damage(path.read_bytes()))
    caplog.set_level(logging.WARNING)
    run(tmp_path)
    assert "state.pt: damaged; put aside as damaged-state.pt, and training begins again" in caplog.text
    aside = path.with_name("damaged-state.pt")
    assert aside.read_bytes() == content
    aside.unlink()
    assert result(tmp_path) == whole[0]


def test_a_disk_that_fails_while_a_state_is_written_is_named(tmp_path, monkeypatch):
    """torch fails again when it ends the file, with an error of its own."""
    layer = FaultyFiles(tmp_path, Fault(errno.EIO, ("write",), lasting=False), 0)
    save = torch.save

    def failing(state, file):
        with layer.installed(), open(file.name, "wb") as faulty:  # noqa: PTH123
            save(state, faulty)

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        run(tmp_path, save_every=-1)
    assert caught.value.filename == str(tmp_path / "state" / "state.pt")

"""The loop equals one written out by hand, and a run cut short anywhere ends as if it had not been."""

import json
import math
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from minbert.files import atomic_folder
from multitask.runtime.device import Runtime
from multitask.runtime.errors import Interrupted, TrainingError
from multitask.training import checkpoints_and_resume
from multitask.training import loop as training
from multitask.training.config import OptimizerConfig
from multitask.training.loop import LoopConfig, train
from multitask.training.optimizer_and_clipping import build_adamw, learning_rate_factor
from multitask.training.trainable import Batch, Evaluation, Losses

CPU = Runtime(torch.device("cpu"), "fp32")
NEVER = 1e9
ROWS, BATCH, EPOCHS = 22, 4, 4
OPTIMIZER = OptimizerConfig(0.03, 0.1, "linear", warmup=0.2, weight_decay=0.1, clip=0.5)
CONFIG = LoopConfig(EPOCHS, OPTIMIZER)
SOURCES = ("left", "right")


class Regression(nn.Module):
    """Two outputs from four inputs, with dropout, norm and biases, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Dropout(0.3))
        self.heads = nn.Linear(5, 2)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.heads(self.encoder(inputs))


class Problem:
    """A `Trainable`: each source is one output's squared error. Epochs differ in length and end in smaller batches."""

    def __init__(self, script: list[dict[str, float]] | None = None) -> None:
        torch.manual_seed(5)
        self.module = Regression()
        random = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(ROWS, 4, generator=random, dtype=torch.float64)
        self.targets = torch.randn(ROWS, 2, generator=random, dtype=torch.float64)
        self.script = script  # scores of each epoch, or None to score the module
        self.poison: tuple[int, str, float] | None = None  # step (from 0), where, value
        self.calls = 0

    def plan(self, epoch: int) -> list[tuple[Batch, ...]]:
        rows = np.random.default_rng(epoch).permutation(ROWS)[: 10 + 3 * epoch]
        parts = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
        return [(Batch("left", part), Batch("right", (part + 1) % ROWS)) for part in parts]

    def losses(self, update: tuple[Batch, ...]) -> Losses:
        terms = {}
        for column, batch in enumerate(update):
            outputs = self.module(self.inputs[batch.rows])[:, column]
            terms[batch.source] = (outputs - self.targets[batch.rows, column]).square().mean()
        if self.poison and self.calls == self.poison[0]:
            where, value = self.poison[1:]
            terms[where] = terms[where] * value if where in terms else terms[where]
        self.calls += 1
        return Losses(terms, tokens=sum(len(batch.rows) for batch in update))

    def evaluate(self) -> Evaluation:
        assert not self.module.training
        assert not torch.is_grad_enabled()
        errors = (self.module(self.inputs) - self.targets).square().mean(dim=0).tolist()
        metrics = {name: {"error": error} for name, error in zip(SOURCES, errors, strict=True)}
        if self.script is not None:
            return Evaluation(metrics, self.script[self.epoch_of_call()])
        return Evaluation(metrics, {"overall": -sum(errors), "left": -errors[0], "right": -errors[1]})

    def epoch_of_call(self) -> int:
        ends = np.cumsum([len(self.plan(epoch)) for epoch in range(EPOCHS)]).tolist()
        return ends.index(self.calls)

    def save(self, folder: Path) -> None:
        with atomic_folder(folder) as temporary:
            save_file(self.module.state_dict(), temporary / "module.safetensors")


def backward(problem: Problem, update: tuple[Batch, ...]) -> Losses:
    losses = problem.losses(update)
    sum(losses.terms.values()).backward()
    return losses.detached()


def run(folder: Path, problem: Problem | None = None, config=CONFIG, step=backward, save_every=NEVER, **kwargs):
    """Train a fresh problem, or the given one; returns it."""
    problem = problem or Problem()
    torch.manual_seed(7)
    train(problem, step, config, folder, CPU, save_every, **kwargs)
    return problem


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def result(folder: Path) -> dict:
    """Everything that a finished run leaves, but how long it took."""
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in history(folder)]
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("metrics.jsonl", "state.pt")
    }
    return {"history": lines, "files": files}


def steps_of(problem: Problem) -> list[tuple[Batch, ...]]:
    return [update for epoch in range(EPOCHS) for update in problem.plan(epoch)]


def parameters(problem: Problem) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in problem.module.parameters()]


# The loop against one by hand.


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
        assert max(one["gradient"] for one in seen) > config.clip  # else nothing was clipped


@pytest.mark.parametrize("warmup, schedule", [(0.0, "constant"), (0.25, "constant"), (0.0, "linear"), (0.3, "linear")])
def test_learning_rate_factor(warmup, schedule):
    config = OptimizerConfig(warmup=warmup, schedule=schedule)
    factors = [learning_rate_factor(step, 20, config) for step in range(20)]
    rising = round(20 * warmup)
    np.testing.assert_allclose(factors[:rising], np.arange(1, rising + 1) / max(rising, 1))
    falling = np.linspace(1, 0, 20 - rising, endpoint=False) if schedule == "linear" else np.ones(20 - rising)
    np.testing.assert_allclose(factors[rising:], falling)


def test_warmup_longer_than_the_run():
    assert learning_rate_factor(0, 1, OptimizerConfig(warmup=1.0, schedule="linear")) == 1
    assert [learning_rate_factor(step, 2, OptimizerConfig(warmup=1.0)) for step in range(2)] == [0.5, 1]


@pytest.mark.parametrize("head_rate", [None, 0.0, 0.3])
def test_weight_decay_is_for_matrices_and_heads_have_their_own_rate(head_rate):
    module = Regression()
    module.encoder[0].weight.requires_grad_(False)
    optimizer = build_adamw(module, OptimizerConfig(0.1, head_rate, weight_decay=0.2))
    groups = optimizer.param_groups
    settings = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(settings)
    heads = 0.1 if head_rate is None else head_rate
    expected = {
        "encoder.0.bias": (0.1, 0.0),
        "encoder.1.weight": (0.1, 0.0),
        "encoder.1.bias": (0.1, 0.0),
        "heads.weight": (heads, 0.2),
        "heads.bias": (heads, 0.0),
    }
    assert {n: settings[id(p)] for n, p in module.named_parameters() if p.requires_grad} == expected
    assert len(settings) == len(expected)


# What a run records and keeps.


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
    """Shows a number that says when it was looked at, and notes what was in place then."""

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


SCRIPT = [
    {"overall": 1.0, "left": 9.0},
    {"overall": 3.0, "left": 8.0},
    {"overall": 3.0, "left": 8.5},  # as good is not better
    {"overall": 2.0, "left": 9.5},
]


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


@pytest.mark.parametrize("patience, evaluations", [(1, 3), (2, 4), (None, 4)])
def test_patience(tmp_path, patience, evaluations):
    run(tmp_path, Problem(SCRIPT), LoopConfig(EPOCHS, OPTIMIZER, patience))
    assert len(history(tmp_path)) == evaluations
    assert json.loads((tmp_path / "best.json").read_text())["overall"] == "step-0000007"


def test_without_scores_the_last_model_is_kept(tmp_path):
    run(tmp_path, Problem([{}] * EPOCHS))
    assert json.loads((tmp_path / "best.json").read_text()) == {"last": "step-0000016"}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000016"]


@pytest.mark.parametrize(
    "scores, kept",
    [
        ([math.nan] * 4, "step-0000003"),  # some model is there in any case
        ([math.nan, -5.0, math.nan, -6.0], "step-0000007"),
        ([1.0, math.nan, 2.0, math.nan], "step-0000011"),
    ],
)
def test_an_undefined_score_is_worse_than_any(tmp_path, scores, kept):
    run(tmp_path, Problem([{"overall": score} for score in scores]), save_every=-1)
    assert json.loads((tmp_path / "best.json").read_text()) == {"overall": kept}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [kept]


# Losses that are not finite.


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("at", [0, 2, 9])
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
    """The error says what, when and where; the weights in memory and on disk are those before the step."""
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
    run(folder)  # the saved state is good: without the fault the run ends as any other
    run(folder.with_name("whole"))
    assert result(folder) == result(folder.with_name("whole"))


# Resume.


class Cut(Exception):  # noqa: N818
    """Stands for a kill."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, list[Tensor]]:
    """Result and final weights of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    problem = run(folder)
    return result(folder), parameters(problem)


def cut_before(number: int):
    """A step that fails at its call `number`, from 0."""
    calls = []

    def step(problem, update):
        calls.append(update)
        if len(calls) > number:
            raise Cut
        return backward(problem, update)

    return step


def assert_resumed_like(whole, folder: Path, save_every=NEVER) -> None:
    problem = Problem()
    with torch.no_grad():
        for parameter in problem.module.parameters():
            parameter.add_(1)  # what a resumed run starts with must not matter, nor must the generator
    torch.manual_seed(99)
    train(problem, backward, CONFIG, folder, CPU, save_every)
    expected, weights = whole
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(parameters(problem), weights, strict=True))
    assert result(folder) == expected


@pytest.mark.parametrize("at", range(1, 16))
def test_resumed_after_any_step(tmp_path, whole, at):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(at), save_every=-1)
    assert json.loads(torch.load(tmp_path / "state" / "state.pt")["progress"])["step"] == at
    assert_resumed_like(whole, tmp_path)


def test_resumed_again_and_again(tmp_path, whole):
    for _ in range(5):
        with pytest.raises(Cut):
            run(tmp_path, step=cut_before(3), save_every=-1)
        (tmp_path / "state" / ".state.pt.x.tmp").touch()  # what a kill leaves half written
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp").mkdir()
        (tmp_path / "checkpoints" / ".step-0000099.x.tmp" / "module.safetensors").touch()
    assert_resumed_like(whole, tmp_path)


@pytest.mark.parametrize("at", range(1, 16))
def test_resumed_from_an_older_state(tmp_path, whole, at, monkeypatch):
    ticks = iter(range(10**6))  # the clock stands for itself: every look at it is a second
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(at), save_every=9)
    if (tmp_path / "state").exists():
        saved = json.loads(torch.load(tmp_path / "state" / "state.pt")["progress"])["step"]
        assert at - 5 < saved <= at
    else:
        torch.manual_seed(7)
        with pytest.raises(Cut):  # without a state a run begins anew, as its stage seeds it
            run(tmp_path, step=cut_before(12), save_every=-1)
    assert_resumed_like(whole, tmp_path, save_every=9)


@pytest.mark.parametrize("evaluation", range(EPOCHS))
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


@pytest.mark.parametrize("at", [4, 7, 10])
def test_patience_survives_a_cut(tmp_path, at):
    config = LoopConfig(EPOCHS, OPTIMIZER, patience=1)
    run(tmp_path / "whole", Problem(SCRIPT), config)
    with pytest.raises(Cut):
        run(tmp_path / "cut", Problem(SCRIPT), config, cut_before(at), save_every=-1)
    problem = Problem(SCRIPT)
    problem.calls = at  # the script goes by the calls
    run(tmp_path / "cut", problem, config)
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


# Signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", [0, 6, 15])
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

"""A small regression as a `Trainable`, and helpers that train it, cut the training and read the files of a run."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from minbert.files import atomic_folder
from multitask.base.device import Runtime
from multitask.training.loop import LoopConfig, train
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Batch, Evaluation, Losses, Trainable

CPU = Runtime(torch.device("cpu"), "fp32")
NEVER = 1e9
ROWS, BATCH, EPOCHS = 22, 4, 4
OPTIMIZER = OptimizerConfig(0.03, 0.1, "linear", warmup=0.2, weight_decay=0.1, clip=0.5)
CONFIG = LoopConfig(EPOCHS, OPTIMIZER)
SOURCES = ("left", "right")
SCRIPT = [
    {"overall": 1.0, "left": 9.0},
    {"overall": 3.0, "left": 8.0},
    {"overall": 3.0, "left": 8.5},  # an equal score is not better
    {"overall": 2.0, "left": 9.5},
]


class Regression(nn.Module):
    """Two outputs from four inputs, with dropout, norm and biases, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Dropout(0.3))
        self.heads = nn.Linear(5, 2)
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.heads(self.encoder(inputs))


class Problem(Trainable):
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

    @property
    def sentences(self) -> dict:
        return {}

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

    def backward(self, update: tuple[Batch, ...]) -> Losses:
        return backward(self, update)

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
    """Train a fresh problem, or the given one, with `step` as its `backward`; returns it."""
    problem = problem or Problem()
    problem.backward = partial(step, problem)
    torch.manual_seed(7)
    train(problem, config, folder, CPU, save_every, **kwargs)
    return problem


class Cut(Exception):  # noqa: N818
    """Stands for a kill."""


def cut_before(number: int):
    """A step that fails at its call `number`, from 0."""
    calls = []

    def step(problem, update):
        calls.append(update)
        if len(calls) > number:
            raise Cut
        return backward(problem, update)

    return step


def history(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def result(folder: Path) -> dict:
    """All files of a finished run, without the times that it took."""
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

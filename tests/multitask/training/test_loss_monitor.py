"""A loss or gradient that is not finite stops the run before it does harm, and the message says where it came from."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from multitask.base.errors import TrainingError
from tests.multitask.training.toy import SOURCES, Problem, backward, parameters, result, run, steps_of


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

"""Kept models are the geometric sum of all steps' weights, and training goes on from the last step's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from multitask.training.loop import LoopConfig
from multitask.training.regularisation.moving_average import MovingAverage
from tests.multitask.training.test_checkpoints_and_resume import Cut, cut_before
from tests.multitask.training.toy import EPOCHS, OPTIMIZER, Problem, backward, parameters, result, run

AVERAGED = LoopConfig(EPOCHS, replace(OPTIMIZER, ema_decay=0.8))


@pytest.mark.parametrize("decay", [0.0, 0.8, 0.999])
def test_the_average_is_the_closed_form(decay: float) -> None:
    random = np.random.default_rng(0)
    weights = random.normal(size=(7, 3))
    parameter = nn.Parameter(torch.from_numpy(random.normal(size=3)))
    average = MovingAverage([parameter], decay)
    for step, values in enumerate(weights, start=1):
        parameter.data.copy_(torch.from_numpy(values))
        average.update(step)
        shares = decay ** np.arange(step - 1, -1, -1)
        with average.in_place():
            np.testing.assert_allclose(parameter.detach(), shares @ weights[:step] / shares.sum(), rtol=1e-12)
        np.testing.assert_array_equal(parameter.detach(), values)


def test_averages_are_evaluated_and_kept_and_training_goes_on_without_them(tmp_path: Path) -> None:
    seen: list[list[Tensor]] = []

    def step(problem: Problem, update):
        seen.append(parameters(problem))
        return backward(problem, update)

    problem = run(tmp_path / "averaged", Problem([{}] * EPOCHS), AVERAGED, step)
    plain = run(tmp_path / "plain")
    assert all(map(torch.equal, parameters(problem), parameters(plain)))
    steps = [*seen[1:], parameters(problem)]  # the weights after each step
    shares = 0.8 ** np.arange(len(steps) - 1, -1, -1)
    kept = load_file(tmp_path / "averaged" / "checkpoints" / "step-0000016" / "module.safetensors")
    for place, (name, _) in enumerate(problem.module.named_parameters()):
        expected = sum(share * weights[place] for share, weights in zip(shares, steps, strict=True)) / shares.sum()
        torch.testing.assert_close(kept[name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", [1, 9])
def test_a_run_that_was_cut_has_the_same_averages(tmp_path: Path, number: int) -> None:
    run(tmp_path / "whole", config=AVERAGED)
    with pytest.raises(Cut):
        run(tmp_path / "cut", config=AVERAGED, step=cut_before(number), save_every=-1)
    run(tmp_path / "cut", config=AVERAGED)
    assert result(tmp_path / "cut") == result(tmp_path / "whole")

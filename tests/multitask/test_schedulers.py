"""Schedulers: which batches meet in a step, and whose gradient a step takes."""

import numpy as np
import pytest
from torch import nn

from minbert.errors import InputError
from multitask.config import FinetuneConfig
from multitask.schedulers import AverageLoss
from multitask.training import Batch, Losses

ROWS = [np.array([0, 1]), np.array([2, 3]), np.array([4])]


class TwoLosses:
    """Losses x² and 3x of one parameter x = 2."""

    def __init__(self) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.module.weight, 2.0)

    def losses(self, update: tuple[Batch, ...]) -> Losses:
        x = self.module.weight.sum()
        values = {"square": x * x, "line": 3 * x}
        return Losses({batch.source: values[batch.source] for batch in update}, tokens=7)


@pytest.mark.parametrize(("weights", "expected"), [((1.0, 1.0), (4 + 3) / 2), ((0.5, 2.0), (2 + 6) / 2)])
def test_average_takes_the_gradient_of_the_weighted_mean(weights: tuple[float, float], expected: float) -> None:
    problem = TwoLosses()
    update = tuple(Batch(name, ROWS[0]) for name in ("square", "line"))
    losses = AverageLoss(dict(zip(("square", "line"), weights, strict=True))).backward(problem, update)
    assert problem.module.weight.grad.item() == pytest.approx(expected)
    assert {name: term.item() for name, term in losses.terms.items()} == {"square": 4.0, "line": 6.0}
    assert not any(term.requires_grad for term in losses.terms.values())


def test_average_has_a_batch_of_every_task_in_each_step() -> None:
    scheduler = AverageLoss({"a": 1.0, "b": 1.0})
    updates = scheduler.arrange({"a": ROWS, "b": ROWS[::-1]}, np.random.default_rng(0))
    assert [[(batch.source, batch.rows.tolist()) for batch in update] for update in updates] == [
        [("a", [0, 1]), ("b", [4])],
        [("a", [2, 3]), ("b", [2, 3])],
        [("a", [4]), ("b", [0, 1])],
    ]


def test_average_cuts_an_epoch_to_the_smallest_task() -> None:
    scheduler = AverageLoss({"a": 1.0, "b": 1.0})
    assert scheduler.epoch_sizes({"a": 100, "b": 30}, None) == {"a": 30, "b": 30}
    assert scheduler.epoch_sizes({"a": 100, "b": 30}, 50) == {"a": 50, "b": 50}


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0, 1.0), (1.0, -1.0, 1.0), (1.0, float("nan"), 1.0)], ids=str)
def test_weights_must_be_positive_and_one_for_each_task(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="expected 3 positive numbers"):
        FinetuneConfig(weights=weights)

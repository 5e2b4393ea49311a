"""Value and gradient of every objective against its formula written as loops."""

from functools import partial

import pytest
import torch

from multitask.objectives import Objective

from .batches import (
    ALL_OBJECTIVES,
    AWKWARD_BATCHES,
    RANDOM_BATCHES,
    Batch,
    labels_for,
    random_batch,
    some_false_negatives,
    value_and_gradient,
)
from .loops import loop_loss

TAKES_HARD_NEGATIVES = [objective for objective in ALL_OBJECTIVES if objective.takes_hard_negatives]


def assert_equal(actual: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for a, e in zip(actual, expected, strict=True):
        scale = e.abs().max().item()  # gradients of huge embeddings are small
        torch.testing.assert_close(a, e, rtol=1e-6, atol=max(1e-6 * min(scale, 1.0), 1e-12))


def follows(objective: Objective, batch: Batch) -> None:
    labels = labels_for(objective, len(batch.anchors))
    actual = value_and_gradient(objective, batch, labels=labels)
    expected = value_and_gradient(partial(loop_loss, objective), batch, labels=labels)
    if batch.differentiable:
        assert_equal(actual, expected)
    else:
        assert_equal(actual[:1], expected[:1])


@pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
def test_value_and_gradient_follow_the_formula(objective: Objective) -> None:
    assert all(batch.differentiable for batch in RANDOM_BATCHES)
    for batch in (*RANDOM_BATCHES, *AWKWARD_BATCHES):
        follows(objective, batch)


@pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
def test_false_negatives_are_left_out_as_in_the_formula(objective: Objective) -> None:
    batch = random_batch(7)
    arguments = {"labels": labels_for(objective, 6), "false_negatives": some_false_negatives(6)}
    actual = value_and_gradient(objective, batch, **arguments)
    assert_equal(actual, value_and_gradient(partial(loop_loss, objective), batch, **arguments))


@pytest.mark.parametrize("objective", TAKES_HARD_NEGATIVES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_hard_negatives_follow_the_formula(objective: Objective, masked: bool) -> None:
    batch = random_batch(8)
    arguments: dict[str, torch.Tensor | None] = {"hard_negatives": random_batch(9).anchors}
    if masked:
        arguments["false_negatives"] = some_false_negatives(6)
        arguments["false_hard_negatives"] = some_false_negatives(6).flip(0)
    actual = value_and_gradient(objective, batch, **arguments)
    assert_equal(actual, value_and_gradient(partial(loop_loss, objective), batch, **arguments))


def test_hard_negatives_get_the_gradient_of_the_formula() -> None:
    batch = random_batch(8)
    objective = TAKES_HARD_NEGATIVES[0]
    hard = random_batch(9, pairs=3).anchors.requires_grad_()
    (actual,) = torch.autograd.grad(objective(batch.anchors, batch.positives, hard), hard)
    (expected,) = torch.autograd.grad(loop_loss(objective, batch.anchors, batch.positives, hard), hard)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


NO_STOP_GRADIENT = [
    objective
    for objective in ALL_OBJECTIVES
    if objective.name not in ("gradient", "mixed", "mhs", "vicreg", "barlow_twins")
    and (objective.name != "mhe" or (objective.weight is None and objective.dissipation is None))
]


@pytest.mark.parametrize("objective", NO_STOP_GRADIENT, ids=str)
def test_gradient_is_the_numerical_one(objective: Objective) -> None:
    batch = random_batch(4, pairs=4, dim=3)
    inputs = (batch.anchors.clone().requires_grad_(), batch.positives.clone().requires_grad_())
    assert torch.autograd.gradcheck(partial(objective, labels=labels_for(objective, 4)), inputs)

"""Ordered classes, focal loss and weighted rows, against slow loops, closed forms and rows that are written twice."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp
from torch import Tensor

from multitask.tasks.kinds import KINDS, Classification, Regression
from multitask.tasks.scores import distance_loss, focus
from tests.multitask.tasks.test_kinds import declared

LABELS = ["a", "b", "c", "d"]
ALPHA = st.sampled_from([1.0, 1.5, 2.0])
LOGITS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 6)), elements=st.floats(-200, 200))


@given(LOGITS, ALPHA, st.randoms())
def test_distances_cost_what_a_loop_over_the_classes_adds_up(logits, alpha, random):
    gold = [random.randrange(logits.shape[1]) for _ in logits]
    expected = []
    for row, y in zip(logits, gold, strict=True):
        # log(1 - p_j) is the log of the other classes' sum.
        missed = [logsumexp(np.delete(row, j)) - logsumexp(row) for j in range(len(row))]
        expected.append(-sum(missed[j] * abs(j - y) ** alpha for j in range(len(row))))
    outputs = torch.from_numpy(logits).requires_grad_()
    found = distance_loss(outputs.log_softmax(dim=1), torch.tensor(gold), alpha)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-9, atol=1e-9)
    found.sum().backward()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()


def test_gradients_are_those_of_small_differences():
    logits, gold = torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 3, 3])
    assert torch.autograd.gradcheck(lambda x: distance_loss(x.log_softmax(dim=1), gold, 1.5), logits)
    assert torch.autograd.gradcheck(lambda x: focus(F.logsigmoid(x), 2.0), logits)


def test_of_two_classes_the_distance_costs_the_cross_entropy_again():
    """Whatever the power: the only other class is one class away."""
    outputs, gold = torch.randn(7, dtype=torch.float64), torch.tensor([0.0, 1, 1, 0, 1, 0, 0], dtype=torch.float64)
    task = declared("pair_classification", labels=["no", "yes"], ordinal=True, ordinal_weight=0.25, ordinal_alpha=2)
    expected = 1.25 * F.binary_cross_entropy_with_logits(outputs, gold)
    torch.testing.assert_close(task.loss(outputs, gold), expected)


@given(st.floats(0, 5), st.floats(-30, 30))
def test_focal_loss_is_its_formula(gamma, logit):
    task = declared("pair_classification", labels=["no", "yes"], focal=gamma)
    p = 1 / (1 + math.exp(-logit))
    found = task.loss(torch.tensor([logit], dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    assert found.item() == pytest.approx(-((1 / (1 + math.exp(logit))) ** gamma) * math.log(p), rel=1e-6, abs=1e-15)


def test_focal_loss_has_gradients_where_a_row_is_surely_right():
    outputs = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    declared("classification", labels=["a", "b"], focal=0.5).loss(outputs, torch.zeros(2)).backward()
    torch.testing.assert_close(outputs.grad, torch.tensor([[0.0, 0.0], [-0.5, 0.5]]))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {} if issubclass(of, Regression) else {"labels": LABELS[:2]}) for kind, of in KINDS.items()),
    ("classification", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "focal": 2}),
    ("classification", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "ordinal": True}),
    ("pair_classification", {"labels": LABELS[:2], "class_weights": [1, 3]}),
    ("multilabel", {"labels": LABELS, "class_weights": [1, 2, 0.5, 3], "focal": 1}),
]


@pytest.mark.parametrize(("kind", "fields"), VARIANTS, ids=str)
def test_a_row_of_weight_two_is_two_rows_and_one_of_weight_zero_none(kind, fields):
    task = declared(kind, **fields)
    draws = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, task.outputs, dtype=torch.float64, generator=draws)
    outputs = outputs.squeeze(1) if task.outputs == 1 else outputs
    labels = torch.rand(6, dtype=torch.float64, generator=draws)
    if kind == "multilabel":
        labels = (torch.rand(outputs.shape, generator=draws) < 0.5).double()
    elif isinstance(task, Classification):
        labels = (labels * len(task.labels)).floor()
    weights = torch.tensor([1.0, 2, 0, 1, 2, 0], dtype=torch.float64)
    twice = torch.tensor([0, 1, 1, 3, 4, 4])

    def value_and_gradient(rows: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        leaf = outputs.clone().requires_grad_()
        loss = task.loss(leaf[rows], labels[rows], weights)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    every = torch.arange(6)
    torch.testing.assert_close(value_and_gradient(every, weights), value_and_gradient(twice, None))
    torch.testing.assert_close(value_and_gradient(every, 3 * weights), value_and_gradient(twice, None))
    torch.testing.assert_close(value_and_gradient(every, torch.ones(6)), value_and_gradient(every, None))
    nothing = value_and_gradient(every, torch.zeros(6))
    assert all(not part.any() for part in nothing)


def test_without_weight_the_order_changes_the_scores_only_and_calibration_fits_the_cross_entropy():
    outputs, gold = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), np.arange(40.0) % 4
    plain = declared("classification", labels=LABELS)
    shaped = declared("classification", labels=LABELS, ordinal=True, focal=3, class_weights=[1, 2, 3, 4])
    ordered = replace(plain, ordinal=True, ordinal_weight=0.0)
    values = torch.from_numpy(outputs), torch.from_numpy(gold)
    assert torch.equal(ordered.loss(*values), plain.loss(*values))
    found, expected = (task.calibrated(outputs, gold.astype(np.float32)) for task in (shaped, plain))
    assert isinstance(found, Classification)
    assert found.temperature == expected.temperature
    estimates = ordered.estimate(outputs)
    assert ordered.metrics(estimates, gold).keys() - plain.metrics(estimates, gold).keys() == {"mae", "kappa"}

"""Learned weights equal their closed form."""

import math

import pytest
import torch

from multitask.schedulers import build_scheduler
from multitask.stages.finetune import FinetuneConfig
from tests.conftest import COURSE_TASKS

from .toy import OWN, TASKS, UPDATE, Toy

FACTORS = {"sentiment": 1.0, "paraphrase": 1.0, "similarity": 0.5}
WEIGHTS = {"sentiment": 1.0, "paraphrase": 2.0, "similarity": 4.0}


def build(logs: list[float]):
    config = FinetuneConfig(TASKS, scheduler="uncertainty", task_weights=tuple(WEIGHTS.values()))
    scheduler = build_scheduler(config, COURSE_TASKS, torch.device("cpu")).double()
    assert scheduler.log_variances.tolist() == [0, 0, 0]
    with torch.no_grad():
        scheduler.log_variances.copy_(torch.tensor(logs))
    return scheduler


def test_gradients_have_their_closed_form():
    toy, logs = Toy(), [0.3, -1.2, 0.9]
    scheduler = build(logs)
    losses = scheduler.backward(toy, UPDATE)
    terms, reference = toy.losses(UPDATE).terms, toy.reference()
    for k, task in enumerate(TASKS):
        scale = FACTORS[task] * WEIGHTS[task] * math.exp(-logs[k]) / 3
        expected = 1 / 6 - scale * terms[task].item()  # of (f L exp(-s) + s/2) / 3 by s
        assert scheduler.log_variances.grad[k].item() == pytest.approx(expected)
        for parameter in OWN[task]:
            torch.testing.assert_close(toy.named()[parameter].grad, scale * reference[task][parameter])
        assert losses.terms[task].item() == pytest.approx(terms[task].item())  # the loss itself is what is logged
        assert losses.watched[f"log variance {task}"].item() == pytest.approx(logs[k])
        assert not losses.watched[f"log variance {task}"].requires_grad


def test_a_variance_rests_where_it_equals_the_loss():
    """The gradient is zero at σ² = L for a regression, at σ² = 2 L for a classification, whose loss counts twice."""
    toy = Toy()
    terms = toy.losses(UPDATE).terms
    scheduler = build([math.log(2 * FACTORS[task] * WEIGHTS[task] * terms[task].item()) for task in TASKS])
    scheduler.backward(toy, UPDATE)
    torch.testing.assert_close(scheduler.log_variances.grad, torch.zeros(3, dtype=torch.float64))

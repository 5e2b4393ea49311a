"""Learning rates by step and by parameter; which parameters decay. Clipped steps are checked in test_loop.py."""

import numpy as np
import pytest

from multitask.training.config import OptimizerConfig
from multitask.training.optimizer_and_clipping import build_adamw, learning_rate_factor
from tests.multitask.training.toy import Regression


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

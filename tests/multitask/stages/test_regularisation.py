"""Regularised fine-tuning of a tiny encoder: with every scheduler, and however pairs are read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from multitask.base.device import Runtime
from multitask.base.runs import Weights
from multitask.models.settings import HeadsConfig
from multitask.stages.finetune import Finetuning, finetune
from multitask.stages.settings import FinetuneConfig
from multitask.stages.training_run import StartModel
from multitask.tasks.declarations import MAIN_TASKS
from multitask.training.schedulers import SCHEDULERS
from multitask.training.settings import OptimizerConfig, RegularisationConfig
from tests.multitask.stages.conftest import history, weights
from tests.multitask.training.schedulers.toy import needs, tasks_of

FAST = OptimizerConfig(learning_rate=1e-3)
CONFIG = FinetuneConfig(MAIN_TASKS, epochs=2, batch_size=8, epoch_size=16, optimizer=FAST, keep_task_bests=False)
BOTH = RegularisationConfig(smart_weight=2.0, smart_radius=0.05, r_drop_weight=1.5)


def test_what_is_off_changes_nothing(run_stage):
    off = replace(CONFIG, regularisation=RegularisationConfig(smart_radius=0.5))
    plain, other = run_stage(finetune, CONFIG), run_stage(finetune, off)
    assert weights(plain) == weights(other)
    np.testing.assert_equal(history(plain), history(other))


@pytest.fixture(scope="module")
def problem(tiny_encoder: Path, small_data: Path) -> Callable[[FinetuneConfig], Finetuning]:
    """The first state of a training without dropout. All have the same encoder."""
    still = replace(CONFIG, encoder_dropout=0.0, heads=HeadsConfig(dropout=0.0))
    begin = StartModel.load(Weights(str(tiny_encoder)), still.pooling, still.seed)
    found = Finetuning.load(begin, small_data, still, Runtime(torch.device("cpu"), "fp32"))

    def build(config: FinetuneConfig) -> Finetuning:
        training = {task: found.training[task] for task in config.tasks}
        problem = Finetuning(found.model, training, found.dev, config, found.runtime)
        problem.module.train().zero_grad()
        return problem

    return build


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_every_scheduler_takes_the_regularised_losses(name, problem):
    needs(name)
    config = replace(CONFIG, scheduler=name, tasks=tasks_of(name))
    plain, regularised = problem(config), problem(replace(config, regularisation=BOTH))
    update = regularised.plan(0)[0]
    before = {task: term.item() for task, term in plain.losses(update).terms.items()}
    found = regularised.scheduler.backward(regularised, update)
    assert found.terms.keys() == before.keys()
    for task, term in found.terms.items():
        penalty = found.watched[f"{task} smart"].item()
        assert penalty > 0
        assert found.watched[f"{task} r_drop"] == 0  # there is no dropout
        assert term.item() == pytest.approx(before[task] + 2.0 * penalty, rel=1e-4)
    gradients = [p.grad for p in regularised.module.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not found.outputs  # nothing keeps the graph


@pytest.mark.parametrize("pairs", ["embeddings", "joint"])
def test_pairs_are_regularised_however_they_are_read(pairs, run_stage):
    sharing = "shared_first_layer" if pairs == "embeddings" else "separate"
    heads = HeadsConfig(sharing, pairs=pairs)
    artefact = run_stage(
        finetune, replace(CONFIG, tasks=("paraphrase", "similarity"), epochs=1, heads=heads, regularisation=BOTH)
    )
    training = artefact.history()[0]["training"]
    assert training.keys() == {
        "gradient", *(f"{task}{name}" for task in ("paraphrase", "similarity") for name in ("", " smart", " r_drop"))
    }  # fmt: skip
    assert all(value > 0 for value in training.values())

"""Regularised fine-tuning of a tiny encoder: cut and resumed, with every scheduler, on every kind of pair head."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.files import sha256_of_file
from multitask.models.config import HeadsConfig
from multitask.runs.artefact import Artefact, Weights
from multitask.runs.run_hash import changed_settings
from multitask.runtime.device import Runtime
from multitask.runtime.options import RunOptions
from multitask.schedulers import SCHEDULERS
from multitask.stages.finetune import Finetuning, finetune
from multitask.stages.settings.finetune import FinetuneConfig
from multitask.stages.training_run import Start
from multitask.tasks.declarations import MAIN_TASKS
from multitask.training.config import OptimizerConfig, RegularisationConfig
from multitask.training.trainable import Losses
from tests.multitask.schedulers.toy import needs

FAST = OptimizerConfig(learning_rate=1e-3)
CONFIG = FinetuneConfig(MAIN_TASKS, epochs=2, batch_size=8, epoch_size=16, optimizer=FAST, keep_task_bests=False)
BOTH = RegularisationConfig(smart_weight=2.0, smart_radius=0.05, r_drop_weight=1.5)


@pytest.fixture(scope="module")
def run(tiny_encoder: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Artefact]:
    """Fine-tune the tiny encoder on the small data, by default into a folder of all tests' runs."""
    shared = tmp_path_factory.mktemp("runs")

    def call(config: FinetuneConfig, runs: Path = shared, save_every: float = 1e9) -> Artefact:
        options = RunOptions(device="cpu", precision="fp32", runs=runs, save_every=save_every)
        return finetune(str(tiny_encoder), small_data, config, options)

    return call


def kept(artefact: Artefact) -> tuple[dict[str, str], list[dict]]:
    """Checksums of the kept models, and metrics.jsonl without times."""
    files = {str(p.relative_to(artefact.folder)): sha256_of_file(p) for p in artefact.folder.glob("checkpoints/*/*")}
    return files, [{key: value for key, value in line.items() if key != "seconds"} for line in artefact.history()]


def test_what_is_off_changes_nothing(run):
    off = replace(CONFIG, regularisation=RegularisationConfig(smart_radius=0.5))
    np.testing.assert_equal(kept(run(off)), kept(run(CONFIG)))
    assert changed_settings(FinetuneConfig()) == {}
    slower = replace(FinetuneConfig().optimizer, learning_rate=1e-6)
    assert changed_settings(FinetuneConfig(optimizer=slower)) == {"optimizer": {"learning_rate": 1e-6}}


@pytest.fixture(scope="module")
def problem(tiny_encoder: Path, small_data: Path) -> Callable[[FinetuneConfig], Finetuning]:
    """The first state of a training without dropout. All have the same encoder."""
    still = replace(CONFIG, encoder_dropout=0.0, heads=HeadsConfig(dropout=0.0))
    begin = Start.load(Weights(str(tiny_encoder)), still.pooling, still.seed)
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
    config = replace(CONFIG, scheduler=name, tasks=("similarity",) if name == "single" else MAIN_TASKS)
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


@pytest.mark.parametrize("pairs", ["embeddings", "features", "joint"])
def test_pairs_are_regularised_however_they_are_read(pairs, run):
    sharing = "shared_first_layer" if pairs == "embeddings" else "separate"
    heads = HeadsConfig(sharing, pairs=pairs)
    artefact = run(replace(CONFIG, tasks=("paraphrase", "similarity"), epochs=1, heads=heads, regularisation=BOTH))
    training = artefact.history()[0]["training"]
    assert training.keys() == {
        "gradient", *(f"{task}{name}" for task in ("paraphrase", "similarity") for name in ("", " smart", " r_drop"))
    }  # fmt: skip
    assert all(value > 0 for value in training.values())


def test_detached_losses_hold_no_outputs():
    losses = Losses({"a": torch.ones((), requires_grad=True)}, 3, outputs={"a": torch.ones(2, requires_grad=True)})
    assert not losses.detached().outputs
    assert not losses.detached().terms["a"].requires_grad

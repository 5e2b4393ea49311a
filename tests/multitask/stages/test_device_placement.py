"""Every stage's step on `meta` tensors: without a GPU, it finds what would go wrong or wait on one.

An operation on a meta tensor and a CPU tensor raises, as on a GPU. So does everything that reads a value, because a
meta tensor has none: `.item()`, `.cpu()`, `bool(tensor)`, `nonzero`. On a GPU each of these waits for the device. A
copy to the device without `non_blocking=True` waits too; these tests forbid it. A test marked `gpu` asks torch itself.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minbert import attention
from minbert.remove_heads_and_neurons import Units
from multitask.base.device import Runtime
from multitask.base.options import RunOptions
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.objectives import OBJECTIVES, build_objective
from multitask.stages import run_stage, training_run
from multitask.stages.finetune import finetune
from multitask.stages.fuse import fuse
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import pretrain
from multitask.stages.prune import AlignUniformSource, sensitivity
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from multitask.training import contrastive_source as gradient_cache
from multitask.training.optimizer import Optimizer
from multitask.training.schedulers import SCHEDULERS
from multitask.training.schedulers.pcgrad_and_aggregators import Aggregation
from multitask.training.settings import ObjectiveConfig, OptimizerConfig
from multitask.training.source import Trainable
from tests.conftest import slow_after
from tests.multitask.training.schedulers.toy import tasks_of

META = torch.device("meta")
STEPS = 2
AGGREGATIONS = {name for name, kind in SCHEDULERS.items() if issubclass(kind, Aggregation)}
WAITS = AGGREGATIONS - {"graddrop"} | {"famo", "geometric_mean"}
"""Schedulers that wait in each step: torchjd reads products of gradients or losses, or sets the generators."""
OTHERS: list[dict[str, Any]] = [
    {},
    {"sources": ("nli",)},
    {"sources": ("quora",), "negative_pairs": "bounded"},
    {"sources": ("quora",), "negative_pairs": "literal"},
    {"sources": ("quora", "nli"), "objective": ObjectiveConfig("vicreg")},
    {"chunk": 8},
    {"sources": ("unlabelled", "nli"), "momentum": 0.9},
    {"objective": ObjectiveConfig("byol"), "momentum": 0.9},
    {"mlm_weight": 0.1},
]


class NoWaitingCopies(TorchDispatchMode):
    """Raises at a copy from the processor to meta that a GPU would wait for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        options = kwargs or {}
        if function is torch.ops.aten._to_copy.default and options.get("device") == META:
            assert args[0].is_meta or options.get("non_blocking"), f"a copy of {tuple(args[0].shape)} waits"
        if function is torch.ops.aten.copy_.default and args[0].is_meta and not args[1].is_meta:
            assert args[2:] == (True,), f"a copy of {tuple(args[1].shape)} waits"
        return function(*args, **options)


class Stepped(BaseException):
    """The steps were taken; there is nothing to evaluate or keep."""


@pytest.fixture
def on_meta(monkeypatch) -> None:
    """Stages compute on meta, and instead of training take a few steps."""

    def step(trainable: Trainable, *_: Any) -> None:
        trainable.module.train()
        for update in trainable.plan(0)[:STEPS]:
            with NoWaitingCopies():
                losses = trainable.backward(update)
            gradients = [p.grad for p in trainable.module.parameters() if p.grad is not None]
            assert gradients
            found = (*losses.terms.values(), *losses.watched.values(), *gradients)
            assert {tensor.device for tensor in found} == {META}
            torch.nn.utils.clip_grad_norm_(trainable.module.parameters(), 1.0)
        raise Stepped

    monkeypatch.setattr(run_stage, "resolve_runtime", lambda *_: Runtime(META, "fp32"))
    monkeypatch.setattr(run_stage, "prepare_training", lambda *_: None)
    monkeypatch.setattr(training_run, "train", step)
    # The meta device has neither autocast nor random generators.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(gradient_cache, "generator_states", lambda _: {})


@pytest.fixture
def run(on_meta, one_layer, data, tmp_path) -> Callable[..., None]:
    def call(stage: Callable[..., object], config: object) -> None:
        with pytest.raises(Stepped):
            stage(str(one_layer), data, config, RunOptions(runs=tmp_path))

    return call


@pytest.mark.parametrize("scheduler", slow_after(3, sorted(SCHEDULERS.keys() - WAITS)))
def test_fine_tuning(run, scheduler):
    run(finetune, FinetuneConfig(tasks_of(scheduler), scheduler=scheduler, batch_size=4))


@pytest.mark.parametrize("scheduler", slow_after(3, sorted(WAITS)))
def test_some_schedulers_wait_for_torchjd_only(run, scheduler):
    with pytest.raises((RuntimeError, NotImplementedError), match="meta") as raised:
        run(finetune, FinetuneConfig(MAIN_TASKS, scheduler=scheduler, batch_size=4))
    assert {"_aggregate", "backward"} & {entry.name for entry in raised.traceback if "schedulers" in str(entry.path)}


def test_fine_tuning_with_flash_attention(run, monkeypatch):
    monkeypatch.setattr(attention, "flash_computes", lambda *_: True)
    run(finetune, FinetuneConfig(MAIN_TASKS))


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives(on_meta, name):
    objective = build_objective(name)
    anchors, positives = (torch.ones(6, 5, device=META, requires_grad=True) for _ in range(2))
    labels = None if objective.takes_labels == "none" else torch.ones(6, dtype=torch.int64, device=META)
    false = torch.ones(6, 6, dtype=torch.bool, device=META)
    with NoWaitingCopies():
        objective(anchors, positives, labels=labels, false_negatives=false).backward()
        objective.gate_rate(anchors, positives, None, false)
        if objective.takes_hard_negatives:
            objective(anchors, positives, positives, None, false, false).backward()
            objective.gate_rate(anchors, positives, positives, false, false)


@pytest.mark.parametrize(
    ("stage", "config"),
    slow_after(
        4,
        [
            *((fuse, FuseConfig(steps=steps)) for steps in ("two", "one")),
            (mlm, MlmConfig()),
            *((pretrain, PretrainConfig(select="last", **config)) for config in OTHERS),
            (finetune, FinetuneConfig(MAIN_TASKS, heads=HeadsConfig(pairs="joint"))),
        ],
    ),
)
def test_other_trainings(run, stage, config):
    run(stage, config)


def test_pruning_waits_only_for_the_scores(on_meta, tiny_encoder, sample_data, monkeypatch):
    encoder = SentenceEncoder.read(tiny_encoder, "mean").on(Runtime(META, "fp32"))
    examples = load_rows(task_named(sample_data, "similarity"), "dev")
    source = AlignUniformSource(encoder.tokenised(examples), examples.gold >= 4, 0.5)
    read = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: read.append(tensor) or tensor)
    batches, factors = [np.arange(8), np.arange(8, 16)], Units.full(encoder.model.config, 1.0)
    with NoWaitingCopies():
        scores = sensitivity(encoder, source, batches, factors, True)
    assert {tensor.device for tensor in scores.tensors} == {META}
    assert len(read) == len(scores.tensors), "each score is read once, after all batches"


@pytest.mark.parametrize("copy", [lambda t: t.to(META), lambda t: torch.ones(3, device=META).copy_(t)])
def test_a_copy_that_waits_would_be_found(copy):
    with NoWaitingCopies(), pytest.raises(AssertionError, match="waits"):
        copy(torch.ones(3))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("stage", "config"),
    [
        (finetune, FinetuneConfig(MAIN_TASKS)),
        (pretrain, PretrainConfig(select="last")),
        (pretrain, PretrainConfig(select="last", chunk=8)),
        (mlm, MlmConfig()),
        (fuse, FuseConfig()),
    ],
    ids=["finetune", "pretrain", "pretrain in chunks", "mlm", "fuse"],
)
def test_steps_on_cuda_never_wait_for_it(stage, config, tiny_encoder, sample_data, tmp_path, monkeypatch):
    def step(trainable: Trainable, *_: Any) -> None:
        optimizer = Optimizer(trainable.module.train(), OptimizerConfig(), 0)
        for number, update in enumerate(trainable.plan(0)[:3]):
            torch.cuda.set_sync_debug_mode("error" if number else "default")  # libraries start in the first step
            try:
                trainable.backward(update)
                optimizer.clip()
                optimizer.step(number)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        raise Stepped

    monkeypatch.setattr(training_run, "train", step)
    with pytest.raises(Stepped):
        stage(str(tiny_encoder), sample_data, config, RunOptions("cuda", "bf16", tmp_path))

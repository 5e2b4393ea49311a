"""Schedulers within whole runs: cut and resumed, watched, in bf16, and with gradients of batches in parts."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from multitask.base.device import PROCESSOR
from multitask.base.options import RunOptions
from multitask.base.runs import Run, Weights
from multitask.models.settings import HeadsConfig
from multitask.stages.finetune import Finetuning, finetune
from multitask.stages.settings import FinetuneConfig
from multitask.stages.training_run import StartModel
from multitask.tasks import MAIN_TASKS
from multitask.training.schedulers import SCHEDULERS, build_scheduler
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Batch, Update
from tests.conftest import slow_after
from tests.multitask.stages.conftest import cut_before_step, history, weights

from .toy import UPDATE, Toy, needs, tasks_of

CONFIG = FinetuneConfig(
    MAIN_TASKS, epochs=2, batch_size=6, epoch_size=18, optimizer=OptimizerConfig(learning_rate=1e-3)
)
WATCHED = ("cosine", "norm")


def config_of(name: str, **changes) -> FinetuneConfig:
    needs(name)
    tasks = ("similarity",) if name == "single" else CONFIG.tasks
    return replace(CONFIG, scheduler=name, tasks=tasks, **changes)


@pytest.fixture
def run(one_layer, small_data, tmp_path):
    """Fine-tune the tiny encoder on the small data."""

    def call(config: FinetuneConfig, runs: str = "runs", **changes) -> Run:
        options = RunOptions(**{"device": "cpu", "precision": "fp32", "runs": tmp_path / runs, **changes})
        return finetune(str(one_layer), small_data, config, options)

    return call


@pytest.fixture
def problem(one_layer, small_data):
    """The first state of such a run, without dropout."""

    def build(config: FinetuneConfig) -> Finetuning:
        config = replace(config, encoder_dropout=0.0, heads=HeadsConfig(dropout=0.0))
        begin = StartModel.load(Weights(str(one_layer)), config, PROCESSOR)
        return Finetuning.load(begin, small_data, config)

    return build


def lines(artefact: Run, watched: bool = True) -> list[dict]:
    """metrics.jsonl without times; with `watched=False` also without watched values."""
    found = history(artefact)
    if not watched:
        for line in found:
            line["training"] = {n: v for n, v in line["training"].items() if n.split()[0] not in WATCHED}
    return found


@pytest.mark.parametrize(
    "name", slow_after(5, ["uncertainty", "famo", "dwa", "gradvac", "nash_mtl", "graddrop", "annealed"])
)
def test_a_run_that_was_cut_ends_as_if_it_had_not_been(run, name):
    changes = {"annealed": {"conflicts_every": 2}, "gradvac": {"batch_size": 2, "accumulate": 3}}
    config = config_of(name, **changes.get(name, {}))
    whole = run(config, "whole")
    with cut_before_step(4):
        run(config, save_every=0.0)
    torch.manual_seed(99)  # the generator comes from the saved state
    resumed = run(config)
    assert weights(resumed) == weights(whole)
    np.testing.assert_equal(lines(resumed), lines(whole))


@pytest.mark.parametrize("name", slow_after(1, ["pcgrad", "gradvac", "batch_round_robin", "single"]))
def test_watching_conflicts_changes_nothing(run, name):
    plain, watching = run(config_of(name)), run(config_of(name, conflicts_every=2))
    assert weights(watching) == weights(plain)
    np.testing.assert_equal(lines(watching, watched=False), lines(plain))
    seen = [{n for n in line["training"] if n.split()[0] in WATCHED} for line in lines(watching)]
    pairs = {"cosine sentiment/paraphrase", "cosine sentiment/similarity", "cosine paraphrase/similarity"}
    alone = name == "single"
    expected = {"norm similarity"} if alone else pairs | {f"norm {task}" for task in CONFIG.tasks}
    assert seen == [expected, expected]


def test_what_is_watched_of_an_aggregator_are_the_gradients_of_its_step(problem, monkeypatch):
    training = problem(config_of("pcgrad", conflicts_every=1))
    update = training.plan(0)[0]
    training.backward(update)
    monkeypatch.setattr(training, "losses", None)  # nothing is computed again
    assert training.watch(update, 0) == training.scheduler.gradients.conflicts()


def test_a_training_says_that_weights_cancel(problem, caplog):
    for weights_given, warned in (((2.0, 2.0, 2.0), 0), ((1.0, 1.0, 20.0), 1)):
        caplog.clear()
        problem(config_of("geometric_mean", task_weights=weights_given))
        assert sum("does not depend on the tasks' weights" in message for message in caplog.messages) == warned


def test_a_step_on_one_task_is_watched_on_others_rows(problem, monkeypatch):
    training = problem(config_of("batch_round_robin", conflicts_every=1))
    looked = []
    original = type(training.scheduler).conflicts
    monkeypatch.setattr(
        type(training.scheduler), "conflicts", lambda self, *given: looked.append(given[1]) or original(self, *given)
    )
    update = training.plan(0)[0]
    first, again, later = (training.watch(update, step) for step in (3, 3, 4))
    assert first == again
    assert first != later
    for found in looked:
        assert [batch.source for batch in found] == list(CONFIG.tasks)
        assert all(len({*batch.rows.tolist()}) == CONFIG.batch_size for batch in found)
        assert all(batch.rows.min() >= 0 and batch.rows.max() < 64 for batch in found)


@pytest.mark.parametrize("name", slow_after(2, ["average", "famo", "graddrop", "imtl_g", "nash_mtl"]))
def test_schedulers_train_in_bf16(run, name):
    artefact = run(config_of(name, epochs=1, epoch_size=16, conflicts_every=1), precision="bf16")
    (line,) = artefact.history()
    assert all(np.isfinite(value) for value in line["training"].values())


def test_what_a_scheduler_learns_is_trained_but_not_kept(run, problem):
    names = {name for name, _ in problem(config_of("uncertainty")).module.named_parameters() if "scheduler" in name}
    assert names == {"scheduler.scalarizer.log_var"}
    learned, plain = run(config_of("uncertainty", epochs=1)), run(config_of("average", epochs=1))
    last = learned.history()[-1]["training"]
    assert all(last[f"weight {task}"] != 0.5 for task in CONFIG.tasks)
    files = [
        {path.name: path.stat().st_size for path in artefact.model_folder().glob("*.safetensors")}
        for artefact in (learned, plain)
    ]
    assert files[0] == files[1]


# Gradient accumulation: batches in parts have the gradient of the whole batch.


EPS = torch.finfo(torch.float32).eps
LONGEST_SUM = 2**12  # numbers that are added up from a batch's tokens to an entry of a gradient
WHOLE: Update = (Batch("sentiment", np.arange(7)), *UPDATE[1:])


class InParts(Toy):
    """Batches come in parts of at most three rows: of seven rows three parts, of four two."""

    def parts(self, update: Update) -> list[Update]:
        pieces = {b.source: np.split(b.rows, range(3, len(b.rows), 3)) for b in update}
        rows = {b.source: len(b.rows) for b in update}
        return [
            tuple(Batch(name, p[k], len(p[k]) / rows[name]) for name, p in pieces.items() if k < len(p))
            for k in range(max(map(len, pieces.values())))
        ]


@pytest.mark.parametrize("name", sorted(name for name, kind in SCHEDULERS.items() if kind.accumulates))
def test_parts_have_the_gradient_of_the_whole(name):
    needs(name)
    found = []
    for toy in (Toy(), InParts()):
        tasks = tasks_of(name)
        weights = (0.5, 2.0, 3.0)[: len(tasks)]
        torch.manual_seed(0)
        update = WHOLE[: len(tasks)]
        config = FinetuneConfig(tasks, scheduler=name, task_weights=weights)
        terms = build_scheduler(config, torch.device("cpu")).backward(toy, update).terms
        found.append((terms, {key: g for key, g in toy.gradients().items() if g is not None}))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)


def gradients_of(training: Finetuning, update: Update) -> list[torch.Tensor]:
    training.module.zero_grad()
    torch.manual_seed(0)
    training.backward(update)
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in training.module.parameters()]


@pytest.mark.parametrize("name", ["average", "proportional"])
def test_a_training_has_the_updates_and_gradients_of_the_large_batch(name, problem):
    """A parameter's gradients differ by rounding: EPS * LONGEST_SUM times the sum of the rows' absolute gradients."""
    large, parts, rows = (
        problem(config_of(name, batch_size=size, accumulate=24 // size, epoch_size=43)) for size in (24, 8, 1)
    )
    for training in (large, parts, rows):
        weighted = replace(training.model.tasks["sentiment"], class_weights=(0.5, 3.0, 1.0, 0.1, 2.0))
        training.model.tasks["sentiment"] = weighted
    updates = large.plan(0)
    sizes = {24, 19} if name == "average" else {24}
    assert {len(batch.rows) for update in updates for batch in update} == sizes
    for update in updates:
        alone = [gradients_of(rows, row) for row in rows.parts(update)]
        bounds = [EPS * LONGEST_SUM * sum(map(torch.abs, of)).max() for of in zip(*alone, strict=True)]
        whole, added = gradients_of(large, update), gradients_of(parts, update)
        for one, other, bound in zip(whole, added, bounds, strict=True):
            assert ((one - other).abs() <= bound).all()
        assert {len(batch.rows) for part in parts.parts(update) for batch in part} <= {8, 3}
    np.testing.assert_equal([as_lists(parts.plan(e)) for e in range(2)], [as_lists(large.plan(e)) for e in range(2)])


def as_lists(updates: Sequence[Update]) -> list[list[tuple[str, list[int]]]]:
    return [[(batch.source, batch.rows.tolist()) for batch in update] for update in updates]

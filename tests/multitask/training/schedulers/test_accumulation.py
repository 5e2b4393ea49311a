"""Gradient accumulation: batches in parts have the gradient of the whole batch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from multitask.stages.finetune import Finetuning
from multitask.stages.settings import FinetuneConfig
from multitask.training.schedulers import SCHEDULERS, build_scheduler
from multitask.training.source import Batch, Update

from .test_runs import config_of, problem  # noqa: F401  # a fixture
from .toy import UPDATE, Toy, needs, tasks_of

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


def gradients(training: Finetuning, update: Update) -> list[torch.Tensor]:
    training.module.zero_grad()
    torch.manual_seed(0)
    training.backward(update)
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in training.module.parameters()]


@pytest.mark.parametrize("name", ["average", "proportional"])
def test_a_training_has_the_updates_and_gradients_of_the_large_batch(name, problem):  # noqa: F811
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
        alone = [gradients(rows, row) for row in rows.parts(update)]
        bounds = [EPS * LONGEST_SUM * sum(map(torch.abs, of)).max() for of in zip(*alone, strict=True)]
        whole, added = gradients(large, update), gradients(parts, update)
        for one, other, bound in zip(whole, added, bounds, strict=True):
            assert ((one - other).abs() <= bound).all()
        assert {len(batch.rows) for part in parts.parts(update) for batch in part} <= {8, 3}
    np.testing.assert_equal([as_lists(parts.plan(e)) for e in range(2)], [as_lists(large.plan(e)) for e in range(2)])


def as_lists(updates: Sequence[Update]) -> list[list[tuple[str, list[int]]]]:
    return [[(batch.source, batch.rows.tolist()) for batch in update] for update in updates]

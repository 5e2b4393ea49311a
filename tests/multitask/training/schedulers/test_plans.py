"""Which batches make a step and an epoch."""

import shutil
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import islice
from typing import Annotated, ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field
from scipy.stats import chisquare

from minbert.errors import InputError
from multitask.base.device import PROCESSOR
from multitask.base.runs import Weights
from multitask.stages.finetune import Finetuning
from multitask.stages.settings import FinetuneConfig
from multitask.stages.training_run import StartModel
from multitask.training.schedulers import SCHEDULERS, Scheduler, build_scheduler
from multitask.training.schedulers.base import register
from multitask.training.settings import SchedulerConfig

from .toy import TASKS, UPDATE, Toy, needs

CPU = torch.device("cpu")
ROWS = [np.array([0, 1]), np.array([2, 3]), np.array([4])]
SIZES = {"sentiment": 10, "paraphrase": 64, "similarity": 27}
SIZE = 8


@pytest.fixture(scope="module")
def problem(tiny_encoder, small_data, tmp_path_factory):
    """Finetuning of a configuration on sets of different sizes."""
    data = shutil.copytree(small_data, tmp_path_factory.mktemp("sizes") / "data")
    for stem, rows in zip(("ids-sst", "quora", "sts"), SIZES.values(), strict=True):
        path = data / f"{stem}-train.csv"
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(islice(file, rows + 1))
        path.write_text("".join(lines), newline="")

    def build(scheduler: str, **changes) -> Finetuning:
        config = replace(FinetuneConfig(scheduler=scheduler, batch_size=SIZE), **changes)
        begin = StartModel.load(Weights(str(tiny_encoder)), config, PROCESSOR)
        return Finetuning.load(begin, data, config)

    return build


def rows_of(updates, name: str) -> list[int]:
    return [int(row) for update in updates for batch in update if batch.source == name for row in batch.rows]


def content(updates) -> list[tuple[tuple[str, tuple[int, ...]], ...]]:
    return [tuple((batch.source, tuple(batch.rows.tolist())) for batch in update) for update in updates]


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 2.0, 1.0)], ids=str)
def test_average_takes_the_gradient_of_the_weighted_mean(weights):
    toy = Toy()
    losses = Scheduler(FinetuneConfig(TASKS, task_weights=weights)).backward(toy, UPDATE)
    np.testing.assert_allclose(toy.shared(), np.array(weights) @ toy.matrix() / 3)
    assert list(losses.terms) == list(TASKS)
    assert not any(term.requires_grad for term in losses.terms.values())


@pytest.mark.parametrize("name", [*sorted(SCHEDULERS), "fairgrad:alpha=2"])
def test_which_schedulers_ignore_the_tasks_weights(name):
    needs(name.partition(":")[0])
    updates = []
    for weights in ((1.0, 1.0, 1.0), (1.0, 1.0, 20.0)):
        toy = Toy()
        with suppress(InputError) if name == "single" else nullcontext():
            scheduler = build_scheduler(FinetuneConfig(TASKS, scheduler=name, task_weights=weights), CPU)
            torch.manual_seed(0)
            for _ in range(2):
                scheduler.backward(toy, UPDATE)
            updates.append(toy.shared() / np.linalg.norm(toy.shared()))
    if updates:
        assert np.allclose(*updates, atol=1e-5) == scheduler.ignores_weights


def test_average_has_a_batch_of_every_task_in_each_step_and_ends_with_the_smallest_task():
    scheduler = Scheduler(FinetuneConfig(("a", "b")))
    updates = scheduler.arrange({"a": ROWS, "b": ROWS[::-1]}, np.random.default_rng(0))
    assert content(updates) == [
        (("a", (0, 1)), ("b", (4,))),
        (("a", (2, 3)), ("b", (2, 3))),
        (("a", (4,)), ("b", (0, 1))),
    ]
    assert scheduler.epoch_sizes({"a": 100, "b": 30}, 0) == {"a": 30, "b": 30}
    assert Scheduler(FinetuneConfig(epoch_size=50)).epoch_sizes({"a": 100, "b": 30}, 3) == {"a": 50, "b": 50}


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0, 1.0), (1.0, float("nan"), 1.0)], ids=str)
def test_weights_must_be_positive_and_one_for_each_task(weights):
    with pytest.raises(InputError):
        FinetuneConfig(tasks=tuple(SIZES), task_weights=weights)


def test_round_robins_train_on_one_task_in_each_step(problem):
    together, alone = problem("average").plan(1), problem("batch_round_robin").plan(1)
    assert content(alone) == [(batch,) for update in content(together) for batch in update]
    assert [update[0].source for update in alone] == list(SIZES) * 2
    updates = problem("epoch_round_robin").plan(1)
    assert [len(update) for update in updates] == [1] * len(updates)
    order = [name for name, size in SIZES.items() for _ in range(-(-size // SIZE))]
    assert [update[0].source for update in updates] == order
    assert all(sorted(rows_of(updates, name)) == list(range(size)) for name, size in SIZES.items())
    short = problem("epoch_round_robin", epoch_size=16).plan(0)
    assert [update[0].source for update in short] == [name for name in SIZES for _ in range(2)]


def test_single_is_one_whole_set(problem):
    updates = problem("single", tasks=("paraphrase",)).plan(2)
    assert sorted(rows_of(updates, "paraphrase")) == list(range(SIZES["paraphrase"]))
    assert content(updates) == content(problem("average", tasks=("paraphrase",)).plan(2))
    with pytest.raises(InputError):
        problem("single")


# Sampling.


def counts(name: str, epoch: int | None = None, epochs: int = 60, **parameters) -> tuple[np.ndarray, np.ndarray]:
    """How often each task is drawn, over many epochs or many seeds of one epoch, and its size."""
    sizes = {"sentiment": 100, "paraphrase": 900, "similarity": 400}
    scheduler = SchedulerConfig.of(name, **parameters)
    config = FinetuneConfig(tuple(SIZES), scheduler=scheduler, epochs=epochs, batch_size=10)
    draws = [(e, 0) for e in range(epochs)] if epoch is None else [(epoch, seed) for seed in range(60)]
    taken = [build_scheduler(replace(config, seed=seed), CPU).epoch_sizes(sizes, e) for e, seed in draws]
    assert all(sum(each.values()) == 300 for each in taken)  # three times the smallest set
    return np.array([[each[name] // 10 for name in sizes] for each in taken]).sum(0), np.array(list(sizes.values()))


@pytest.mark.parametrize(
    ("alpha", "arguments"),
    [
        (1.0, {"name": "proportional", "alpha": 1.0}),
        (0.5, {"name": "proportional", "alpha": 0.5}),
        (0.0, {"name": "proportional", "alpha": 0.0}),
        (1.0, {"name": "annealed", "epoch": 0, "epochs": 9}),
        (1 - 0.8 * 3 / 8, {"name": "annealed", "epoch": 3, "epochs": 9}),
        (0.2, {"name": "annealed", "epoch": 8, "epochs": 9}),
    ],
    ids=str,
)
def test_tasks_are_drawn_by_size_to_the_power(alpha, arguments):
    seen, sizes = counts(**arguments)
    assert chisquare(seen, seen.sum() * sizes**alpha / (sizes**alpha).sum()).pvalue > 0.01
    other = sizes ** (alpha + 0.3)
    assert chisquare(seen, seen.sum() * other / other.sum()).pvalue < 1e-4  # the draws suffice to tell them apart


def test_sampled_tasks_come_in_random_order():
    scheduler = build_scheduler(FinetuneConfig(tuple(SIZES), scheduler="proportional"), CPU)
    orders = Counter()
    for seed in range(600):
        updates = scheduler.arrange({"a": ROWS[:2], "b": ROWS[:1]}, np.random.default_rng(seed))
        assert sorted(content(updates)) == [(("a", (0, 1)),), (("a", (2, 3)),), (("b", (0, 1)),)]
        orders["".join(update[0].source for update in updates)] += 1
    assert set(orders) == {"aab", "aba", "baa"}
    assert chisquare(list(orders.values())).pvalue > 0.01


# The registry.


@pytest.mark.parametrize("name", ["average", "batch_round_robin", "epoch_round_robin", "proportional"])
def test_plans_are_functions_of_configuration_and_epoch(problem, name):
    first, second = problem(name), problem(name)
    second.plan(7)
    assert content(first.plan(3)) == content(second.plan(3))
    assert content(first.plan(3)) != content(first.plan(4))
    assert content(first.plan(3)) != content(problem(name, seed=1).plan(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pcgard", f"expected one of: {', '.join(sorted(SCHEDULERS))}; did you mean pcgrad?"),
        ("fusion", "run `multitask fuse`"),
        ("cagrad:d=1", 'cagrad has no parameter "d"; it takes c: a number at least 0'),
        ("proportional:alhpa=1", "it takes alpha: a number at least 0 and at most 10; did you mean alpha?"),
        ("annealed:alpha=1", 'annealed has no parameter "alpha"; it takes none'),
        ("stch:mu=0", "stch: mu is 0; expected a number at least 0.01"),
        ("pcgrad:reduction=max", 'pcgrad: reduction is "max"; expected "sum" or "mean"'),
    ],
)
def test_what_no_scheduler_has_is_refused_in_one_line(text, message):
    with pytest.raises(InputError) as caught:
        FinetuneConfig(tuple(SIZES), scheduler=text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheduler", ["average", "proportional", "batch_round_robin"])
def test_only_rows_that_are_trained_are_tokenised(problem, scheduler):
    """Fewer rows than there are, and each that a plan has, with the tokens that it has among all rows."""
    few = problem(scheduler, epochs=2, epoch_size=6)
    every = problem(scheduler, epochs=2, epoch_size=6, conflicts_every=1)  # reads any of the rows
    planned = {name: {*rows_of([*few.plan(0), *few.plan(1)], name)} for name in SIZES}
    assert content(few.plan(1)) == content(every.plan(1))
    for name, rows in planned.items():
        tokenised = few.training[name].lengths > 0
        assert set(np.flatnonzero(tokenised)) == rows
        assert (every.training[name].lengths > 0).all()
        for ours, all_of_them in zip(
            few.training[name].sequences([*rows]), every.training[name].sequences([*rows]), strict=True
        ):
            for one, other in zip(ours, all_of_them, strict=True):
                np.testing.assert_array_equal(one, other)
    assert sum(map(len, planned.values())) < sum(SIZES.values())


@pytest.mark.parametrize("conflicts_every", [None, 1])
def test_a_task_that_is_never_drawn_is_named_and_has_no_embeddings_to_keep(conflicts_every, problem, caplog):
    few = problem("proportional:alpha=10", freeze="encoder", epochs=2, conflicts_every=conflicts_every)
    assert not rows_of([*few.plan(0), *few.plan(1)], "sentiment")
    [line] = [message for message in caplog.messages if message.startswith("no step")]
    assert line.startswith("no step trains sentiment, similarity, as proportional:alpha=10 draws none of its rows")
    few.keep_embeddings()
    assert few.training["paraphrase"].embeddings is not None


def test_the_annotated_fields_of_a_scheduler_are_its_parameters():
    @register("front")
    class Front(Scheduler):
        share: Annotated[float, Field(gt=0, le=1)] = 1.0
        kept: ClassVar[int] = 3

        def arrange(self, batches, order):
            updates = super().arrange(batches, order)
            return updates[: int(self.share * len(updates))]

    try:
        scheduler = build_scheduler(FinetuneConfig(("a", "b"), scheduler="front:share=0.5"), CPU)
        assert len(scheduler.arrange({"a": ROWS, "b": ROWS}, np.random.default_rng(0))) == 1  # of 3 steps
        with pytest.raises(InputError, match="share is 2; expected a number above 0 and at most 1"):
            FinetuneConfig(scheduler="front:share=2")
        assert build_scheduler(FinetuneConfig(("a", "b"), scheduler="front"), CPU).share == 1
    finally:
        del SCHEDULERS["front"]

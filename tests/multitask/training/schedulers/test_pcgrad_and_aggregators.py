"""Aggregated gradients equal the papers' algorithms, and each parameter gets the right gradient."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torchjd import aggregation

from minbert.errors import InputError
from multitask.stages.settings import FinetuneConfig
from multitask.training.schedulers import SCHEDULERS, build_scheduler
from multitask.training.schedulers.pcgrad_and_aggregators import Aggregation
from multitask.training.schedulers.task_gradients import gramian_of
from multitask.training.settings import SchedulerConfig

from .toy import OWN, SHARED, TASKS, UPDATE, Toy, cosines, needs

CPU = torch.device("cpu")
SUMS = {"pcgrad", "gradvac", "graddrop", "config", "nash_mtl", "fairgrad"}
WEIGHTS = (1.0, 3.0, 0.5)


@pytest.fixture(params=[name for name, kind in SCHEDULERS.items() if issubclass(kind, Aggregation)])
def name(request) -> str:
    needs(request.param)
    return request.param


def build(name: str, weights: tuple[float, ...] | None = None, **parameters):
    scheduler = SchedulerConfig.of(name, **parameters)
    return build_scheduler(FinetuneConfig(TASKS, scheduler=scheduler, task_weights=weights), CPU)


def conflicting() -> Toy:
    """All three pairs of tasks conflict: each gradient is projected twice, so that the order matters."""
    return next(toy for toy in map(Toy, range(1000)) if cosines(toy.matrix()).min(axis=0).max() < -0.05)


def surgery(gradients: np.ndarray, orders: list[list[int]]) -> np.ndarray:
    """Algorithm 1 of arXiv 2001.06782, with the orders in which each task meets the others."""
    changed = gradients.copy()
    for i, order in enumerate(orders):
        for j in order:
            if i != j and (dot := changed[i] @ gradients[j]) < 0:
                changed[i] -= dot / (gradients[j] @ gradients[j]) * gradients[j]
    return changed.sum(axis=0)


@pytest.mark.parametrize("reduction, share", [("sum", 1), ("mean", 1 / 3)])
def test_pcgrad_is_algorithm_1(reduction, share):
    toy = conflicting()
    seen = []
    for seed in range(8):
        torch.manual_seed(seed)
        build("pcgrad", reduction=reduction).backward(toy, UPDATE)
        torch.manual_seed(seed)
        orders = [torch.randperm(3).tolist() for _ in TASKS]
        np.testing.assert_allclose(toy.shared(), share * surgery(toy.matrix(), orders), rtol=1e-9)
        seen.append(tuple(toy.shared()))
    assert len(set(seen)) > 1  # otherwise the order would not matter


EXPECTED = {
    "pcgrad": aggregation.PCGrad,
    "gradvac": partial(aggregation.GradVac, beta=0.01, eps=1e-30),  # 0: division by a cancelled gradient
    "graddrop": aggregation.GradDrop,
    "config": aggregation.ConFIG,
    "mgda": aggregation.MGDA,
    "imtl_g": aggregation.IMTLG,
    "aligned_mtl": aggregation.AlignedMTL,
    "random": aggregation.Random,
    "upgrad": aggregation.UPGrad,
    "dualproj": aggregation.DualProj,
    "cagrad": partial(aggregation.CAGrad, c=0.5),
    "nash_mtl": partial(aggregation.NashMTL, n_tasks=3),
    "fairgrad": partial(aggregation.FairGrad, alpha=1.0),
}


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_what_reaches_which_parameter(name, reduction):
    toy, scheduler = conflicting(), build(name, WEIGHTS, **({"reduction": reduction} if name in SUMS else {}))
    torch.manual_seed(1)
    losses = scheduler.backward(toy, UPDATE)
    share = 1.0 if name in SUMS and reduction == "sum" else 1 / 3
    torch.manual_seed(1)
    weighted = torch.from_numpy(np.array(WEIGHTS)[:, None] * toy.matrix())
    aggregate = EXPECTED[name]()(weighted).numpy() * (share if name in SUMS else 1)
    np.testing.assert_allclose(toy.shared(), aggregate, rtol=1e-5, atol=1e-9)
    reference = toy.reference()
    for task, weight in zip(TASKS, WEIGHTS, strict=True):
        for parameter in OWN[task]:
            own = share * weight * reference[task][parameter]
            torch.testing.assert_close(toy.named()[parameter].grad, own)
    idle = set(toy.named()) - {*SHARED, *(parameter for own in OWN.values() for parameter in own)}
    assert any(parameter.startswith("encoder.pooler") for parameter in idle)
    assert all(toy.named()[parameter].grad is None for parameter in idle)  # so they have no weight decay either
    expected = toy.losses(UPDATE)
    assert {task: term.item() for task, term in losses.terms.items()} == pytest.approx(
        {task: term.item() for task, term in expected.terms.items()}
    )
    assert not any(term.requires_grad for term in losses.terms.values())
    assert losses.tokens == expected.tokens
    assert losses.watched.keys() == expected.watched.keys()


def test_one_graph_is_alive_at_a_time_and_the_matrix_is_made_once():
    toy, scheduler = Toy(), build("pcgrad")
    scheduler.backward(toy, UPDATE)
    matrix = scheduler.gradients.matrix
    scheduler.backward(toy, UPDATE)
    assert scheduler.gradients.matrix is matrix
    assert toy.most_alive == 1


GRADIENTS = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))  # [tasks, parameters]
DEPENDENT = {
    "a task without a gradient": GRADIENTS * torch.tensor([1.0, 0, 1, 1])[:, None],
    "opposite tasks": torch.cat([GRADIENTS, -2 * GRADIENTS[:1]]),
    "equal tasks": torch.cat([GRADIENTS, GRADIENTS[:1]]),
    "nearly equal tasks": torch.cat([GRADIENTS, GRADIENTS[:1] + 3e-3 * torch.randn(50, generator=torch.Generator())]),
    "a small gradient": GRADIENTS * torch.tensor([1, 1e-8, 1, 1])[:, None],
    "fewer parameters than tasks": GRADIENTS[:, :3],
    "no gradients": torch.zeros(4, 50),
}


# They stop when a step helps little, far from the solution where gradients depend on each other; some fail there.
ITERATIVE = {"cagrad", "fairgrad", "nash_mtl"}


@pytest.mark.parametrize("gradients", DEPENDENT.values(), ids=DEPENDENT)
@pytest.mark.parametrize("method", sorted(EXPECTED.keys() - {"graddrop", *ITERATIVE}))
def test_rounding_adds_no_dimension(method, gradients):
    needs(method)
    config = FinetuneConfig(tuple(map(str, range(len(gradients)))), scheduler=method)
    scheduler = build_scheduler(config, CPU)
    torch.manual_seed(1)
    found = scheduler._aggregate(gradients.clone())
    torch.manual_seed(1)
    expected = EXPECTED[method]()(gradients.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", sorted(ITERATIVE))
def test_no_gradients_give_no_update(method):
    needs(method)
    assert not build(method)._aggregate(torch.zeros(3, 50)).any()


@pytest.mark.parametrize("method", sorted(EXPECTED.keys() - {"fairgrad", "nash_mtl"}))
def test_the_update_is_as_small_as_the_gradients(method):
    needs(method)
    found = []
    for size in (1, 1e-3, 1e-6):
        scheduler = build(method)
        torch.manual_seed(1)
        found.append(scheduler._aggregate(size * GRADIENTS[:3]) / size)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gradients", DEPENDENT.values(), ids=DEPENDENT)
@pytest.mark.parametrize("c", [0.0, 0.5])
def test_cagrad_stays_near_the_average(c, gradients):
    """The constraint of arXiv 2110.14048: at most c of the average's norm away from it."""
    needs("cagrad")
    tasks = tuple(map(str, range(len(gradients))))
    config = FinetuneConfig(tasks, scheduler=SchedulerConfig.of("cagrad", c=c))
    average = gradients.mean(dim=0)
    distance = (build_scheduler(config, CPU)._aggregate(gradients.clone()) - average).norm()
    assert distance <= (c + 1e-4) * average.norm()


@pytest.mark.parametrize("spread", [0, 1])
def test_scalar_products_of_millions_are_exact(spread):
    """In float32 they were wrong by 0.2% to 6% on some processors."""
    parameters = 600_003  # no multiple of a block
    matrix = 10 + spread * torch.randn(3, parameters, generator=torch.Generator().manual_seed(0))
    exact = [[math.fsum((first.double() * second.double()).tolist()) for second in matrix] for first in matrix]
    # Sums of n numbers in float64 are wrong by at most n unit roundoffs of the sum of their sizes.
    sizes = gramian_of(matrix.abs())
    error = (gramian_of(matrix) - torch.tensor(exact, dtype=torch.float64)).abs()
    assert (error <= parameters * 2**-53 * sizes).all()


def test_a_loss_that_is_not_finite_is_left_to_the_loop(name):
    toy, scheduler = Toy(), build(name)
    toy.targets[:, 1] = torch.nan
    losses = scheduler.backward(toy, UPDATE)
    assert losses.terms["paraphrase"].isnan()
    assert not torch.stack([g.sum() for g in toy.gradients().values() if g is not None]).isfinite().all()


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("torchjd._mixins.find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"^scheduler cagrad needs further packages; install with: .*aggregation"):
        build("cagrad")


def test_one_task_has_nothing_to_aggregate():
    with pytest.raises(InputError, match="to train reviews alone, use single"):
        build_scheduler(FinetuneConfig(scheduler="pcgrad", tasks=("reviews",)), CPU)

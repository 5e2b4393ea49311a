"""What holds for every objective, above all that value and gradient follow its formula written as loops."""

import contextlib
from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from multitask.base.choices_with_parameters import bounds, choices, parameters
from multitask.objectives import OBJECTIVES, Objective, build_objective

from .batches import (
    ALL_OBJECTIVES,
    AWKWARD_BATCHES,
    EACH_OBJECTIVE,
    RANDOM_BATCHES,
    Batch,
    labels_for,
    random_batch,
    some_false_negatives,
    value_and_gradient,
)
from .loops import loop_loss

all_objectives = pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)
each_objective = pytest.mark.parametrize("objective", EACH_OBJECTIVE, ids=str)
TAKES_HARD_NEGATIVES = [objective for objective in ALL_OBJECTIVES if objective.takes_hard_negatives]


def follows(objective: Objective, batch: Batch, tolerance: float = 1e-6, **arguments: Tensor | None) -> None:
    arguments["labels"] = labels_for(objective, len(batch.anchors))
    actual = value_and_gradient(objective, batch, **arguments)
    expected = value_and_gradient(partial(loop_loss, objective), batch, **arguments)
    for a, e in list(zip(actual, expected, strict=True))[: None if batch.differentiable else 1]:
        scale = min(e.abs().max().item(), 1.0)  # gradients of huge embeddings are small
        torch.testing.assert_close(a, e, rtol=tolerance, atol=max(tolerance * scale, 1e-12))


@all_objectives
def test_value_and_gradient_follow_the_formula(objective):
    for batch in (*RANDOM_BATCHES, *(AWKWARD_BATCHES if objective in EACH_OBJECTIVE else ())):
        follows(objective, batch)
    follows(objective, random_batch(7), false_negatives=some_false_negatives(6))


@pytest.mark.parametrize("objective", TAKES_HARD_NEGATIVES, ids=str)
def test_hard_negatives_follow_the_formula(objective):
    batch, hard = random_batch(8), random_batch(9, pairs=4 if objective.name != "infonce" else 6).anchors
    false_hard = some_false_negatives(6).flip(0)[:, : len(hard)]
    for masks in ({}, {"false_negatives": some_false_negatives(6), "false_hard_negatives": false_hard}):
        follows(objective, batch, 1e-9, hard_negatives=hard, **masks)
        raw = hard.clone().requires_grad_()
        (actual,) = torch.autograd.grad(objective(batch.anchors, batch.positives, raw, **masks), raw)
        loop = loop_loss(objective, batch.anchors, batch.positives, raw, **masks)
        (expected,) = torch.autograd.grad(loop + 0 * raw.sum(), raw)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", TAKES_HARD_NEGATIVES, ids=str)
def test_hard_negatives_that_count_for_no_anchor_are_none(objective):
    batch, hard = random_batch(5), random_batch(9).anchors
    expected = value_and_gradient(objective, batch, false_negatives=some_false_negatives(6))
    masks = {"false_negatives": some_false_negatives(6), "false_hard_negatives": torch.ones(6, 6, dtype=torch.bool)}
    torch.testing.assert_close(value_and_gradient(objective, batch, hard_negatives=hard, **masks), expected)


@each_objective
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_value_and_gradient_are_finite(objective, dtype):
    for batch in AWKWARD_BATCHES:
        pairs = len(batch.anchors)
        hard = batch.positives.flip(0).to(dtype) if objective.takes_hard_negatives else None
        for mask in (None, some_false_negatives(pairs), torch.ones(pairs, pairs, dtype=torch.bool)):
            results = value_and_gradient(
                objective,
                batch,
                dtype,
                hard_negatives=hard,
                labels=labels_for(objective, pairs),
                false_negatives=mask,
                false_hard_negatives=None if hard is None else mask,
            )
            assert [result.dtype for result in results[:2]] == [torch.float32, dtype]
            assert all(result.isfinite().all() for result in results), f"{batch}, false negatives: {mask}"


def at_its_bounds(kind: type[Objective]) -> Iterator[Objective]:
    """The objective with each numeric parameter at its lowest and at its highest value, or at the ends of float64."""
    for name, field in parameters(kind).items():
        if not choices(field):
            limits = bounds(field)
            lowest = limits.get("ge", 1e-300 if "gt" in limits else -1e300)
            for value in (lowest, limits.get("le", 1e300)):
                with contextlib.suppress(ValueError):  # a parameter that this objective refuses
                    yield build_objective(kind.name, **{name: value})


@pytest.mark.parametrize("kind", OBJECTIVES.values(), ids=OBJECTIVES)
def test_the_most_extreme_parameters_leave_value_and_gradient_finite(kind):
    for objective, batch in product(at_its_bounds(kind), (*RANDOM_BATCHES, *AWKWARD_BATCHES)):
        hard = batch.positives.flip(0).float() if objective.takes_hard_negatives else None
        labels = labels_for(objective, len(batch.anchors))
        results = value_and_gradient(objective, batch, torch.float32, hard_negatives=hard, labels=labels)
        assert all(result.isfinite().all() for result in results), f"{objective}, {batch}"


@each_objective
def test_mask_without_false_negatives_changes_nothing(objective):
    batch, labels = random_batch(5), labels_for(objective, 6)
    expected = value_and_gradient(objective, batch, labels=labels)
    nothing = torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close(value_and_gradient(objective, batch, labels=labels, false_negatives=nothing), expected)


@each_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_fp32_also_under_autocast(objective, dtype):
    batch, labels = random_batch(5), labels_for(objective, 6)
    anchors, positives = batch.anchors.to(dtype), batch.positives.to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        actual = objective(anchors, positives, labels=labels)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, objective(anchors.float(), positives.float(), labels=labels))


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest result of any operation, forward or backward."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


@each_objective
def test_nothing_larger_than_a_similarity_matrix_or_the_embeddings_is_made(objective):
    with LargestTensor() as largest:
        value_and_gradient(objective, random_batch(5, pairs=8, dim=12), labels=labels_for(objective, 8))
    assert largest.numbers <= 8 * 12


GATED = {"mpt", "met", "mat", "dcl_positive"}


@all_objectives
def test_objectives_with_a_hinge_or_gate_tell_the_share_of_rows_that_pass(objective):
    apart, together = torch.eye(4), torch.ones(4, 4, requires_grad=True)
    rate = objective.gate_rate(together, together)
    assert (rate is not None) == (objective.name in GATED or getattr(objective, "dissipation", None) is not None)
    if rate is not None:
        assert rate == 1
        assert not rate.requires_grad
        assert objective.gate_rate(together, together, None, torch.ones(4, 4, dtype=torch.bool)) == 0
        if getattr(objective, "margin", 0) < 1:  # a margin as wide as the sphere is never met
            assert objective.gate_rate(apart, apart) == 0


@pytest.mark.parametrize("name", [*sorted(GATED), "gradient", "vicreg"])
def test_near_hard_negatives_open_a_hinge_or_gate(name):
    objective = build_objective("vicreg", dissipation=0.3) if name == "vicreg" else build_objective(name)
    apart, hard = torch.eye(4, 5), torch.eye(5)[[3, 3, 4]]  # two equal to the last anchor, one like none
    anchors_alone = 1 / 8 if name in ("gradient", "vicreg") else 1 / 4  # these also have a gate for each positive
    assert objective.gate_rate(apart, apart) == 0
    assert objective.gate_rate(apart, apart, hard_negatives=hard) == anchors_alone
    nobody = torch.ones(4, 3, dtype=torch.bool)
    assert objective.gate_rate(apart, apart, hard_negatives=hard, false_hard_negatives=nobody) == 0


@pytest.mark.parametrize("name", sorted(GATED))
def test_rate_of_a_hinge_is_the_share_of_anchors_with_a_loss(name):
    objective, batch = build_objective(name), random_batch(1, noise=1.5)
    alone = []
    for i in range(6):
        false = torch.ones(6, 6, dtype=torch.bool)
        false[i] = False  # only anchor i is left with negatives
        alone.append(objective(batch.anchors, batch.positives, false_negatives=false) > 0)
    assert 0 < torch.stack(alone).sum() < 6
    assert objective.gate_rate(batch.anchors, batch.positives) == torch.stack(alone).float().mean()


@pytest.mark.gpu
@all_objectives
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_cuda_equals_cpu(objective, dtype, tolerance):
    batch, hard = random_batch(5, pairs=64, dim=32), random_batch(6, pairs=64, dim=32).anchors.to(dtype)
    arguments = {
        "hard_negatives": hard if objective.takes_hard_negatives else None,
        "labels": None if objective.takes_labels == "none" else torch.arange(64) % 2,
        "false_negatives": some_false_negatives(64),
    }
    on_cuda = Batch("cuda", batch.anchors.cuda(), batch.positives.cuda())
    moved = {name: None if x is None else x.cuda() for name, x in arguments.items()}
    expected = value_and_gradient(objective, batch, dtype, **arguments)
    actual = tuple(x.cpu() for x in value_and_gradient(objective, on_cuda, dtype, **moved))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@all_objectives
def test_objectives_never_wait_for_the_device(objective):
    batch = random_batch(5)
    anchors, positives, mask = batch.anchors.cuda().requires_grad_(), batch.positives.cuda(), some_false_negatives(6)
    mask = mask.cuda()
    labels = None if objective.takes_labels == "none" else (torch.arange(6) % 2).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective(anchors, positives, labels=labels, false_negatives=mask).backward()
        objective.gate_rate(anchors, positives, None, mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")

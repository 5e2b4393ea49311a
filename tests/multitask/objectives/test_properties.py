"""Properties that hold for every objective."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from multitask.objectives import Objective, build_objective

from .batches import (
    ALL_OBJECTIVES,
    AWKWARD_BATCHES,
    Batch,
    labels_for,
    random_batch,
    some_false_negatives,
    value_and_gradient,
)

all_objectives = pytest.mark.parametrize("objective", ALL_OBJECTIVES, ids=str)


@all_objectives
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_value_and_gradient_are_finite(objective: Objective, dtype: torch.dtype) -> None:
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
            assert results[0].dtype == torch.float32
            assert results[1].dtype == dtype
            assert all(result.isfinite().all() for result in results), f"{batch}, false negatives: {mask}"


@given(
    seed=st.integers(0, 2**31),
    pairs=st.integers(1, 9),
    dim=st.integers(1, 9),
    exponent=st.floats(-6, 4),
    copies=st.integers(1, 3),
    noise=st.sampled_from([0.0, 1e-4, 1.0]),
    objective=st.sampled_from(ALL_OBJECTIVES),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_batch_gives_finite_numbers(
    seed: int, pairs: int, dim: int, exponent: float, copies: int, noise: float, objective: Objective
) -> None:
    batch = random_batch(seed, pairs, dim, noise)
    anchors, positives = ((x * 10**exponent).repeat(copies, 1)[:8] for x in (batch.anchors, batch.positives))
    labels = labels_for(objective, len(anchors))
    for result in value_and_gradient(objective, Batch("any", anchors, positives), torch.float32, labels=labels):
        assert result.isfinite().all()


@all_objectives
def test_order_of_the_pairs_does_not_matter(objective: Objective) -> None:
    batch, order, false = random_batch(5), torch.tensor([3, 0, 5, 1, 4, 2]), some_false_negatives(6)
    labels = labels_for(objective, 6)
    value, of_anchors, of_positives = value_and_gradient(objective, batch, labels=labels, false_negatives=false)
    shuffled = value_and_gradient(
        objective,
        Batch("shuffled", batch.anchors[order], batch.positives[order]),
        labels=None if labels is None else labels[order],
        false_negatives=false[order][:, order],
    )
    torch.testing.assert_close(shuffled, (value, of_anchors[order], of_positives[order]))


@all_objectives
def test_norms_of_the_embeddings_do_not_matter(objective: Objective) -> None:
    batch, labels = random_batch(5), labels_for(objective, 6)
    norms = torch.tensor([[0.01], [0.5], [1.0], [2.0], [30.0], [400.0]], dtype=torch.float64)
    value, of_anchors, of_positives = value_and_gradient(objective, batch, labels=labels)
    scaled = Batch("scaled", batch.anchors * norms, batch.positives * norms.flip(0))
    expected = (value, of_anchors / norms, of_positives / norms.flip(0))
    torch.testing.assert_close(value_and_gradient(objective, scaled, labels=labels), expected)


@all_objectives
def test_gradient_is_orthogonal_to_the_embedding(objective: Objective) -> None:
    batch = random_batch(6)
    _, of_anchors, of_positives = value_and_gradient(objective, batch, labels=labels_for(objective, 6))
    zero = torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close((of_anchors * batch.anchors).sum(-1), zero, atol=1e-9, rtol=0)
    torch.testing.assert_close((of_positives * batch.positives).sum(-1), zero, atol=1e-9, rtol=0)


@all_objectives
def test_mask_without_false_negatives_changes_nothing(objective: Objective) -> None:
    batch, labels = random_batch(5), labels_for(objective, 6)
    diagonal = torch.eye(6, dtype=torch.bool)
    expected = value_and_gradient(objective, batch, labels=labels)
    torch.testing.assert_close(value_and_gradient(objective, batch, labels=labels, false_negatives=diagonal), expected)


@all_objectives
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_fp32_also_under_autocast(objective: Objective, dtype: torch.dtype) -> None:
    batch, labels = random_batch(5), labels_for(objective, 6)
    anchors, positives = batch.anchors.to(dtype), batch.positives.to(dtype)
    expected = objective(anchors.float(), positives.float(), labels=labels)
    with torch.autocast("cpu", torch.bfloat16):
        actual = objective(anchors, positives, labels=labels)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest result of any operation, forward or backward."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


@all_objectives
def test_nothing_larger_than_a_similarity_matrix_or_the_embeddings_is_made(objective: Objective) -> None:
    batch = random_batch(5, pairs=8, dim=12)
    with LargestTensor() as largest:
        value_and_gradient(objective, batch, labels=labels_for(objective, 8))
    assert largest.numbers <= 8 * 12


@pytest.mark.parametrize(
    "name", ["infonce", "arccon", "mnrl", "mpt", "met", "mat", "dcl_positive", "gradient", "mixed"]
)
def test_one_pair_gives_zero_for_losses_that_need_a_negative(name: str) -> None:
    one = random_batch(3, pairs=1)
    for result in value_and_gradient(build_objective(name), one):
        torch.testing.assert_close(result, torch.zeros_like(result), atol=1e-12, rtol=0)


def test_one_pair_leaves_dcl_its_positive_part_and_align_uniform_its_alignment() -> None:
    one = random_batch(3, pairs=1)
    s = torch.cosine_similarity(one.anchors, one.positives)[0]
    torch.testing.assert_close(build_objective("dcl")(one.anchors, one.positives), -20 * s)
    aligned = build_objective("align_uniform")(one.anchors, one.positives)
    torch.testing.assert_close(aligned, 0.5 * (2 - 2 * s) + 0.5 * 4)


@pytest.mark.gpu
@all_objectives
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_cuda_equals_cpu(objective: Objective, dtype: torch.dtype, tolerance: float) -> None:
    batch = random_batch(5, pairs=64, dim=32)
    arguments = {
        "hard_negatives": random_batch(6, pairs=64, dim=32).anchors.to(dtype)
        if objective.takes_hard_negatives
        else None,
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
def test_objectives_never_wait_for_the_device(objective: Objective) -> None:
    batch = random_batch(5)
    anchors, positives, mask = (
        batch.anchors.cuda().requires_grad_(),
        batch.positives.cuda(),
        some_false_negatives(6).cuda(),
    )
    labels = None if objective.takes_labels == "none" else (torch.arange(6) % 2).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective(anchors, positives, labels=labels, false_negatives=mask).backward()
        objective.gate_rate(anchors, positives, mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")

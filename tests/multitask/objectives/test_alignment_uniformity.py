"""Alignment, uniformity and the helpers around the unit sphere."""

import math

import pytest
import torch

from multitask.objectives import alignment, uniformity, unit
from multitask.objectives.alignment_uniformity import arccos

from .batches import random_batch


def test_alignment_is_the_mean_power_of_the_distance() -> None:
    batch = random_batch(1)
    u, v = unit(batch.anchors), unit(batch.positives)
    torch.testing.assert_close(alignment(u, v), 2 - 2 * torch.cosine_similarity(batch.anchors, batch.positives).mean())
    torch.testing.assert_close(alignment(u, v, alpha=1), torch.nn.functional.pairwise_distance(u, v, eps=0).mean())


@pytest.mark.parametrize("t", [1.0, 2.0])
def test_uniformity_is_the_authors_one_line_with_pdist(t: float) -> None:
    u = unit(random_batch(1).anchors)
    torch.testing.assert_close(uniformity(u, t), torch.pdist(u).pow(2).mul(-t).exp().mean().log())


def test_uniformity_falls_from_coinciding_to_opposite_points() -> None:
    point = torch.tensor([[1.0, 0.0]])
    assert uniformity(point) == 0
    assert uniformity(point.repeat(3, 1)) == 0
    torch.testing.assert_close(uniformity(torch.cat([point, -point])), torch.tensor(-8.0))


def test_unit_vectors_have_norm_one_in_full_precision_and_zero_stays_zero() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    x[2] = 0
    for dtype, expected in (
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ):
        norms = unit(x.to(dtype)).norm(dim=-1)
        torch.testing.assert_close(norms, torch.tensor([1, 1, 0, 1], dtype=expected))


def test_gradient_of_a_zero_vector_is_no_larger_than_the_one_that_arrives() -> None:
    x = torch.zeros(1, 4, requires_grad=True)
    unit(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.ones(1, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_arccos_is_exact_inside_and_finite_at_the_ends(dtype: torch.dtype) -> None:
    inside = torch.linspace(-0.99, 0.99, 9, dtype=dtype)
    torch.testing.assert_close(arccos(inside), torch.acos(inside))
    ends = torch.tensor([-1.0, 1.0, 1.001], dtype=dtype, requires_grad=True)
    angles = arccos(ends)
    tolerance = 2 * math.sqrt(torch.finfo(dtype).eps)
    torch.testing.assert_close(angles, torch.tensor([math.pi, 0.0, 0.0], dtype=dtype), atol=tolerance, rtol=0)
    angles.sum().backward()
    assert ends.grad is not None
    assert ends.grad.isfinite().all()

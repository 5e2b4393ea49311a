"""The statements of docs/concepts/theory.md: both sides of each, from the objectives, for whatever hypothesis draws.

Vectors of small whole numbers are drawn, so that duplicates, antipodes and vectors in one plane are among them.
"""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from multitask.evaluation.gradient_probe import STEP, probe
from multitask.objectives import Objective, build_objective, unit

WIDTH = 3
often = settings(max_examples=60)
vectors = (
    st.lists(st.integers(-3, 3), min_size=WIDTH, max_size=WIDTH)
    .filter(any)
    .map(lambda numbers: unit(torch.tensor(numbers, dtype=torch.float64)))
)
several = st.lists(vectors, min_size=1, max_size=4).map(torch.stack)
ratios, steps = st.floats(0, 8), st.floats(0.01, 2)


def only_first(pairs: int) -> Tensor:
    """A mask of false negatives that leaves the first anchor alone with negatives."""
    mask = torch.ones(pairs, pairs, dtype=torch.bool)
    mask[0] = False
    return mask


def descent(objective: Objective, u: Tensor, v: Tensor, negatives: Tensor) -> Tensor:
    """The direction of gradient flow of one anchor, −∂(its own loss)/∂u  # [dim]."""
    anchors = torch.cat([u[None], negatives]).requires_grad_()
    positives = torch.cat([v[None], negatives])
    loss = objective(anchors, positives, false_negatives=only_first(len(anchors)))
    return -len(anchors) * torch.autograd.grad(loss, anchors)[0][0]


def paradigm(ratio: float, margin: float = 2, temperature: float = 0.2) -> Objective:
    """P(r v − x̄) as an objective; its gate is always open with the margin 2."""
    return build_objective("gradient", dissipation=margin, weight=temperature, ratio=ratio)


def moved(u: Tensor, step: Tensor) -> Tensor:
    return unit(u + step)


def path(objective: Objective, u: Tensor, v: Tensor, negatives: Tensor, size: float, count: int) -> Tensor:
    """The anchor after each of `count` renormalised steps  # [count + 1, dim]."""
    points = [u]
    for _ in range(count):
        points.append(moved(points[-1], size * descent(objective, points[-1], v, negatives)))
    return torch.stack(points)


def gap(u: Tensor, v: Tensor, negatives: Tensor) -> Tensor:
    """Cosine of the positive minus that of the hardest negative  # [...]."""
    return u @ v - (u @ negatives.T).amax(-1)


def soft_gap(u: Tensor, v: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    return u @ v - temperature * (u @ negatives.T / temperature).logsumexp(-1)


def rate(measure: Callable[[Tensor], Tensor], u: Tensor, direction: Tensor) -> Tensor:
    """Derivative of a function of the anchor along a direction."""
    u = u.clone().requires_grad_()
    return torch.autograd.grad(measure(u), u)[0] @ direction


def tangential(x: Tensor, u: Tensor) -> Tensor:
    return x - (x @ u) * u


def at(*degrees: float) -> Tensor:
    """Unit vectors of the plane at these angles  # [angles, 2]."""
    radians = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1)


# Conjecture 1: lemmas 1 to 4


@often
@given(vectors, vectors, several, st.floats(0.2, 1))
def test_dissipation_is_a_factor_on_the_undissipated_direction(u, v, negatives, temperature):
    """InfoNCE against DCL."""
    free = descent(build_objective("dcl", temperature=temperature), u, v, negatives)
    slowed = descent(build_objective("infonce", temperature=temperature), u, v, negatives)
    factor = 1 / (1 + (soft_gap(u, v, negatives, temperature) / temperature).exp())
    torch.testing.assert_close(slowed, factor * free, rtol=1e-9, atol=1e-12)
    assert 1 / (1 + math.exp(2 / temperature)) <= factor + 1e-12
    assert factor < 1


@often
@given(vectors, vectors, several, st.floats(0, 1.9))
def test_a_gate_is_a_factor_of_0_or_1(u, v, negatives, margin):
    size = gap(u, v, negatives)
    assume(abs(size - margin) > 1e-9 and size < 2 - 1e-9)
    free = descent(build_objective("mpt", margin=2), u, v, negatives)
    gated = descent(build_objective("mpt", margin=margin), u, v, negatives)
    torch.testing.assert_close(gated, free if size < margin else 0 * free)


@often
@given(vectors, vectors, several, st.floats(0.1, 1))
def test_the_soft_gap_rises_by_the_squared_length_of_the_direction(u, v, negatives, temperature):
    direction = descent(paradigm(1, temperature=temperature), u, v, negatives)
    assume(gap(u, v, negatives) < 2 - 1e-9)
    rise = rate(lambda x: soft_gap(x, v, negatives, temperature), u, direction)
    torch.testing.assert_close(rise, direction.square().sum(), rtol=1e-9, atol=1e-12)
    between = gap(u, v, negatives) - soft_gap(u, v, negatives, temperature)
    assert -1e-12 <= between <= temperature * math.log(len(negatives)) + 1e-12


@often
@given(vectors, vectors, vectors, ratios)
def test_the_angle_gap_to_one_negative_never_falls_at_any_ratio(u, v, negative, ratio):
    to_positive, to_negative = tangential(v, u), tangential(negative, u)
    assume(to_positive.norm() > 1e-6 and to_negative.norm() > 1e-6)
    direction = descent(paradigm(ratio), u, v, negative[None])
    rise = rate(lambda x: (unit(x) @ negative).acos() - (unit(x) @ v).acos(), u, direction)
    between = unit(to_positive) @ unit(to_negative)
    torch.testing.assert_close(
        rise, (to_negative.norm() + ratio * to_positive.norm()) * (1 - between), rtol=1e-7, atol=1e-9
    )
    assert rise > -1e-9


@settings(max_examples=6)
@given(vectors, vectors, several)
def test_the_gap_of_infonce_is_never_larger_than_that_of_dcl(u, v, negatives):
    paths = (path(build_objective(name, temperature=0.2), u, v, negatives, 0.002, 120) for name in ("infonce", "dcl"))
    slowed, free = (soft_gap(points, v, negatives, 0.2) for points in paths)
    assert (slowed <= free + 1e-4).all()
    assert (free.diff() > -1e-9).all()


@settings(max_examples=20)
@given(vectors, vectors, several, ratios, st.floats(0, 1), st.floats(0.01, 0.2))
def test_a_gate_bounds_the_gap_for_every_ratio_and_step(u, v, negatives, ratio, margin, size):
    gaps = gap(path(paradigm(ratio, margin), u, v, negatives, size, 20), v, negatives)
    assert gaps.max() <= max(gaps[0].item(), margin + 2 * size * (1 + ratio)) + 1e-12


@pytest.mark.parametrize(
    ("start", "ratio", "end"), [(45, 0, 1.0), (175, 10, math.sqrt(2) * math.cos(math.atan(9 / 11)))]
)
def test_at_other_ratios_dissipation_can_leave_the_larger_cosine_gap(start, ratio, end):
    (u,), (v,), negatives = at(start), at(90), at(0)
    gated, free = (
        gap(path(paradigm(ratio, margin), u, v, negatives, 0.04 / (2 + ratio), 300)[-1], v, negatives)
        for margin in (1.2, 2)
    )
    assert free == pytest.approx(end, abs=0.02)
    assert 1.2 <= gated < 1.25


def test_moving_partners_carry_a_gap_beyond_the_gate():
    embeddings = torch.stack([at(0, 200), at(0, 90)]).requires_grad_()
    gaps = [gap(embeddings[0, i], embeddings[1, i], embeddings[1, [1 - i]]).item() for i in range(2)]
    assert gaps == pytest.approx([1, 0.598], abs=1e-3)
    (gradient,) = torch.autograd.grad(build_objective("mpt", margin=0.9)(*embeddings), embeddings)
    assert gradient[0, 0].eq(0).all()  # the first anchor's gate is closed
    (u, _), (v, negative) = unit(embeddings - 0.01 * gradient)
    assert gap(u, v, negative[None]) > 1.004  # a step of this size would reach 0.94 if partners did not move


# Conjecture 3: lemmas 5 and 6


def threshold(u: Tensor, v: Tensor, average: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """r₀, p = 1 − s² and e = ‖P x̄‖² − r₀² p."""
    positive = tangential(v, u).square().sum()
    least = tangential(v, u) @ average / positive
    return least, positive, tangential(average, u).square().sum() - least**2 * positive


@often
@given(vectors, vectors, several, ratios)
def test_an_anchor_moves_to_its_positive_if_the_ratio_is_above_a_threshold(u, v, negatives, ratio):
    assume(abs(u @ v) < 1 - 1e-9 and gap(u, v, negatives) < 2 - 1e-9)
    average = (u @ negatives.T / 0.2).softmax(-1) @ negatives
    least, positive, _ = threshold(u, v, average)
    speed = rate(lambda x: unit(x) @ v, u, descent(paradigm(ratio), u, v, negatives))
    torch.testing.assert_close(speed, positive * (ratio - least), rtol=1e-9, atol=1e-9)
    bound = ((average @ average - (u @ average) ** 2).clamp_min(0) / positive).sqrt()
    assert abs(least) <= bound + 1e-7


@often
@given(vectors, vectors, several, ratios, steps)
def test_a_step_comes_closer_exactly_for_an_interval_of_ratios(u, v, negatives, ratio, size):
    assume(abs(u @ v) < 1 - 1e-9 and gap(u, v, negatives) < 2 - 1e-9)
    direction = descent(paradigm(ratio), u, v, negatives)
    least, positive, rest = threshold(u, v, (u @ negatives.T / 0.2).softmax(-1) @ negatives)
    room = 1 - size**2 * rest / positive - (size * (ratio - least) - 1) ** 2
    change = (u + size * direction - v).square().sum() - (u - v).square().sum()
    torch.testing.assert_close(change, -positive * room, rtol=1e-9, atol=1e-9)
    if change < -1e-9:  # it comes closer, and so it does on the sphere
        assert moved(u, size * direction) @ v > u @ v


@often
@given(vectors, vectors, several)
def test_the_probe_counts_the_steps_of_this_interval(u, v, negatives):
    assume(abs(u @ v) < 1 - 1e-9)
    anchors, positives = torch.cat([u[None], negatives]), torch.cat([v[None], negatives])
    objective = build_objective("infonce", temperature=0.2)
    found = probe(objective, anchors, positives, false_negatives=only_first(len(anchors)))
    least, positive, rest = threshold(u, v, (u @ negatives.T / 0.2).softmax(-1) @ negatives)
    room = 1 - STEP**2 * rest / positive - (STEP * (1 - least) - 1) ** 2
    assume(abs(room) > 1e-9)
    assert found.closer[0] == (room > 0)


@often
@given(st.sampled_from(["mat", "met"]), vectors, vectors, several)
def test_the_angular_triplet_never_leaves_its_positive_nor_the_euclidean_if_it_is_nearer(name, u, v, negatives):
    assume(name == "mat" or gap(u, v, negatives) >= 0)
    assume((u @ torch.cat([v[None], negatives]).T).abs().max() < 1 - 1e-4)  # no floor or limit under a root
    direction = descent(build_objective(name, margin=1), u, v, negatives)
    assert rate(lambda x: unit(x) @ v, u, direction) > -1e-9


@pytest.mark.parametrize("objective", [build_objective("infonce"), build_objective("mpt"), paradigm(3.6)], ids=str)
def test_anchors_leave_a_positive_before_the_negative(objective):
    (u,), (v,), negatives = at(0), at(10), at(40)
    assert moved(u, 0.001 * descent(objective, u, v, negatives)) @ v < u @ v
    assert moved(u, 0.001 * descent(paradigm(3.8), u, v, negatives)) @ v > u @ v


def test_too_large_a_step_passes_the_positive():
    (u,), (v,), negatives = at(0), at(10), at(180)
    closer = [moved(u, descent(paradigm(ratio), u, v, negatives)) @ v > u @ v for ratio in (1, 3)]
    assert closer == [True, False]


@pytest.mark.parametrize("ratio", [0.5, 1, 100])
def test_no_ratio_helps_an_anchor_at_its_positive(ratio):
    (u,), negatives = at(0), at(40)
    assert moved(u, 0.01 * descent(paradigm(ratio), u, u, negatives)) @ u < 1 - 1e-6


# SparseCSE's open question 1: lemma 7


def without(objective: Objective, rest: Tensor, adds: Tensor) -> tuple[Tensor, Tensor]:
    """A unit adds to embeddings, both [2, pairs, dim]: the change of the loss without it, the slope in its factor."""
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = objective(*(rest + factor * adds))
    return (objective(*rest) - loss).detach(), torch.autograd.grad(loss, factor)[0]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0.1, 2))
def test_removing_a_unit_changes_the_loss_by_its_score_up_to_half_the_curvature(seed, weight, size):
    generator = torch.Generator().manual_seed(seed)
    rest, adds = unit(torch.randn(2, 2, 4, WIDTH, dtype=torch.float64, generator=generator))
    rest, adds = 2 * rest, size / 2 * adds
    objective = build_objective("align_uniform", uniformity_weight=weight)
    nodes, weights = (torch.from_numpy(values) for values in leggauss(20))
    factors = ((nodes + 1) / 2).requires_grad_()
    losses = torch.stack([objective(*(rest + factor * adds)) for factor in factors])
    (slopes,) = torch.autograd.grad(losses.sum(), factors, create_graph=True)
    (curves,) = torch.autograd.grad(slopes.sum(), factors)
    change, slope = without(objective, rest, adds)
    torch.testing.assert_close(change, -slope + (weights / 2 * factors.detach() * curves).sum(), rtol=1e-6, atol=1e-6)
    bound = curves.abs().max() / 2
    assert change.abs() <= slope.abs() + bound + 1e-6


EAST, NORTH = at(0, 90)


@pytest.mark.parametrize(
    ("second", "expected_slope", "expected"),
    [
        (EAST + NORTH, 0, 2 - math.sqrt(2)),
        (-EAST - NORTH, 0, math.sqrt(2) - 2),
        (EAST, 1 / math.sqrt(2), math.sqrt(2) - 2),
        (EAST + 0.9 * NORTH, 0.05255883, 0.51064737),
    ],
    ids=["lowest score, useful", "lowest score, harmful", "highest score, harmful", "slope of a harmful unit, useful"],
)
def test_a_score_does_not_tell_harmful_units_from_useful_ones(second, expected_slope, expected):
    """The first sentence is EAST and the unit adds NORTH; the second has no such unit."""
    adds = torch.stack([NORTH, 0 * NORTH])[:, None]
    objective = build_objective("align_uniform", uniformity_weight=0)
    change, slope = without(objective, torch.stack([EAST, second])[:, None], adds)
    assert change.item() == pytest.approx(expected)
    assert slope.item() == pytest.approx(expected_slope, abs=1e-8)

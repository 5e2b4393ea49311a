"""Losses that equal one another or their originals, and components as functions of angles, with their mixtures."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from multitask.evaluation.gradient_probe import probe
from multitask.objectives import build_objective, uniformity, unit
from multitask.objectives.closed_form_components import DISSIPATIONS, RATIOS, Negatives
from multitask.objectives.geometry import arccos
from multitask.objectives.labelled_pairs import CoSENT

from .batches import Batch, random_batch, value_and_gradient

HARD = random_batch(2, pairs=3).anchors


GRADED = st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0, 0.25, 0.5, 1])), min_size=1, max_size=12)


@given(GRADED, st.sampled_from([1.0, 20.0, 200.0]))
def test_cosent_is_that_of_sentence_transformers_and_knows_only_the_order_of_labels(rows, scale):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    cosines, labels = torch.tensor(rows, dtype=torch.float64).unbind(1)
    cosines.requires_grad_()
    cosent = CoSENT(scale)
    loss, other = cosent.of_cosines(cosines, labels), cosent.of_cosines(cosines, labels.exp() - 7)
    theirs = losses.CoSENTLoss(None, scale, lambda first, _: first).compute_loss_from_embeddings
    torch.testing.assert_close(loss, theirs([cosines, cosines], labels), rtol=1e-9, atol=1e-8)
    assert loss == other
    assert torch.autograd.gradcheck(lambda x: cosent.of_cosines(x, labels), cosines, atol=1e-5, rtol=1e-4)
    if len(set(labels.tolist())) == 1:
        assert loss == 0


def original_barlow_twins(anchors: Tensor, positives: Tensor, hard_negatives: Tensor | None = None) -> Tensor:
    """Hard negatives are pairs of a sentence with itself in the correlation, but not in its distance from 1."""
    u, v = (normalize(x, dim=-1) for x in (anchors, positives))
    correlation = u.T @ v / len(u)
    own = correlation.diagonal()
    with_hard = correlation
    if hard_negatives is not None:
        w = normalize(hard_negatives, dim=-1)
        with_hard = correlation + w.T @ w / len(u)
    return (1 - own).square().sum() + 3 * (with_hard.square().sum() - own.square().sum())


def original_vicreg(anchors: Tensor, positives: Tensor, hard_negatives: Tensor | None = None) -> Tensor:
    """Hard negatives are further anchors in the second moment; their own square is constant."""
    u, v = (normalize(x, dim=-1) for x in (anchors, positives))
    w = u[:0] if hard_negatives is None else normalize(hard_negatives, dim=-1)
    moments = (torch.cat([u, w]).T @ torch.cat([u, w]), v.T @ v)
    covariance = sum((moment / len(u)).square().sum() for moment in moments) - (w.T @ w / len(u)).square().sum()
    return (u - v).square().sum(-1).mean() + 3 / 2 * covariance


@pytest.mark.parametrize("hard", [None, HARD], ids=["no hard negatives", "hard negatives"])
@pytest.mark.parametrize(("name", "original"), [("barlow_twins", original_barlow_twins), ("vicreg", original_vicreg)])
def test_plain_gradient_form_has_the_gradient_of_the_original_loss(name, original, hard):
    batch, objective = random_batch(3), build_objective(name, uniformity_weight=3)
    _, *actual = value_and_gradient(objective, batch, hard_negatives=hard)
    _, *expected = value_and_gradient(original, batch, hard_negatives=hard)
    if hard is not None and name == "vicreg":
        for losses, loss in ((actual, objective), (expected, original)):
            losses += torch.autograd.grad(loss(batch.anchors, batch.positives, hard.requires_grad_()), hard)
    known = (
        1 if hard is not None and name == "barlow_twins" else 3
    )  # its positives are not compared with hard negatives
    torch.testing.assert_close(actual[:known], expected[:known])


@pytest.mark.parametrize("name", ["gradient", "dcl", "mixed"])
def test_with_hard_negatives_an_anchor_has_the_weights_and_ratio_of_infonce(name):
    """In `gradient`, the half of the positives pulls each anchor once more."""
    batch, parameters = random_batch(1, dim=20), {"dissipation": None} if name == "gradient" else {}
    hard = random_batch(2, pairs=9, dim=20).anchors
    components = [
        probe(build_objective(other, **given), batch.anchors, batch.positives, hard)
        for other, given in ((name, parameters), ("infonce", {}))
    ]
    torch.testing.assert_close(components[0].weights, components[1].weights)
    torch.testing.assert_close(components[0].ratio, components[1].ratio * (2 if name == "gradient" else 1))
    assert all(component.residual < 1e-9 for component in components)


@pytest.mark.parametrize("name", ["barlow_twins", "vicreg"])
def test_temperatures_whose_diagonal_overflows_keep_the_gradient_of_float64(name):
    objective = build_objective(name, weight=0.01, uniformity_weight=1)
    batch = Batch("spread out", torch.eye(6, 12).double(), torch.eye(6, 12).double() + 0.1)
    value, *gradients = value_and_gradient(objective, batch, torch.float32)
    _, *expected = value_and_gradient(objective, batch)
    assert value.isfinite()
    torch.testing.assert_close([g.double() for g in gradients], expected, rtol=1e-4, atol=1e-5)


# Geometry.


@pytest.mark.parametrize("t", [1.0, 2.0])
def test_uniformity_is_the_authors_one_line_with_pdist(t):
    u = unit(random_batch(1).anchors)
    torch.testing.assert_close(uniformity(u, t), torch.pdist(u).pow(2).mul(-t).exp().mean().log())
    assert uniformity(u[:1], t) == 0


def test_unit_vectors_have_norm_one_in_full_precision_and_zero_stays_zero():
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    x[2] = 0
    for dtype, wide in ((torch.float64, torch.float64), (torch.bfloat16, torch.float32)):
        torch.testing.assert_close(unit(x.to(dtype)).norm(dim=-1), torch.tensor([1, 1, 0, 1], dtype=wide))
    zero = torch.zeros(1, 4, requires_grad=True)
    unit(zero).sum().backward()
    torch.testing.assert_close(zero.grad, torch.ones(1, 4))  # no larger than the gradient that arrives


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_arccos_is_exact_inside_and_finite_at_the_ends(dtype):
    inside = torch.linspace(-0.99, 0.99, 9, dtype=dtype)
    torch.testing.assert_close(arccos(inside), torch.acos(inside))
    ends = torch.tensor([-1.0, 1.0, 1.001], dtype=dtype, requires_grad=True)
    angles = arccos(ends)
    tolerance = 2 * math.sqrt(torch.finfo(dtype).eps)
    torch.testing.assert_close(angles, torch.tensor([math.pi, 0.0, 0.0], dtype=dtype), atol=tolerance, rtol=0)
    angles.sum().backward()
    assert ends.grad is not None
    assert ends.grad.isfinite().all()


# The components as functions of angles, and their mixtures, against the gradients of the objectives themselves.


# angles of the positive and of the negatives in degrees, for which unit vectors with these cosines exist
ANGLES = [
    (40.0, (70.0, 80.0, 95.0)),
    (50.0, (60.0, 85.0, 120.0)),
    (62.0, (61.0, 75.0, 100.0)),
    (20.0, (80.0, 92.0, 100.0)),
    (35.0, (60.0, 89.0, 91.0)),
    (30.0, (68.0, 90.0, 95.0)),
]


def gradient_of_first_anchor(name: str, cosines: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients of the positive [] and the negatives [negatives] in the gradient of the first anchor's own loss.

    The positives are the first unit vectors of the standard basis, so the anchor's coordinates are its cosines. One
    more coordinate makes its length 1. The gradient in this coordinate is only due to the projection along the anchor.
    """
    pairs = len(cosines)
    rest = (1 - cosines.square().sum()).sqrt()
    anchors = torch.zeros(pairs, pairs + 1, dtype=torch.float64)
    anchors[0] = torch.cat([cosines, rest[None]])
    anchors[1:, 1:pairs] = torch.eye(pairs - 1)
    anchors.requires_grad_()
    positives = torch.eye(pairs, pairs + 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(build_objective(name)(anchors, positives), anchors)
    own = gradient[0] * pairs  # the loss is a mean over anchors
    coefficients = own[:pairs] - own[pairs] / rest * cosines
    return coefficients[0], coefficients[1:]


@pytest.fixture(params=ANGLES, ids=str)
def angles(request) -> tuple[Tensor, Tensor]:
    positive, negatives = request.param
    return torch.tensor(positive, dtype=torch.float64).deg2rad(), torch.tensor(negatives, dtype=torch.float64).deg2rad()


# InfoNCE's push is GD/τ; MPT's is GD; MET's is GD over the distance to the hardest negative, MAT's over the sine.
@pytest.mark.parametrize("name", DISSIPATIONS)
def test_dissipation_is_the_push_of_the_objective_relative_to_its_largest(name, angles):
    positive, negatives = angles
    _, push = gradient_of_first_anchor(name, torch.cat([positive[None], negatives]).cos())
    largest = {
        "infonce": 1 / 0.05,
        "arccon": 1 / 0.05,
        "mpt": 1.0,
        "met": 1 / (2 * (negatives.min() / 2).sin()),
        "mat": 1 / negatives.min().sin(),
    }[name]
    expected = DISSIPATIONS[name](positive, Negatives.of_cosines(negatives.cos()))
    torch.testing.assert_close(push.sum() / largest, expected.double(), rtol=1e-6, atol=1e-9)


def test_hardest_weight_is_its_share_of_the_push(angles):
    positive, negatives = angles
    _, push = gradient_of_first_anchor("infonce", torch.cat([positive[None], negatives]).cos())
    weight = Negatives.of_cosines(negatives.cos()).hardest_weight(0.05)
    torch.testing.assert_close(push.max() / push.sum(), weight)


@pytest.mark.parametrize("name", RATIOS)
def test_ratio_is_that_of_pull_and_push(name, angles):
    positive, negatives = angles
    pull, push = gradient_of_first_anchor(name, torch.cat([positive[None], negatives]).cos())
    if push.sum() == 0:
        pytest.skip("dissipated: there is no ratio")
    torch.testing.assert_close(-pull / push.sum(), RATIOS[name](positive, negatives.min()))


# Mixtures of the components of several losses.


@pytest.mark.parametrize("names", [("infonce", "met", "arccon"), ("mpt", "infonce", "mat"), ("met", "met", "infonce")])
def test_each_component_is_that_of_the_loss_it_is_of(names):
    batch = random_batch(5, noise=1.0)
    seen = probe(
        build_objective("mixed", **dict(zip(("dissipation_of", "weight_of", "ratio_of"), names, strict=True))),
        batch.anchors,
        batch.positives,
    )
    dissipation, weight, ratio = (probe(build_objective(name), batch.anchors, batch.positives) for name in names)
    torch.testing.assert_close(seen.dissipation, dissipation.dissipation, rtol=1e-6, atol=1e-9)
    acts = (seen.dissipation > 0) & (weight.dissipation > 0) & (ratio.dissipation > 0)
    assert acts.any()
    torch.testing.assert_close(seen.weights[acts], weight.weights[acts])
    torch.testing.assert_close(seen.ratio[acts], ratio.ratio[acts])


@pytest.mark.parametrize("name", DISSIPATIONS)
def test_a_negative_that_repeats_the_anchor_keeps_the_whole_gradient(name):
    """In float32, the cosine of two equal vectors may be a little above 1, which no angle has."""
    cosines = torch.tensor([0.2, 1 + 2**-23, -1 - 2**-23])
    found = DISSIPATIONS[name](torch.tensor(1.0), Negatives.of_cosines(cosines))
    assert found.item() == pytest.approx(1.0, abs=1e-3)

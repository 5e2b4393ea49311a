"""The components as functions of angles, and their mixtures, against the gradients of the objectives themselves."""

import pytest
import torch
from torch import Tensor

from multitask.evaluation.gradient_probe import probe
from multitask.objectives import build_objective
from multitask.objectives.mixed_components import DISSIPATIONS, RATIOS, Negatives

from .batches import random_batch

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
def test_each_component_is_that_of_the_loss_it_is_of(names: tuple[str, str, str]) -> None:
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

"""Gradients against closed forms: the three components of each contrastive loss, and losses that equal one another."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from multitask.objectives import build_objective
from multitask.objectives.base import Objective

from .batches import Batch, random_batch, value_and_gradient

PAIRS = 5


@pytest.fixture
def batch() -> Batch:
    """More dimensions than pairs, so that a gradient has one decomposition over the positives."""
    random = random_batch(1, pairs=PAIRS, dim=16, noise=1.0)
    common = 0.8 * random.anchors.mean(0)  # similar negatives too
    return Batch(
        "unit",
        torch.nn.functional.normalize(random.anchors + 3 * common, dim=-1),
        torch.nn.functional.normalize(random.positives + 3 * common, dim=-1),
    )


def components(objective: Objective, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Dissipation Σ_j β_ij [pairs], weights [pairs, pairs] and ratio [pairs] in the gradient of the anchors.

    g_i = α_i v_i + Σ_{j≠i} β_ij v_j + (radial part) is solved for α and β.
    """
    anchors = batch.anchors.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(anchors, batch.positives), anchors)
    coefficients = []
    for u, g in zip(batch.anchors, gradient * PAIRS, strict=True):
        basis = torch.cat([batch.positives, u[None]]).T  # [dim, pairs + 1]
        coefficients.append(torch.linalg.lstsq(basis, g[:, None]).solution[:PAIRS, 0])
    solved = torch.stack(coefficients)  # [pairs, pairs]
    negatives = solved - solved.diagonal().diag()
    push = negatives.sum(-1)
    return push, negatives / push[:, None], -solved.diagonal() / push


def hardest_one_hot(similarity: Tensor) -> Tensor:
    return torch.nn.functional.one_hot((similarity - 9 * torch.eye(PAIRS)).argmax(-1), PAIRS).double()


def test_infonce_dissipates_by_the_positive_probability_weighs_by_softmax_and_has_ratio_one(batch: Batch) -> None:
    push, weights, ratio = components(build_objective("infonce", temperature=0.2), batch)
    logits = batch.anchors @ batch.positives.T / 0.2
    torch.testing.assert_close(push, (1 - logits.softmax(-1).diagonal()) / 0.2)
    expected = logits.masked_fill(torch.eye(PAIRS, dtype=torch.bool), -math.inf).softmax(-1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(ratio, torch.ones(PAIRS).double())


def test_arccon_has_the_ratio_of_the_sines(batch: Batch) -> None:
    _, _, ratio = components(build_objective("arccon", temperature=0.2, angle=0.3), batch)
    theta = (batch.anchors * batch.positives).sum(-1).arccos()
    torch.testing.assert_close(ratio, (theta + 0.3).sin() / theta.sin())


@pytest.mark.parametrize("name", ["mpt", "met", "mat"])
def test_margin_losses_weigh_only_the_hardest_negative(name: str, batch: Batch) -> None:
    objective = build_objective(name, margin=1.0)
    assert objective.gate_rate(batch.anchors, batch.positives) == 1
    _, weights, ratio = components(objective, batch)
    similarity = batch.anchors @ batch.positives.T
    one_hot = hardest_one_hot(similarity)
    torch.testing.assert_close(weights, one_hot)
    positive, hardest = similarity.diagonal(), (similarity * one_hot).sum(-1)
    expected = {
        "mpt": torch.ones(PAIRS).double(),
        "met": ((2 - 2 * hardest) / (2 - 2 * positive)).sqrt(),
        "mat": ((1 - hardest**2) / (1 - positive**2)).sqrt(),
    }
    torch.testing.assert_close(ratio, expected[name])


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_gradient_paradigm_moves_anchors_along_its_definition(ratio: float, batch: Batch) -> None:
    u, v = batch.anchors, batch.positives
    similarity = u @ v.T
    negatives = similarity.masked_fill(torch.eye(PAIRS, dtype=torch.bool), -math.inf)
    gaps = [similarity.diagonal() - negatives.amax(dim) for dim in (1, 0)]
    margin = torch.cat(gaps).quantile(0.55).item()
    gates = [(gap < margin).double()[:, None] for gap in gaps]
    assert all(0 < gate.sum() < PAIRS for gate in gates)
    _, actual, _ = value_and_gradient(build_objective("gradient", dissipation=margin, weight=0.1, ratio=ratio), batch)
    # u_i is the anchor of the first half and, through a_i, the positive of the second
    direction = gates[0] * ((negatives / 0.1).softmax(-1) @ v - ratio * v) / gates[0].sum()
    direction = (direction - gates[1] * ratio * v / gates[1].sum()) / PAIRS
    torch.testing.assert_close(actual, direction - (direction * u).sum(-1, keepdim=True) * u)


def test_mnrl_with_scale_20_is_infonce_with_temperature_one_twentieth(batch: Batch) -> None:
    hard = random_batch(2, pairs=3, dim=16).anchors
    mnrl = value_and_gradient(build_objective("mnrl", scale=20), batch, hard_negatives=hard)
    torch.testing.assert_close(
        mnrl, value_and_gradient(build_objective("infonce", temperature=0.05), batch, hard_negatives=hard)
    )


def test_arccon_without_angle_is_infonce(batch: Batch) -> None:
    torch.testing.assert_close(
        value_and_gradient(build_objective("arccon", angle=0), batch),
        value_and_gradient(build_objective("infonce"), batch),
    )


def test_infonce_is_dcl_with_the_positive_in_the_sum(batch: Batch) -> None:
    similarity = batch.anchors @ batch.positives.T / 0.05
    dcl = build_objective("dcl")(batch.anchors, batch.positives)
    infonce = build_objective("infonce")(batch.anchors, batch.positives)
    eye = torch.eye(PAIRS, dtype=torch.bool)
    positive_share = similarity.logsumexp(-1) - similarity.masked_fill(eye, -math.inf).logsumexp(-1)
    torch.testing.assert_close(infonce - dcl, positive_share.mean())


def original_barlow_twins(anchors: Tensor, positives: Tensor, weight: float) -> Tensor:
    u, v = (torch.nn.functional.normalize(x, dim=-1) for x in (anchors, positives))
    correlation = u.T @ v / len(u)
    own = correlation.diagonal()
    return (1 - own).square().sum() + weight * (correlation.square().sum() - own.square().sum())


def original_vicreg(anchors: Tensor, positives: Tensor, weight: float) -> Tensor:
    u, v = (torch.nn.functional.normalize(x, dim=-1) for x in (anchors, positives))
    covariance = sum((x.T @ x / len(x)).square().sum() for x in (u, v))
    return (u - v).square().sum(-1).mean() + weight / 2 * covariance


@pytest.mark.parametrize(("name", "original"), [("barlow_twins", original_barlow_twins), ("vicreg", original_vicreg)])
def test_plain_gradient_form_has_the_gradient_of_the_original_loss(name: str, original: Callable[..., Tensor]) -> None:
    batch = random_batch(3)
    _, *actual = value_and_gradient(build_objective(name, uniformity_weight=3), batch)
    _, *expected = value_and_gradient(lambda u, v: original(u, v, 3), batch)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["mhe", "mhs", "barlow_twins", "vicreg"])
def test_an_open_gate_is_no_gate_and_a_closed_one_stops_every_gradient(name: str, batch: Batch) -> None:
    parameters = {"uniformity_weight": 1.5, "weight": 0.1, "ratio": 1.5}
    plain = value_and_gradient(build_objective(name, **parameters), batch)
    torch.testing.assert_close(value_and_gradient(build_objective(name, dissipation=2, **parameters), batch), plain)
    value, *gradients = value_and_gradient(build_objective(name, dissipation=0, **parameters), batch)
    torch.testing.assert_close(value, plain[0])
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("name", ["barlow_twins", "vicreg"])
def test_temperatures_whose_diagonal_overflows_keep_the_gradient_of_float64(name: str) -> None:
    objective = build_objective(name, weight=0.01, uniformity_weight=1)
    batch = Batch("spread out", torch.eye(6, 12).double(), torch.eye(6, 12).double() + 0.1)
    value, *gradients = value_and_gradient(objective, batch, torch.float32)
    _, *expected = value_and_gradient(objective, batch)
    assert value.isfinite()
    torch.testing.assert_close([g.double() for g in gradients], expected, rtol=1e-4, atol=1e-5)

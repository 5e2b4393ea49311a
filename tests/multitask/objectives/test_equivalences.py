"""Losses that equal one another or their originals, what labelled pairs mean, and the geometry of the unit sphere."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from multitask.evaluation.gradient_probe import probe
from multitask.objectives import Objective, build_objective, uniformity, unit
from multitask.objectives.geometry import arccos
from multitask.objectives.labelled_pairs import CoSENT

from .batches import Batch, random_batch, value_and_gradient

HARD = random_batch(2, pairs=3).anchors
ONES, ZEROS = torch.ones(6), torch.zeros(6)
LITERAL = build_objective("quora_pairs", form="literal")


@pytest.mark.parametrize(
    ("one", "arguments", "factor"),
    [
        (build_objective("mnrl", scale=20), {"hard_negatives": HARD}, 1),
        (build_objective("arccon", angle=0), {}, 1),
        (build_objective("quora_pairs"), {"labels": ONES}, 1),
        (LITERAL, {"labels": ONES}, 1),
        (LITERAL, {"labels": ZEROS}, -1),
    ],
    ids=str,
)
def test_special_cases_of_infonce(one: Objective, arguments: dict[str, Tensor], factor: float) -> None:
    batch = random_batch(1)
    infonce = value_and_gradient(build_objective("infonce"), batch, hard_negatives=arguments.get("hard_negatives"))
    torch.testing.assert_close(value_and_gradient(one, batch, **arguments), tuple(factor * x for x in infonce))


GRADED = st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0, 0.25, 0.5, 1])), min_size=1, max_size=12)


@given(GRADED, st.sampled_from([1.0, 20.0, 200.0]))
def test_cosent_is_that_of_sentence_transformers_and_knows_only_the_order_of_labels(
    rows: list[tuple[float, float]], scale: float
) -> None:
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
def test_plain_gradient_form_has_the_gradient_of_the_original_loss(
    name: str, original: Callable[..., Tensor], hard: Tensor | None
) -> None:
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
def test_with_hard_negatives_an_anchor_has_the_weights_and_ratio_of_infonce(name: str) -> None:
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


@pytest.mark.parametrize("name", ["mhe", "mhs", "barlow_twins", "vicreg"])
def test_an_open_gate_is_no_gate_and_a_closed_one_stops_every_gradient(name: str) -> None:
    batch, parameters = random_batch(1), {"uniformity_weight": 1.5, "ratio": 1.5}
    if name != "mhs":
        parameters["weight"] = 0.1
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


# Geometry.


@pytest.mark.parametrize("t", [1.0, 2.0])
def test_uniformity_is_the_authors_one_line_with_pdist(t: float) -> None:
    u = unit(random_batch(1).anchors)
    torch.testing.assert_close(uniformity(u, t), torch.pdist(u).pow(2).mul(-t).exp().mean().log())
    assert uniformity(u[:1], t) == 0


def test_unit_vectors_have_norm_one_in_full_precision_and_zero_stays_zero() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    x[2] = 0
    for dtype, wide in ((torch.float64, torch.float64), (torch.bfloat16, torch.float32)):
        torch.testing.assert_close(unit(x.to(dtype)).norm(dim=-1), torch.tensor([1, 1, 0, 1], dtype=wide))
    zero = torch.zeros(1, 4, requires_grad=True)
    unit(zero).sum().backward()
    torch.testing.assert_close(zero.grad, torch.ones(1, 4))  # no larger than the gradient that arrives


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

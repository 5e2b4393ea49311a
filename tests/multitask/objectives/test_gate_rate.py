"""The share of rows that a gate or hinge lets through."""

import pytest
import torch

from multitask.objectives import Objective, build_objective

from .batches import ALL_OBJECTIVES, labels_for, random_batch, value_and_gradient

GATED = [o for o in ALL_OBJECTIVES if o.gate_rate(torch.eye(2), torch.eye(2)) is not None]


def test_objectives_with_a_hinge_or_a_gate_have_a_rate_and_no_other() -> None:
    always = {"mpt", "met", "mat", "dcl_positive"}
    assert [o for o in ALL_OBJECTIVES if o.name in always or getattr(o, "dissipation", None) is not None] == GATED


CAN_CLOSE = [o for o in GATED if getattr(o, "margin", 0) < 1]  # a margin as wide as the sphere is never met


@pytest.mark.parametrize("objective", CAN_CLOSE, ids=str)
def test_rate_is_zero_for_pairs_far_apart_and_one_for_collapsed_ones(objective: Objective) -> None:
    apart, together = torch.eye(4), torch.ones(4, 4)
    assert objective.gate_rate(apart, apart) == 0
    assert objective.gate_rate(together, together) == 1
    assert objective.gate_rate(together, together, torch.ones(4, 4, dtype=torch.bool)) == 0


@pytest.mark.parametrize("name", ["mpt", "met", "mat", "dcl_positive"])
def test_rate_of_a_hinge_is_the_share_of_anchors_with_a_loss(name: str) -> None:
    objective, batch = build_objective(name), random_batch(1, noise=1.5)
    rate = objective.gate_rate(batch.anchors, batch.positives)
    alone = []
    for i in range(6):
        # only anchor i is left with negatives
        false = torch.ones(6, 6, dtype=torch.bool)
        false[i] = False
        alone.append(objective(batch.anchors, batch.positives, false_negatives=false) > 0)
    assert rate == torch.stack(alone).float().mean()
    assert 0 < rate < 1


@pytest.mark.parametrize("name", ["mhe", "mhs", "vicreg"])
def test_rate_of_a_dissipation_gate_is_the_share_of_rows_with_a_gradient(name: str) -> None:
    objective, batch = build_objective(name, dissipation=0.3), random_batch(1)
    _, *gradients = value_and_gradient(objective, batch, labels=labels_for(objective, 6))
    moved = torch.cat([gradient.abs().sum(-1) > 1e-12 for gradient in gradients])
    assert objective.gate_rate(batch.anchors, batch.positives) == moved.float().mean()
    assert 0 < moved.sum() < 12


def test_asking_for_the_rate_needs_no_labels_and_leaves_no_graph() -> None:
    u = torch.randn(3, 4, requires_grad=True)
    assert build_objective("cosine").gate_rate(u, u) is None
    rate = build_objective("mpt").gate_rate(u, u)
    assert rate is not None
    assert not rate.requires_grad

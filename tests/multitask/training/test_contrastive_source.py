"""Which sentences of a batch are negatives, against brute force; gradient caching computes the whole gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from minbert import BertConfig, BertModel
from minbert.packing import PackedBatch
from multitask.models.compute_in_batches import pool
from multitask.objectives import OBJECTIVES, build_objective
from multitask.training.contrastive_source import backward_in_chunks, contrastive_batches, excluded_negatives
from multitask.training.settings import NegativesConfig


def batch(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cosines of anchors and positives, and a mask of a few known duplicates."""
    draws = torch.Generator().manual_seed(seed)
    anchors, positives = torch.randn(2, rows, 6, generator=draws)
    known = (torch.rand(rows, rows, generator=draws) < 0.1).fill_diagonal_(fill_value=False)
    return torch.nn.functional.cosine_similarity(anchors[:, None], positives[None], dim=2), known


@given(st.integers(2, 12), st.integers(1, 14), st.integers(0, 99))
def test_the_hardest_are_the_most_similar_that_are_no_known_duplicates(rows, kept, seed):
    cosines, known = batch(rows, seed)
    config = NegativesConfig("hardest", negatives_kept=kept)
    excluded = excluded_negatives(cosines, np.arange(rows), known, config)
    assert excluded is not None
    for i in range(rows):
        possible = sorted((j for j in range(rows) if j != i and not known[i, j]), key=lambda j: -float(cosines[i, j]))
        assert {j for j in range(rows) if not excluded[i, j]} == {i, *possible[:kept]}


@given(st.integers(2, 40), st.integers(1, 42), st.integers(0, 99))
def test_every_anchor_has_as_many_random_ones_in_both_directions(rows, kept, seed):
    cosines, _ = batch(rows, seed)
    config = NegativesConfig("random", negatives_kept=kept)
    excluded = excluded_negatives(cosines, np.arange(rows) + seed, None, config)
    assert excluded is not None
    assert torch.equal(excluded, excluded.T)
    count = min(kept, rows - 1)
    counts = sorted(((~excluded).sum(1) - 1).tolist())
    one_fewer = rows % 2 == 1 and count % 2 == 1  # an odd number of anchors cannot have an odd number each
    assert counts == [count - one_fewer, *[count] * (rows - 1)]


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if kind.takes_hard_negatives])
@pytest.mark.parametrize("kept", [1, 2, 5])
def test_an_anchors_gradient_has_as_many_random_negatives_under_every_loss(name, kept):
    if (name, kept) == ("dcl_positive", 1):
        pytest.skip("with one negative that is as similar as the positive its hinge is closed")
    # All vectors are linearly independent, so a gradient has a part along another one only if it is a negative.
    objective = build_objective(name)
    objective = objective.undissipated() or objective
    rows = 8
    excluded = excluded_negatives(torch.zeros(rows, rows), np.arange(rows), None, NegativesConfig("random", kept))
    for view in (0, 1):
        views = 0.5 + torch.eye(2 * rows, dtype=torch.float64).view(2, rows, 2 * rows)
        views.requires_grad_()
        objective(*views, false_negatives=excluded).backward()
        assert views.grad is not None
        others = torch.cat([views[0], views[1]]).detach()  # [2 * rows, dim]
        others = others / others.norm(dim=1, keepdim=True)
        parts = torch.linalg.lstsq(others.T, views.grad[view].T).solution.T.view(rows, 2, rows)
        off_diagonal = parts.abs().amax(1).masked_fill(torch.eye(rows, dtype=torch.bool), 0)  # [rows, rows]
        negatives = (off_diagonal > 1e-9 * off_diagonal.max()).sum(1)
        if name in ("mhs", "mpt", "met", "mat"):  # they push an anchor from the hardest alone
            assert negatives.gt(0).any()
            if (
                name == "mhs" or view == 0
            ):  # the others' anchors are the first view; not all of the second are a hardest
                assert negatives.gt(0).all()
        else:
            assert negatives.tolist() == [kept] * rows


@given(st.integers(2, 12), st.integers(1, 14), st.integers(0, 99))
def test_known_duplicates_are_no_random_ones_and_the_rows_decide_them(rows, kept, seed):
    cosines, known = batch(rows, seed)
    config = NegativesConfig("random", negatives_kept=kept)
    numbers = np.arange(rows) + seed
    excluded = excluded_negatives(cosines, numbers, known, config)
    without = excluded_negatives(-cosines, numbers, None, config)
    assert excluded is not None
    assert without is not None
    assert torch.equal(excluded, without | known)


def test_random_ones_differ_between_batches_and_are_spread_evenly():
    cosines, _ = batch(8, 0)
    config = NegativesConfig("random", negatives_kept=2)
    drawn = [excluded_negatives(cosines, np.arange(8) + n, None, config) for n in range(400)]
    shares = torch.stack([~torch.as_tensor(mask) for mask in drawn]).float().mean(0)
    off_diagonal = shares[~torch.eye(8, dtype=torch.bool)]
    assert off_diagonal.sub(2 / 7).abs().max() < 5 * (2 / 7 * 5 / 7 / 400) ** 0.5


def test_unlike_leaves_out_what_is_too_similar():
    cosines, known = batch(10, 3)
    config = NegativesConfig("unlike", false_negative_cosine=0.3)
    excluded = excluded_negatives(cosines, np.arange(10), known, config)
    expected = (known | (cosines >= 0.3)).fill_diagonal_(fill_value=False)
    assert torch.equal(torch.as_tensor(excluded), expected)
    assert expected.sum() > known.sum()


def test_all_others_change_nothing():
    cosines, known = batch(4, 0)
    assert excluded_negatives(cosines, np.arange(4), None, NegativesConfig()) is None
    assert excluded_negatives(cosines, np.arange(4), known, NegativesConfig()) is known


@pytest.mark.parametrize(("rows", "sizes"), [(8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (2, [2])])
def test_a_last_batch_of_one_row_which_has_no_negatives_is_dropped(rows, sizes):
    batches = contrastive_batches("pairs", rows, 0, 4, 1.0, 0)
    assert [len(found) for found in batches] == sizes
    assert len(set(np.concatenate(batches))) == sum(sizes)


# Gradient caching computes the gradient of the whole batch, with equal dropout and final generator states.


CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Tanh(), nn.Linear(8, 5)).double()


@pytest.mark.parametrize("sizes", [[12], [4, 4, 4], [5, 5, 2], [1] * 12], ids=str)
@pytest.mark.parametrize("objective", ["infonce", "met", "gradient", "vicreg"])
def test_equals_one_graph_over_the_same_chunks(sizes, objective):
    rows = torch.randn(12, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    chunks = rows.split(sizes)

    def encode(module: nn.Module, chunk: Tensor) -> Tensor:
        return torch.stack([module(chunk), module(chunk)])  # two views that differ by dropout

    def loss(views: Tensor) -> tuple[Tensor, str]:
        return build_objective(objective)(*views), "beside"

    whole = network()
    torch.manual_seed(7)
    expected, _ = loss(torch.cat([encode(whole, chunk) for chunk in chunks], dim=1))
    expected.backward()
    generator_after = torch.get_rng_state()

    cached = network()
    torch.manual_seed(7)
    value, extra = backward_in_chunks(chunks, lambda chunk: encode(cached, chunk), loss, CPU)
    assert extra == "beside"
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach())
    for ours, theirs in zip(cached.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-11)
    assert any(p.grad.abs().max() > 1e-3 for p in whole.parameters())
    assert torch.equal(torch.get_rng_state(), generator_after)


def test_an_encoder_draws_the_same_dropout_without_and_with_gradients_in_bf16():
    """There a batch may have spare rows, for which dropout draws too."""
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    rows = np.random.default_rng(0).integers(5, 50, (12, 7))
    chunks = [PackedBatch.from_sequences([*part, *part]) for part in np.split(rows, 3)]

    def computed(cached: bool) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(0)
        model = BertModel(config).train()

        def encode(chunk: PackedBatch) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return pool(model.forward_packed(chunk), chunk, "mean").unflatten(0, (2, -1))

        def loss(views: Tensor) -> tuple[Tensor, None]:
            return build_objective("infonce")(*views), None

        if cached:
            value, _ = backward_in_chunks(chunks, encode, loss, CPU)
        else:
            value, _ = loss(torch.cat([encode(chunk) for chunk in chunks], dim=1))
            value.backward()
        gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        return value.detach(), torch.cat(gradients), torch.get_rng_state()

    (expected, whole, state), (value, cached, state_after) = computed(cached=False), computed(cached=True)
    torch.testing.assert_close(value, expected)
    # In one graph, three chunks' gradients may be added in bf16; in chunks they are added in fp32.
    assert (cached - whole).norm() <= 3 * 2**-8 * whole.norm()
    assert torch.equal(state_after, state)

"""Labelled pairs: what the formulas mean."""

import pytest
import torch

from multitask.objectives import build_objective

from .batches import Batch, random_batch, value_and_gradient


def test_cosine_is_the_mean_squared_error_of_the_cosine_similarity() -> None:
    batch = random_batch(1)
    gold = torch.linspace(0, 1, 6).double()
    expected = torch.nn.functional.mse_loss(torch.cosine_similarity(batch.anchors, batch.positives), gold)
    torch.testing.assert_close(build_objective("cosine")(batch.anchors, batch.positives, labels=gold), expected)


@pytest.mark.parametrize("form", ["bounded", "literal"])
def test_only_duplicates_make_it_infonce(form: str) -> None:
    batch = random_batch(1)
    actual = value_and_gradient(build_objective("quora_pairs", form=form), batch, labels=torch.ones(6))
    torch.testing.assert_close(actual, value_and_gradient(build_objective("infonce"), batch))


def test_literal_form_of_only_different_pairs_is_minus_infonce() -> None:
    batch = random_batch(1)
    actual = value_and_gradient(build_objective("quora_pairs", form="literal"), batch, labels=torch.zeros(6))
    torch.testing.assert_close(actual, tuple(-x for x in value_and_gradient(build_objective("infonce"), batch)))


@pytest.mark.parametrize("form", ["bounded", "literal"])
def test_descent_moves_the_sentences_of_a_different_pair_apart(form: str) -> None:
    batch, labels = random_batch(2, noise=0.3), torch.tensor([1, 1, 0, 1, 1, 1])
    objective = build_objective("quora_pairs", form=form)
    _, of_anchors, of_positives = value_and_gradient(objective, batch, labels=labels)
    before = torch.cosine_similarity(batch.anchors, batch.positives)
    after = torch.cosine_similarity(batch.anchors - 1e-3 * of_anchors, batch.positives - 1e-3 * of_positives)
    assert after[2] < before[2]


def test_bounded_form_stays_above_zero_and_fades_where_the_literal_form_keeps_pushing() -> None:
    anchors, labels = torch.eye(6, 12).double(), torch.zeros(6)
    apart = anchors.roll(6, dims=1)  # nothing is similar to anything
    bounded, *fading = value_and_gradient(build_objective("quora_pairs"), Batch("apart", anchors, apart), labels=labels)
    assert 0 <= bounded < 1e-6
    assert max(gradient.abs().max() for gradient in fading) < 1e-6
    _, *pushing = value_and_gradient(
        build_objective("quora_pairs", form="literal"), Batch("apart", anchors, apart), labels=labels
    )
    assert max(gradient.abs().max() for gradient in pushing) > 1

"""R-Drop's loss against scipy's divergences; nothing is added where both passes agree."""

import pytest
import torch

from multitask.training.regularisation.r_drop import RDrop
from multitask.training.trainable import Losses
from tests.multitask.training.regularisation.toy import TASKS, Toy, symmetric_kl


def test_the_loss_is_the_mean_of_two_passes_and_half_the_symmetric_divergence() -> None:
    toy, passes = Toy(dropout=0.4), []

    def compute() -> Losses:
        passes.append(toy.losses())
        return passes[-1]

    found = RDrop(0.7, TASKS)(compute)
    first, second = passes
    for name, term in found.terms.items():
        apart = symmetric_kl(name, first.outputs[name], second.outputs[name]) / 2
        mean = (first.terms[name].item() + second.terms[name].item()) / 2
        assert apart > 1e-3
        assert found.watched[f"{name} r_drop"].item() == pytest.approx(apart, rel=1e-9)
        assert term.item() == pytest.approx(mean + 0.7 * apart, rel=1e-9)


def test_nothing_is_added_where_both_passes_agree() -> None:
    toy = Toy()
    plain, found = toy.losses(), RDrop(3.0, TASKS)(toy.losses)
    assert all(torch.equal(found.terms[name], term) for name, term in plain.terms.items())
    assert all(value == 0 for value in found.watched.values())
    for ours, theirs in zip(toy.gradients(found), toy.gradients(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)

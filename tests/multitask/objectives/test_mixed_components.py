"""A mixture of one loss alone has that loss's gradient; each component comes from the loss that is named."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from multitask.evaluation.gradient_probe import probe
from multitask.objectives import build_objective

from .batches import RANDOM_BATCHES, Batch, random_batch, value_and_gradient

NAMES = ("infonce", "arccon", "mpt", "met", "mat")


def alone(name: str) -> dict[str, str]:
    return dict.fromkeys(("dissipation_of", "weight_of", "ratio_of"), name)


def scaled(name: str, anchors: Tensor, positives: Tensor) -> Tensor:
    """The loss without its factors: each anchor's term is multiplied by a constant that cancels its factor."""
    if name in ("infonce", "arccon"):
        return 0.05 * build_objective(name)(anchors, positives)
    cosine = torch.nn.functional.normalize(anchors) @ torch.nn.functional.normalize(positives).T
    positive = cosine.diagonal()
    hardest = cosine.masked_fill(torch.eye(len(cosine), dtype=torch.bool), -9).amax(-1)
    if name == "mpt":
        return (hardest - positive + 0.23).relu().mean()
    if name == "met":
        near, far = (2 - 2 * positive).sqrt(), (2 - 2 * hardest).sqrt()
        return (far.detach() * (near - far + 0.45).relu()).mean()
    near, far = positive.acos(), hardest.acos()
    return (far.sin().detach() * (near - far + 0.15 * math.pi).relu()).mean()


@pytest.mark.parametrize("batch", [*RANDOM_BATCHES, random_batch(7, pairs=12, dim=8, noise=1.5)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_three_components_of_one_loss_give_its_gradient(name: str, batch: Batch) -> None:
    _, *actual = value_and_gradient(build_objective("mixed", **alone(name)), batch)
    _, *expected = value_and_gradient(lambda u, v: scaled(name, u, v), batch)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)
    assert any(gradient.any() for gradient in actual)


MIXTURES = list(product(("infonce", "mpt", "met"), ("infonce", "met"), ("infonce", "arccon", "mat")))


@pytest.mark.parametrize("names", MIXTURES, ids=str)
def test_each_component_is_that_of_the_loss_it_is_of(names: tuple[str, str, str]) -> None:
    batch = random_batch(5, noise=1.0)
    seen = probe(build_objective("mixed", **dict(zip(alone(""), names, strict=True))), batch.anchors, batch.positives)
    dissipation, weight, ratio = (
        probe(build_objective("mixed", **alone(name)), batch.anchors, batch.positives) for name in names
    )
    torch.testing.assert_close(seen.dissipation, dissipation.dissipation)
    acts = (seen.dissipation > 0) & (weight.dissipation > 0) & (ratio.dissipation > 0)
    assert acts.any()
    torch.testing.assert_close(seen.weights[acts], weight.weights[acts])
    torch.testing.assert_close(seen.ratio[acts], ratio.ratio[acts])


@pytest.mark.parametrize("name", ["infonce", "mpt", "met"])
def test_the_probe_finds_the_same_dissipation_as_in_the_loss_itself(name: str) -> None:
    batch = random_batch(5, noise=1.0)
    ours = probe(build_objective("mixed", **alone(name)), batch.anchors, batch.positives)
    theirs = probe(build_objective(name), batch.anchors, batch.positives)
    torch.testing.assert_close(ours.dissipation, theirs.dissipation, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.ratio, theirs.ratio, rtol=1e-6, atol=1e-9, equal_nan=True)

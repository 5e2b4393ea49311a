"""What the page tells of an objective equals the library's own functions and finite differences."""

import numpy as np
import pytest
import torch

from multitask.base.choices import parameters
from multitask.base.random_streams import generator
from multitask.evaluation.gradient_probe import probe, probe_checkpoint
from multitask.objectives import OBJECTIVES, build_objective, unit
from multitask.service.explain import (
    contrast,
    dropout_views,
    fields_of,
    objective_of,
    step,
    without_labels,
)

SENTENCES = ("Two dogs run.", "A band plays.", "The film is long and dull.", "He eats.", "The market fell.")


@pytest.fixture(scope="module")
def views(encoder):
    return dropout_views(encoder, SENTENCES, 0.1, seed=0)


def test_views_are_those_of_the_probe(encoder):
    """The same masks as `probe_checkpoint`, which draws them for a batch in an order of its own."""
    objective = build_objective("infonce")
    (expected,) = probe_checkpoint(encoder, [SENTENCES], objective, batch_size=len(SENTENCES), batches=1, seed=3)
    order = generator(3, "probed sentences").permutation(len(SENTENCES))
    rate = encoder.model.config.hidden_dropout_prob
    found = probe(objective, *dropout_views(encoder, [SENTENCES[i] for i in order], rate, seed=3))
    torch.testing.assert_close(found.dissipation, expected.dissipation)
    torch.testing.assert_close(found.weights, expected.weights)


def test_the_encoder_stays_in_eval_mode_with_its_own_dropout(encoder):
    before = encoder.encode(SENTENCES)
    for view in dropout_views(encoder, SENTENCES, 0.0, seed=0):
        torch.testing.assert_close(view, torch.from_numpy(before))
    state, rates = torch.get_rng_state(), [m.p for m in encoder.model.modules() if isinstance(m, torch.nn.Dropout)]
    dropout_views(encoder, SENTENCES, 0.5, seed=0)
    assert not any(module.training for module in encoder.model.modules())
    assert [m.p for m in encoder.model.modules() if isinstance(m, torch.nn.Dropout)] == rates
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), before)


@pytest.mark.parametrize("name", without_labels())
def test_a_contrast_has_cosines_loss_and_the_probes_components(name, views):
    objective = build_objective(name)
    found = contrast(objective, *views, 0.1)
    cosines = torch.nn.functional.cosine_similarity(views[0][:, None].double(), views[1][None].double(), dim=-1)
    torch.testing.assert_close(found.before, cosines)
    assert (found.losses is None) == (name in ("gradient", "mixed", "vicreg", "barlow_twins"))
    if found.losses is not None:
        assert found.losses[0] == pytest.approx(objective(*views).item(), rel=1e-4, abs=1e-5)
    expected = probe(objective, *views)
    torch.testing.assert_close(found.components.dissipation, expected.dissipation)
    torch.testing.assert_close(found.components.weights, expected.weights, equal_nan=True)
    torch.testing.assert_close(found.components.ratio, expected.ratio, equal_nan=True)


def plain_vicreg(anchors, positives):
    spread = sum((view.T @ view / len(view)).square().sum() for view in (anchors, positives))
    return (anchors - positives).square().sum(-1).mean() + 30 / 2 * spread


@pytest.mark.parametrize("name", ["infonce", "mpt", "dcl", "align_uniform", "vicreg"])
def test_a_step_goes_down_the_slope_of_finite_differences(name, views):
    """All embeddings move along minus the gradient, by its size relative to the largest one.

    The value of `vicreg` has no meaning, so the slopes of its plain form are taken.
    """
    objective, length, small = build_objective(name, **({"margin": 1.5} if name == "mpt" else {})), 1e-4, 1e-6
    units = [unit(view.double()) for view in views]
    slopes = [torch.zeros_like(view) for view in units]
    for which, view in enumerate(units):
        for place in np.ndindex(*view.shape):
            losses = []
            for sign in (1, -1):
                moved = [each.clone() for each in units]
                moved[which][place] += sign * small
                losses.append(plain_vicreg(*map(unit, moved)) if name == "vicreg" else objective(*moved))
            slopes[which][place] = (losses[0] - losses[1]) / (2 * small)
    largest = max(float(slope.norm(dim=-1).max()) for slope in slopes)
    for after, before, slope in zip(step(objective, *views, length), units, slopes, strict=True):
        torch.testing.assert_close(after - before, -length * slope / largest, rtol=0, atol=1e-3 * length)


def test_without_a_gradient_nothing_moves(views):
    closed = build_objective("mpt", margin=0.0)
    apart = torch.eye(5, 8)
    after = step(closed, apart, apart, 0.5)
    torch.testing.assert_close(after[0], apart.double())
    torch.testing.assert_close(after[1], apart.double())


@pytest.mark.parametrize("name", without_labels())
def test_every_field_has_the_default_and_takes_its_bounds(name):
    declared = parameters(OBJECTIVES[name])
    fields = fields_of(OBJECTIVES[name])
    assert declared.keys() - {field["name"] for field in fields} <= {"hard_negative_weight"}
    assert objective_of(name, {field["name"]: field["default"] for field in fields}) == build_objective(name)
    for field in fields:
        values = field["choices"] or (field["high"] or 2, field["low"] + field["step"])
        for value in (*map(str, values), *([""] if field["optional"] else [])):
            objective_of(name, {field["name"]: value})

"""SMART's perturbation by finite differences, its ball, its penalty by scipy, and what it leaves as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multitask.training.regularisation import smart
from multitask.training.regularisation.smart import Smart, ascended
from tests.multitask.training.regularisation.toy import TASKS, Toy, symmetric_kl

CPU = torch.device("cpu")
RADIUS = 0.2


def build(toy: Toy, weight: float = 2.0, radius: float = RADIUS) -> Smart:
    return Smart(weight, radius, toy.words, TASKS, CPU)


def test_the_perturbation_is_a_step_of_ascent_by_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smart, "NOISE", 0.05)
    toy = Toy()
    build(toy)(toy.losses)
    words, *perturbed = toy.read
    start, end = (values - words for values in perturbed)
    plain = toy.outputs(words)

    def apart(perturbation: torch.Tensor) -> float:
        outputs = toy.outputs(words + perturbation)
        return sum(symmetric_kl(name, outputs[name], plain[name]) for name in TASKS)

    gradient = torch.zeros_like(start)
    for place in np.ndindex(*start.shape):
        step = torch.zeros_like(start)
        step[place] = 1e-5
        gradient[place] = (apart(start + step) - apart(start - step)) / 2e-5
    largest = gradient.abs().max(dim=1, keepdim=True).values
    expected = (start + RADIUS * gradient / largest).clip(-RADIUS, RADIUS)
    torch.testing.assert_close(end, expected, rtol=1e-5, atol=1e-6)
    assert apart(end) > 3 * apart(start)
    assert (end.abs() == RADIUS).any()


FLOATS = st.floats(-1e30, 1e30, width=64)


@given(arrays(np.float64, (3, 4), elements=FLOATS), arrays(np.float64, (3, 4), elements=FLOATS), st.floats(1e-9, 10))
def test_the_perturbation_stays_within_the_ball(start: np.ndarray, gradient: np.ndarray, radius: float) -> None:
    found = ascended(torch.from_numpy(start), torch.from_numpy(gradient), radius)
    assert (found.abs() <= radius).all()
    flat = ascended(torch.from_numpy(start), torch.zeros(3, 4, dtype=torch.float64), radius)
    np.testing.assert_array_equal(flat, np.clip(start, -radius, radius))


def test_the_penalty_is_the_divergence_of_outputs_with_the_same_dropout() -> None:
    toy = Toy(dropout=0.4)
    torch.manual_seed(8)
    found = build(toy, weight=2.0)(toy.losses)
    after = torch.get_rng_state()
    words, _, perturbed = toy.read
    torch.manual_seed(8)
    kept = toy.dropout(torch.ones_like(words))  # 0, or the factor of what is kept
    clean, moved = toy.outputs(words * kept), toy.outputs(perturbed * kept)
    torch.randn_like(words)
    assert torch.equal(after, torch.get_rng_state())  # so that the next step has other dropout
    for name, term in found.terms.items():
        penalty = symmetric_kl(name, moved[name], clean[name])
        assert penalty > 1e-4
        assert found.watched[f"{name} smart"].item() == pytest.approx(penalty, rel=1e-6)
        loss = TASKS[name].loss(clean[name], toy.labels[name]).item()
        assert term.item() == pytest.approx(loss + 2.0 * penalty, rel=1e-6)
        torch.testing.assert_close(found.outputs[name], clean[name])


def test_the_gradient_flows_through_both_outputs() -> None:
    """With the perturbation held fixed, as in the paper's objective."""
    toy = Toy()
    gradients = toy.gradients(build(toy)(toy.losses))
    words, _, perturbed = toy.read
    perturbation = perturbed - words

    def objective() -> float:
        read = toy.words(toy.ids)
        clean, moved = toy.outputs(read), toy.outputs(read + perturbation)
        terms = (TASKS[name].loss(values, toy.labels[name]).item() for name, values in clean.items())
        return sum(terms) + 2.0 * sum(symmetric_kl(name, moved[name], clean[name]) for name in TASKS)

    parameters = [*toy.words.parameters(), *toy.heads.parameters()]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        place = np.unravel_index(int(gradient.abs().argmax()), gradient.shape)
        with torch.no_grad():
            parameter[place] += 1e-5
            above = objective()
            parameter[place] -= 2e-5
            below = objective()
            parameter[place] += 1e-5
        assert gradient[place].item() == pytest.approx((above - below) / 2e-5, rel=1e-5)


def test_zero_weight_gives_the_same_bits_as_none() -> None:
    toy = Toy(dropout=0.4)
    torch.manual_seed(8)
    plain = toy.losses()
    torch.manual_seed(8)
    found = build(toy, weight=0.0)(toy.losses)
    assert all(torch.equal(found.terms[name], term) for name, term in plain.terms.items())
    assert all(map(torch.equal, toy.gradients(found), toy.gradients(plain)))
    assert not toy.words._forward_hooks

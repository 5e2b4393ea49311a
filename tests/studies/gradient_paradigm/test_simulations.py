"""Simulations against slow loops over the same draws; what is drawn; that a seed decides everything."""

import math

import numpy as np
import pytest

from multitask.objectives import mixed_components as closed_forms
from multitask.objectives.mixed_components import RATIOS, WEIGHTS
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import NAMES, RATIO_MAPS, TEMPERATURES, Simulations
from studies.gradient_paradigm.simulations import DISSIPATIONS, run_simulations, standard_normals

SMALL = SimulationConfig(grid=10, batches=20, batch_size=9, trials=1)


@pytest.fixture(scope="module")
def simulations() -> Simulations:
    return run_simulations(SMALL)


@pytest.fixture(scope="module")
def angles() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means of positives and negatives, and the angles around mean 0."""
    positive, negative = (x.double().numpy() for x in standard_normals(SMALL))
    means = np.linspace(0.05 * np.pi, 0.5 * np.pi, 10), np.linspace(0.05 * np.pi, np.pi, 10)
    return *means, 0.05 * positive, 0.10 * negative


def slow_dissipation(name: str, positive: float, negatives: np.ndarray) -> float:
    if name in ("infonce", "arccon"):
        moved = positive + (math.radians(10) if name == "arccon" else 0)
        terms = [math.exp(math.cos(angle) / 0.05) for angle in negatives]
        return 1 - math.exp(math.cos(moved) / 0.05) / (math.exp(math.cos(moved) / 0.05) + sum(terms))
    if name == "mpt":
        return float(math.cos(positive) - max(math.cos(angle) for angle in negatives) < 0.23)
    distances = [math.sqrt(2 - 2 * math.cos(angle)) for angle in negatives]
    return float(min(distances) - math.sqrt(2 - 2 * math.cos(positive)) < 0.45)


@pytest.mark.parametrize("name", ["infonce", "arccon", "mpt", "met"])
def test_dissipation_is_the_mean_over_batches(simulations, angles, name):
    positive_means, negative_means, positive, negative = angles
    expected = [
        [
            np.mean([slow_dissipation(name, p + x, n + row) for x, row in zip(positive, negative, strict=True)])
            for n in negative_means
        ]
        for p in positive_means
    ]
    np.testing.assert_allclose(simulations.dissipation[name], expected, atol=2e-5)


def test_weights_are_those_of_a_softmax_over_all_batches(simulations, angles):
    _, negative_means, positive, negative = angles
    for k, temperature in enumerate(TEMPERATURES):
        for column, mean in enumerate(negative_means):
            logits = np.cos(mean + negative) / temperature
            terms = np.exp(logits - logits.max(1, keepdims=True))
            weights = terms.max(1) / terms.sum(1)
            own = np.exp(np.cos(0.5 + positive) / temperature - logits.max(1))
            kept = terms.sum(1) / (terms.sum(1) + own) >= 0.01
            np.testing.assert_allclose(simulations.weights[k, column], weights.mean(), rtol=1e-4)
            np.testing.assert_allclose(simulations.kept[k, column], kept.mean(), atol=1e-6)


def test_ratio_maps_are_the_closed_forms_at_the_means(simulations, angles):
    positive_means, negative_means, _, _ = angles
    for row, positive in enumerate(positive_means):
        for column, negative in enumerate(negative_means):
            arccon = math.sin(positive + math.radians(10)) / math.sin(positive)
            met = math.sqrt((1 - math.cos(negative)) / (1 - math.cos(positive)))
            assert simulations.ratio["arccon"][row, column] == pytest.approx(arccon, rel=1e-5)
            assert simulations.ratio["met"][row, column] == pytest.approx(met, rel=1e-5)
            for name in ("arccon", "met"):
                remaining = slow_dissipation(name, positive, np.full(SMALL.batch_size - 1, negative))
                assert simulations.ratio_dissipated[name][row, column] == (remaining < 0.01)


def test_what_is_said_without_torch_is_so():
    assert list(NAMES) == list(DISSIPATIONS)
    assert set(RATIO_MAPS) < set(RATIOS) == set(WEIGHTS) == set(closed_forms.DISSIPATIONS)

"""Lemma 1's bounds against distances, and what the study takes of the closed forms."""

import numpy as np
import torch

from multitask.objectives import closed_forms
from multitask.objectives.closed_forms import RATIOS, WEIGHTS
from studies.gradient_paradigm.paradigm import DISSIPATIONS, PARADIGM, lemma_1_bounds
from studies.gradient_paradigm.simulation_outcomes import NAMES, RATIO_MAPS, TEMPERATURE


def test_lemma_1_bounds_are_where_the_distance_in_the_tangent_plane_shrinks():
    random = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        alpha, beta, phi = random.uniform(0.05, 3.0, 3)
        step, ratio = 10 ** random.uniform(-2, 0), random.uniform(0, 4)
        positive = np.array([np.sin(alpha), 0])
        negative = np.sin(beta) * np.array([np.cos(phi), np.sin(phi)])
        moved = step * (ratio * positive - negative)
        closer = np.linalg.norm(moved - positive) < np.linalg.norm(positive)
        low, high = lemma_1_bounds(torch.tensor(alpha), torch.tensor(beta), torch.tensor(np.cos(phi)), step)
        assert closer == bool((low < ratio) & (ratio < high))
        inside.append(closer)
    assert 50 < sum(inside) < 250


def test_what_is_said_without_torch_is_so():
    assert list(NAMES) == list(DISSIPATIONS)
    assert set(RATIO_MAPS) < set(RATIOS) == set(WEIGHTS) == set(closed_forms.DISSIPATIONS)
    assert PARADIGM.weight == TEMPERATURE

"""The statements that are labelled theorems hold for whatever hypothesis draws; results do not vote on them."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from multitask.objectives import unit
from multitask.objectives.base import Pairs
from multitask.objectives.closed_forms import INFONCE, RATIOS, Negatives
from studies.gradient_paradigm.conjectures import ENSURED_GAPS, SLOPES, lemma_1_bounds
from studies.gradient_paradigm.study import STUDY, numbers_of
from studies.report.claims import judge, read_claims
from tests.studies.gradient_paradigm.published import all_estimates

SEEDS = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@given(SEEDS, st.integers(2, 200), st.floats(0.003, 1), st.floats(1.01, 10))
def lower_temperature(seed: int, negatives: int, temperature: float, factor: float) -> None:
    """The derivative of log(1 / weight) = log Σ_j e^{(s_j − s_max)/τ} in 1/τ is a mean of s_j − s_max, at most 0."""
    cosines = Negatives.of_cosines(unit(normal(seed, negatives)))
    low, high = cosines.hardest_weight(temperature), cosines.hardest_weight(factor * temperature)
    assert low > high or 1 - high < 1e-12  # fp64 cannot tell weights so near to 1 from each other


@given(st.floats(0.001, math.pi), st.floats(0.001, math.pi))
def ratio_of_met(first: float, second: float) -> None:
    """d_hardest / d_positive, and distances on the sphere rise with angles."""
    assume(abs(first - second) > 1e-6)
    positive, negative = sorted((first, second))
    angles = torch.tensor([positive, negative], dtype=torch.float64)
    assert RATIOS["met"](angles[0], angles[1]) > 1


@given(SEEDS, st.integers(2, 64), st.floats(0.001, 3), st.floats(0.0, 1.0, exclude_min=True, exclude_max=True))
def lemma_1(seed: int, dim: int, step: float, place: float) -> None:
    """In the tangent plane the step d gains d·v > |d|²/2. The sphere needs cos α (√(1 + |d|²) − 1), which is less."""
    u, v, w = unit(normal(seed, 3, dim))
    alpha, beta = (u @ v).clamp(-1, 1).acos(), (u @ w).clamp(-1, 1).acos()
    assume(min(alpha.sin(), beta.sin()) > 1e-3)
    flat_v, flat_w = v - (u @ v) * u, w - (u @ w) * u
    low, high = lemma_1_bounds(alpha, beta, unit(flat_v) @ unit(flat_w), step)
    assume(not torch.isnan(low) and high - low > 1e-6)
    ratio = low + place * (high - low)
    moved = unit(u + step * (ratio * flat_v - flat_w))
    assert (moved - v).norm() < (u - v).norm() + 1e-12


@given(SEEDS, st.integers(2, 40), st.integers(2, 40), st.floats(0, 3), st.sampled_from(list(SLOPES)))
def bound_with_constants(seed: int, pairs: int, dim: int, spread: float, objective) -> None:
    """InfoNCE is the mean of log(1 + Σ_j e^{(s_ij − s_ii)/τ}), and each s_ij − s_ii is at most c · (loss of i) − k."""
    u = normal(seed, pairs, dim)
    batch = Pairs(unit(u), unit(u + spread * normal(seed + 1, pairs, dim)))
    constant = math.log1p((pairs - 1) * math.exp(-ENSURED_GAPS[objective] / INFONCE.temperature))
    bound = SLOPES[objective] / INFONCE.temperature * objective.loss(batch) + constant
    assert INFONCE.loss(batch) <= bound + 1e-9


CHECKS: dict[str, Callable[[], None]] = {
    "lower-temperature": lower_temperature,
    "ratio-met": ratio_of_met,
    "lemma": lemma_1,
    "bound-with-constants": bound_with_constants,
}
THEOREMS = [claim for claim in read_claims(STUDY.folder / "claims.toml") if claim.kind == "theorem"]


@pytest.mark.parametrize("key", [claim.key for claim in THEOREMS])
def test_a_theorem_holds(key: str) -> None:
    CHECKS[key]()


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_results_do_not_vote_on_a_theorem(rate: float) -> None:
    found = judge(THEOREMS, {}, numbers_of(None, all_estimates(rate)))
    assert set(found.status) == {"theorem"}
    assert sum(f"{rate:.1%}" in evidence for evidence in found.evidence) == 2

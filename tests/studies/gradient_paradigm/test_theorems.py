"""The statements that are labelled theorems hold for whatever hypothesis draws; results do not vote on them."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from multitask.objectives import unit
from multitask.objectives.mixed_components import RATIOS, Negatives
from studies.gradient_paradigm.study import STUDY

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 200), st.floats(0.003, 1), st.floats(1.01, 10))
def lower_temperature(seed: int, negatives: int, temperature: float, factor: float) -> None:
    """The derivative of log(1 / weight) = log Σ_j e^{(s_j − s_max)/τ} in 1/τ is a mean of s_j − s_max, at most 0."""
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal(negatives))
    cosines = Negatives.of_cosines(unit(drawn))
    low, high = cosines.hardest_weight(temperature), cosines.hardest_weight(factor * temperature)
    assert low > high or 1 - high < 1e-12  # fp64 cannot tell weights so near to 1 from each other


@given(st.floats(0.001, math.pi), st.floats(0.001, math.pi))
def ratio_of_met(first: float, second: float) -> None:
    """d_hardest / d_positive, and distances on the sphere rise with angles."""
    assume(abs(first - second) > 1e-6)
    positive, negative = sorted((first, second))
    angles = torch.tensor([positive, negative], dtype=torch.float64)
    assert RATIOS["met"](angles[0], angles[1]) > 1


CHECKS: dict[str, Callable[[], None]] = {"lower-temperature": lower_temperature, "ratio-met": ratio_of_met}


@pytest.mark.parametrize("key", [claim.key for claim in STUDY.claims if claim.kind == "theorem"])
def test_a_theorem_holds(key: str) -> None:
    CHECKS[key]()

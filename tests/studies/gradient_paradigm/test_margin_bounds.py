"""Random batches have the distribution that is said, and losses above InfoNCE are counted as slow loops do."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import beta, binom

from multitask.evaluation.statistics import LEVEL
from studies.gradient_paradigm import margin_bounds
from studies.gradient_paradigm.margin_bounds import count_batches, draw
from studies.gradient_paradigm.simulation_outcomes import Rate


def test_embeddings_are_unit_vectors_around_a_common_direction() -> None:
    u, v = (of.double() for of in draw(0, 32, 64, 0, 500))
    for of in (u, v):
        torch.testing.assert_close(of.norm(dim=-1), torch.ones(of.shape[:2]).double(), atol=1e-5, rtol=0)
    between = ((u @ u.mT).sum((1, 2)) - 32) / (32 * 31)  # [batches], around ρ
    angles = (u * v).sum(-1).clamp(-1, 1).acos()
    means = angles.mean(1)  # [batches], around μ
    for found, low, high in ((between, 0.0, 0.95), (means, math.pi / 20, math.pi / 2)):
        assert found.min() > low - 0.05
        assert found.max() < high + 0.05
        assert abs(found.mean() - (low + high) / 2) < 4 * (high - low) / math.sqrt(12 * 500)
        assert found.std().item() == pytest.approx((high - low) / math.sqrt(12), rel=0.1)
    assert (angles - means[:, None]).std().item() == pytest.approx(0.05, rel=0.05)
    assert not torch.equal(u.float(), draw(1, 32, 64, 0, 500)[0])


def test_losses_above_infonce_are_counted_as_slow_loops_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margin_bounds, "PAIRS", (8, 32))
    monkeypatch.setattr(margin_bounds, "DIMENSIONS", (8,))
    monkeypatch.setattr(margin_bounds, "CHUNK", 80 * 8 * 8)  # so that one size takes two chunks
    above = dict.fromkeys(("mpt", "met", "mat"), 0)
    for pairs, parts in ((8, ((0, 80, 80), (1, 80, 20))), (32, tuple((n, 20, 20) for n in range(5)))):
        for chunk, size, used in parts:
            for u, v in zip(*(of[:used].double().numpy() for of in draw(0, pairs, 8, chunk, size)), strict=True):
                cosines = np.clip(u @ v.T, -1, 1)
                own, others = cosines.diagonal(), cosines[~np.eye(pairs, dtype=bool)].reshape(pairs, -1).max(1)
                contrastive = np.mean(logsumexp(cosines / 0.05, axis=1) - own / 0.05)
                distance, angle = (lambda s: np.sqrt(2 - 2 * s)), np.arccos
                losses = {
                    "mpt": np.mean(np.maximum(0, others - own + 0.23)),
                    "met": np.mean(np.maximum(0, distance(own) - distance(others) + 0.45)),
                    "mat": np.mean(np.maximum(0, angle(own) - angle(others) + 0.15 * np.pi)),
                }
                for name, loss in losses.items():
                    above[name] += loss >= 0.05 * contrastive
    for name, (holds, trials) in count_batches(0, 100).items():
        assert trials == 200
        assert abs(holds - above[name]) <= 1  # a tie may round either way
    assert 0 < above["mpt"] < 200


@pytest.mark.parametrize("trials", [1, 2, 10, 999])
def test_bounds_are_clopper_and_pearsons(trials: int) -> None:
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        expected = (
            beta.ppf(0.025, successes, trials - successes + 1) if successes else 0,
            beta.ppf(0.975, successes + 1, trials - successes) if successes < trials else 1,
        )
        np.testing.assert_allclose(Rate(successes, trials).interval(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("trials", "bound"), [(100, 0.95), (37, 0.5)])
def test_power_of_a_rate_is_binomial(trials: int, bound: float) -> None:
    least = Rate(0, trials).detectable(bound)
    successes = np.arange(1, trials + 1)
    needed = successes[beta.ppf(LEVEL / 2, successes, trials - successes + 1) > bound][0]  # Clopper and Pearson's bound
    assert binom.sf(needed - 1, trials, least) == pytest.approx(0.8, abs=1e-6)

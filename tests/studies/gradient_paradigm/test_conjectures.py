"""Configurations have the distribution that is said; statements against slow loops; bounds against scipy."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import binomtest

from studies.gradient_paradigm import conjectures as about
from studies.gradient_paradigm import simulation_outcomes as outcomes
from studies.gradient_paradigm.conjectures import Anchor, check_conjectures, lemma_1_bounds, trained_gaps
from studies.gradient_paradigm.random_configurations import Configurations, Tally, configuration, size_of_chunk
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import Estimate, clopper_pearson, rate_of

SMALL = SimulationConfig(trials=30, training_trials=10, training_steps=3)


@pytest.fixture(scope="module")
def estimates() -> list[Estimate]:
    return check_conjectures(SMALL)


@pytest.fixture(scope="module")
def drawn() -> Configurations:
    return Configurations.draw(0, 32, 64, 0)


# The space.


def test_embeddings_are_unit_vectors_with_the_drawn_mean_similarity_and_angle(drawn):
    u, v = drawn.u.double(), drawn.v.double()
    torch.testing.assert_close(u.norm(dim=-1), torch.ones(u.shape[:2]).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(v.norm(dim=-1), torch.ones(u.shape[:2]).double(), atol=1e-5, rtol=0)
    cosines = u @ u.mT
    between = (cosines.sum((1, 2)) - 32) / (32 * 31)
    assert (between - drawn.similarity).abs().max() < 0.05  # 496 pairs, in 63 dimensions off the common one
    angles = (u * v).sum(-1).clamp(-1, 1).acos()
    assert (angles.mean(1) - drawn.angle).abs().max() < 5 * 0.05 / math.sqrt(32)
    assert (angles - drawn.angle[:, None]).std().item() == pytest.approx(0.05, rel=0.05)


def test_a_seed_and_a_number_decide_a_configuration():
    size = size_of_chunk(128, 768)
    one = configuration(0, 128, 768, size + 3)
    torch.testing.assert_close(one.u[0], Configurations.draw(0, 128, 768, 1).u[3], atol=0, rtol=0)
    assert not torch.equal(one.u, configuration(1, 128, 768, size + 3).u)
    assert not torch.equal(one.u, configuration(0, 128, 768, size + 4).u)


# Bounds.


@pytest.mark.parametrize("trials", [1, 2, 10, 999])
def test_bounds_are_clopper_and_pearsons(trials):
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        expected = binomtest(successes, trials).proportion_ci(0.95, "exact")
        np.testing.assert_allclose(clopper_pearson(successes, trials), expected, rtol=1e-9, atol=1e-12)


def test_sizes_are_pooled():
    parts = [Estimate("s", "c", 8, 8, 1, 2), Estimate("s", "c", 8, 64, 3, 4), Estimate("s", "c", 32, 8, 5, 6)]
    others = [Estimate("s", "d", 8, 8, 7, 7), Estimate("t", "c", 8, 8, 7, 7)]
    pooled, eight = rate_of(parts + others, "s", "c"), rate_of(parts + others, "s", "c", pairs=8)
    assert (pooled.holds, pooled.trials) == (9, 12)
    assert (eight.holds, eight.trials) == (4, 6)


def test_a_tally_counts_where_a_statement_applies_and_keeps_two_counter_examples():
    tally = Tally(0, 8, 8, 1500)
    for part in tally:
        number = torch.arange(len(part.u))
        tally.count("s", "c", number % 3 != 0, number % 2 == 0, {"number": number})
    (estimate,) = tally.estimates()
    assert (estimate.holds, estimate.trials) == (333 + 166, 500 + 250)
    assert [example["trial"] for example in estimate.counter_examples] == [0, 6]
    assert [example["number"] for example in estimate.counter_examples] == [0, 6]


# Conjecture 1.


@pytest.mark.parametrize("loss", [None, "infonce", "mpt"])
def test_training_is_the_update_of_the_paradigm(loss):
    batch = Configurations.draw(0, 8, 8, 0).first(3)
    steps = torch.tensor([0.1, 0.5, 1.0])
    gaps = trained_gaps(batch, steps, 2, loss)
    for trial in range(3):
        u, v = batch.u[trial].double().numpy(), batch.v[trial].double().numpy()
        for step in range(3):
            angles = np.arccos(np.clip(u @ v.T, -1, 1))
            gap = angles[~np.eye(8, dtype=bool)].mean() - angles.diagonal().mean()
            assert gaps[step, trial].item() == pytest.approx(gap, abs=1e-4)
            u, v = slow_update(u, v, float(steps[trial]), loss), slow_update(v, u, float(steps[trial]), loss)


def slow_update(x: np.ndarray, y: np.ndarray, step: float, loss: str | None) -> np.ndarray:
    moved = []
    for i in range(len(x)):
        others = [j for j in range(len(y)) if j != i]
        cosines = np.array([x[i] @ y[j] for j in others])
        weights = np.exp(cosines / 0.05) / np.exp(cosines / 0.05).sum()
        gradient = sum(w * y[j] for w, j in zip(weights, others, strict=True)) - y[i]
        if loss == "infonce":
            own = np.exp(x[i] @ y[i] / 0.05)
            gradient = gradient * (1 - own / (own + np.exp(cosines / 0.05).sum()))
        elif loss == "mpt":
            gradient = gradient * (x[i] @ y[i] - cosines.max() < 0.23)
        new = x[i] - step * (gradient - gradient @ x[i] * x[i])
        moved.append(new / np.linalg.norm(new))
    return np.array(moved)


# Conjectures 2 and 3.


@pytest.fixture(scope="module")
def anchor(drawn) -> Anchor:
    return Anchor(drawn)


def test_gradient_parts_are_projections_on_the_gradient(drawn, anchor):
    tally = Tally(0, 32, 64, len(drawn.u))
    for part in tally:
        about.weight(Anchor(part), tally)
    u, negatives = drawn.u[:, 0].double().numpy(), drawn.v[:, 1:].double().numpy()
    for temperature in (0.05, 0.01):
        counts = {outcomes.MAJORITY: 0, outcomes.LARGEST: 0}
        for trial in np.flatnonzero(anchor.trained.numpy()):
            cosines = negatives[trial] @ u[trial]
            weights = np.exp(cosines / temperature) / np.exp(cosines / temperature).sum()
            vectors = weights[:, None] * (negatives[trial] - cosines[:, None] * u[trial])
            total = vectors.sum(0)
            parts = vectors @ total / np.linalg.norm(total) / np.linalg.norm(total)
            assert parts.sum() == pytest.approx(1)
            counts[outcomes.MAJORITY] += parts[cosines.argmax()] > 0.5
            counts[outcomes.LARGEST] += parts[cosines.argmax()] == parts.max()
        for statement, count in counts.items():
            estimate = rate_of(tally.estimates(), statement, f"{temperature:g}")
            assert abs(estimate.holds - count) <= 1  # a tie may round either way
            assert estimate.trials == int(anchor.trained.sum())


@pytest.mark.parametrize("step", [0.01, 0.3, 1.0])
def test_closer_is_what_the_step_on_the_sphere_says(drawn, anchor, step):
    ratio = torch.linspace(0, 3, len(drawn.u))
    closer = anchor.comes_closer(anchor.weights(0.05), ratio, step)
    u, v = drawn.u[:, 0].double().numpy(), drawn.v.double().numpy()
    seen = []
    for trial in range(len(u)):
        cosines = v[trial] @ u[trial]
        weights = np.exp(cosines[1:] / 0.05) / np.exp(cosines[1:] / 0.05).sum()
        direction = float(ratio[trial]) * v[trial, 0] - weights @ v[trial, 1:]
        moved = u[trial] + step * (direction - direction @ u[trial] * u[trial])
        rise = moved @ v[trial, 0] / np.linalg.norm(moved) - cosines[0]
        if abs(rise) > 1e-6:
            assert bool(closer[trial]) == (rise > 0)
        seen.append(rise > 0)
    assert 0 < sum(seen) < len(seen)


def test_lemma_1_suffices_on_the_sphere(estimates):
    rates = [e for e in estimates if e.statement == outcomes.SUFFICIENT]
    assert sum(rate.trials for rate in rates) > 1000
    assert all(rate.holds == rate.trials for rate in rates)


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


# Losses with a margin.


@pytest.mark.parametrize("pairs, dim", [(8, 8), (32, 64)])
def test_bounds_are_counted_as_slow_loops_do(pairs, dim):
    tally = Tally(0, pairs, dim, 200)
    above = dict.fromkeys(("mpt", "met", "mat"), 0)
    ensured = {"mpt": 0.23, "met": 0.45**2 / 2, "mat": 1 - np.cos(0.15 * np.pi)}
    for part in tally:
        about.bounds(part, tally)
        for u, v in zip(part.u.double().numpy(), part.v.double().numpy(), strict=True):
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
                constant = np.log(1 + (pairs - 1) * np.exp(-ensured[name] / 0.05))
                assert contrastive <= (2 if name == "met" else 1) / 0.05 * loss + constant
    for name, count in above.items():
        assert abs(rate_of(tally.estimates(), outcomes.BOUND, name).holds - count) <= 1  # a tie may round either way
        assert rate_of(tally.estimates(), outcomes.BOUND_WITH_CONSTANTS, name).rate == 1
    assert 0 < above["mpt"] < 200


def test_a_loss_of_zero_ensures_its_gap_and_no_more():
    positive, negative = np.meshgrid(*2 * [np.linspace(0, np.pi, 2000)])
    gap = np.cos(positive) - np.cos(negative)
    zero = {
        about.MPT: gap >= 0.23,
        about.MET: 2 * np.sin(negative / 2) - 2 * np.sin(positive / 2) >= 0.45,
        about.MAT: negative - positive >= 0.15 * np.pi,
    }
    for objective, where in zero.items():
        assert gap[where].min() == pytest.approx(about.ENSURED_GAPS[objective], abs=2e-3)
        assert gap[where].min() >= about.ENSURED_GAPS[objective]


# All of it.


def test_every_statement_is_estimated_for_every_size(estimates):
    sizes = {(e.statement, e.pairs, e.dim) for e in estimates}
    assert len(sizes) == 2 * 4 + 8 * 9
    assert all(0 <= e.holds <= e.trials for e in estimates)


def test_counter_examples_are_found_again_from_their_numbers(estimates):
    found = [
        (e, example)
        for e in estimates
        if e.statement == outcomes.CLOSER and e.case == about.case_of("1", 1.0)
        for example in e.counter_examples
    ]
    assert found
    for estimate, example in found:
        one = configuration(SMALL.seed, estimate.pairs, estimate.dim, int(example["trial"]))
        assert one.describe(0) == {"similarity": example["similarity"], "angle": example["angle"]}
        anchor = Anchor(one)
        assert anchor.trained.all()
        assert anchor.positive.acos().item() == pytest.approx(example["positive"], rel=1e-4)
        assert not anchor.comes_closer(anchor.weights(0.05), torch.ones(1), 1.0).any()

"""Simulations against slow loops over the same draws, and the stage and command that keep and draw them."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import beta, binom

from multitask.base.options import RunOptions
from multitask.cli.main import main
from multitask.evaluation.statistics import LEVEL
from multitask.objectives import closed_form_components as closed_forms
from multitask.objectives.closed_form_components import RATIOS, WEIGHTS
from studies.gradient_paradigm import simulations as module
from studies.gradient_paradigm.simulation_figures import write_figures
from studies.gradient_paradigm.simulation_outcomes import RATIO_MAPS, SIMULATED, TEMPERATURES, Rate, Simulations
from studies.gradient_paradigm.simulations import (
    DISSIPATION_TERMS,
    count_batches,
    draw,
    run_simulations,
    simulate,
    standard_normals,
)
from studies.gradient_paradigm.stages import SimulationConfig

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
    assert list(SIMULATED) == list(DISSIPATION_TERMS)
    assert set(RATIO_MAPS) < set(RATIOS) == set(WEIGHTS) == set(closed_forms.DISSIPATIONS)


# The stage and its command: computed once, the same bits, claims printed, figures that are files of their own.


SMALLEST = SimulationConfig(grid=10, batches=20, batch_size=16, trials=20)
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in vars(SMALLEST).items()]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    simulate(SMALLEST, RunOptions(runs=folder))
    return folder


def test_another_folder_gets_the_same_bits(runs, tmp_path):
    first, second = (simulate(SMALLEST, RunOptions(runs=folder)).folder for folder in (runs, tmp_path))
    assert first.name == second.name
    ours, theirs = Simulations.load(first), Simulations.load(second)
    np.testing.assert_equal(ours.above_infonce, theirs.above_infonce)
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    for name, values in ours.dissipation.items():
        np.testing.assert_array_equal(values, theirs.dissipation[name])


@pytest.mark.slow
def test_the_command_prints_claims_and_draws_the_same_figures_every_time(runs, capsys):
    assert main(["simulate", "--runs", str(runs), *OPTIONS]) == 0
    lines = capsys.readouterr().out.splitlines()
    statuses = [line.partition(":")[0] for line in lines if not line.startswith("  ")][:-4]
    assert set(statuses) <= {"SHOWN", "EQUIVALENT OR OPPOSITE", "OPEN", "NOT TESTED HERE", "THEOREM"}
    assert len(statuses) == 7
    folder = Path(lines[-1])
    assert folder.parent == runs
    for path in map(Path, lines[-4:-1]):
        assert path.parent == folder
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == f"{SVG}svg"
        assert root.get("aria-label") == root.find(f"{SVG}title").text
        assert "currentColor" in path.read_text(encoding="utf-8")
        assert not re.search(r"\bnan\b|\binf\b|#010203", path.read_text(encoding="utf-8"))
    drawn = {path: path.read_bytes() for path in map(Path, lines[-4:-1])}
    assert {path: path.read_bytes() for path in write_figures(folder)} == drawn


def test_a_mean_of_one_batch_has_no_error_and_is_refused(tmp_path, capsys):
    assert main(["simulate", "--runs", str(tmp_path), "--batches", "1"]) == 2
    assert "--batches" in capsys.readouterr().err


# Random batches have the distribution that is said, and losses above InfoNCE are counted as slow loops do.


def test_embeddings_are_unit_vectors_around_a_common_direction():
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


def test_losses_above_infonce_are_counted_as_slow_loops_do(monkeypatch):
    monkeypatch.setattr(module, "PAIRS", (8, 32))
    monkeypatch.setattr(module, "DIMENSIONS", (8,))
    monkeypatch.setattr(module, "COORDINATES_PER_CHUNK", 80 * 8 * 8)  # so that one size takes two chunks
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
def test_bounds_are_clopper_and_pearsons(trials):
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        expected = (
            beta.ppf(0.025, successes, trials - successes + 1) if successes else 0,
            beta.ppf(0.975, successes + 1, trials - successes) if successes < trials else 1,
        )
        np.testing.assert_allclose(Rate(successes, trials).interval(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("trials", "bound"), [(100, 0.95), (37, 0.5)])
def test_power_of_a_rate_is_binomial(trials, bound):
    least = Rate(0, trials).detectable(bound)
    successes = np.arange(1, trials + 1)
    needed = successes[beta.ppf(LEVEL / 2, successes, trials - successes + 1) > bound][0]  # Clopper and Pearson's bound
    assert binom.sf(needed - 1, trials, least) == pytest.approx(0.8, abs=1e-6)

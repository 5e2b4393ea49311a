"""Verdicts follow from results: they turn when the results do."""

from dataclasses import replace

import numpy as np
import pytest

from studies.gradient_paradigm import simulation_outcomes as about
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_claims import (
    CONJECTURE_CLAIMS,
    CONJECTURE_DECISIONS,
    SIMULATION_CLAIMS,
    SIMULATION_DECISIONS,
    fall,
)
from studies.gradient_paradigm.simulation_outcomes import Simulations
from studies.gradient_paradigm.simulations import run_simulations
from studies.report.verdicts import judge
from tests.studies.gradient_paradigm.published import all_estimates


@pytest.fixture(scope="module")
def simulations() -> Simulations:
    return run_simulations(SimulationConfig(grid=20, batches=50))


def statuses(judged):
    return {one.verdict.status for one in judged}


def test_every_decision_is_that_of_a_claim():
    assert len(SIMULATION_CLAIMS) == len(SIMULATION_DECISIONS)
    assert len(CONJECTURE_CLAIMS) == len(CONJECTURE_DECISIONS)


def test_without_results_nothing_is_tested():
    judged = judge(SIMULATION_CLAIMS, None) + judge(CONJECTURE_CLAIMS, None)
    assert len(judged) == len(SIMULATION_CLAIMS) + len(CONJECTURE_CLAIMS)
    assert statuses(judged) == {"not tested here", "theorem"}


@pytest.mark.parametrize("rate, status", [(1.0, "reproduced"), (0.4, "not reproduced")])
def test_conjectures_are_decided_by_their_rates(rate, status):
    assert statuses(judge(CONJECTURE_CLAIMS, all_estimates(rate))) == {status, "theorem"}


def test_a_rate_just_above_the_demand_is_not_sure_enough():
    few = judge(CONJECTURE_CLAIMS, all_estimates(0.96, trials=25))
    many = judge(CONJECTURE_CLAIMS, all_estimates(0.96, trials=10_000))
    ensured = [k for k, claim in enumerate(CONJECTURE_CLAIMS) if "at least 95%" in claim.criterion]
    assert len(ensured) > 5
    assert {few[k].verdict.status for k in ensured} == {"undecided"}
    assert "could show with 80% power: InfoNCE, step " in few[ensured[0]].verdict.evidence
    assert {many[k].verdict.status for k in ensured} == {"reproduced"}


def test_without_any_configuration_nothing_is_tested():
    none = [replace(e, holds=0, trials=0) for e in all_estimates(1.0)]
    assert statuses(judge(CONJECTURE_CLAIMS, none)) == {"not tested here", "theorem"}


def test_without_a_deciding_configuration_a_conjecture_is_untested():
    none = [replace(e, holds=0, trials=0) if e.statement == about.MORE_OFTEN else e for e in all_estimates(1.0)]
    judged = judge(CONJECTURE_CLAIMS, none)
    more_often = [one for one in judged if one.claim.criterion.startswith("More frequently")]
    assert statuses(more_often) == {"not tested here"}
    assert statuses(one for one in judged if one not in more_often) == {"reproduced", "theorem"}


def test_one_bad_step_size_is_enough_against_a_claim():
    bad = about.case_of("mpt", 0.1)
    judged = judge(CONJECTURE_CLAIMS, [replace(e, holds=0) if e.case == bad else e for e in all_estimates(1.0)])
    wrong = [one for one in judged if one.verdict.status == "not reproduced"]
    assert len(wrong) == 1
    assert "Conjecture 1" in wrong[0].claim.text
    assert "MPT: 0.0%" in wrong[0].verdict.evidence


def test_one_loss_that_is_no_bound_is_enough_against_that_claim():
    estimates = [replace(e, holds=0) if (e.statement, e.case) == (about.BOUND, "mat") else e for e in all_estimates(1)]
    [wrong] = [one for one in judge(CONJECTURE_CLAIMS, estimates) if one.verdict.status == "not reproduced"]
    assert "upper bounds" in wrong.claim.text
    assert "MAT: 0.0%" in wrong.verdict.evidence


def test_a_loss_that_never_dissipates_is_told(simulations):
    ones = {name: np.ones_like(values) for name, values in simulations.dissipation.items()}
    before, after = (judge(SIMULATION_CLAIMS, s) for s in (simulations, replace(simulations, dissipation=ones)))
    assert [one.verdict.status for one in before[:2]] == ["reproduced"] * 2
    assert [one.verdict.status for one in after[:2]] == ["not reproduced"] * 2


def test_weights_and_ratios_decide_their_claims(simulations):
    heavy = replace(simulations, weights=np.ones_like(simulations.weights))
    flat = replace(simulations, ratio={name: np.ones_like(r) for name, r in simulations.ratio.items()})
    before, weighty, level = (judge(SIMULATION_CLAIMS, s) for s in (simulations, heavy, flat))
    assert [one.verdict.status for one in before[2:]] == ["theorem", "not reproduced", "reproduced", "theorem"]
    assert [one.verdict.status for one in weighty[2:4]] == ["theorem", "reproduced"]
    assert [one.verdict.status for one in level[4:]] == ["not reproduced", "theorem"]


def test_a_fall_is_found_between_columns(simulations):
    steps = np.radians([0, 10, 20, 30])
    line = replace(simulations, positive_means=np.radians([5.0, 0.0]), negative_means=steps)
    falls = fall(np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]), line, 0.25)
    assert np.degrees(falls[0]) == pytest.approx(17.5 - 5)
    assert np.isinf(falls[1])

"""When a training is best, by hand."""

from dataclasses import replace
from math import nan

import pytest

from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import OVERALL
from studies.multitask_report.claims import until_best

RUN = RunResult("figure2", "none", 0, "model", "evaluation")


def with_curve(curve):
    return replace(RUN, history=[{"step": 8, "numbers": {OVERALL: {"mean": score}}} for score in curve])


@pytest.mark.parametrize(("best", "share"), [(0, 0.1), (4, 0.5), (9, 1.0)])
def test_a_training_is_best_at_its_first_highest_evaluation(best, share):
    curve = [0.5] * best + [0.6] * (10 - best)
    assert until_best(with_curve(curve)) == share


@pytest.mark.parametrize("curve", [[0.5] * 9, [nan] * 10])
def test_few_evaluations_and_undefined_scores_do_not_tell_when_a_training_is_best(curve):
    assert until_best(with_curve(curve)) is None

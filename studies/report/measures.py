"""Measures of training that claims are about, and contrasts of such measures."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from multitask.evaluation.statistics import SAMPLES, SampledScores, Uncertain, contrast
from studies.report.run_results import Place, RunResult

Measure = Callable[[RunResult], float | None]
SCORE = "similarity"
LEAST_SEEDS = 3
"""Seeds that a measure of training needs: with two seeds the 95% interval is 13 times as wide as their difference."""


def measured(terms: Sequence[tuple[float, Mapping[int, float]]]) -> Uncertain | None:
    """Σ weight · mean of values by seed, uncertain by seeds alone. None if there are too few seeds."""
    if min(len(found) for _, found in terms) < LEAST_SEEDS:
        return None
    values = [(weight, list(found), np.array(list(found.values()))) for weight, found in terms]
    return contrast([(weight, SampledScores(seeds, of, np.tile(of, (SAMPLES, 1)))) for weight, seeds, of in values])


def last(statistics: str, place: Place = "training batches") -> Measure:
    """The sum of statistics at the end of training.

    None if the last evaluation lacks one, as it does when all anchors dissipated.
    """

    def measure(run: RunResult) -> float | None:
        seen = [run.probed(statistic, place) for statistic in statistics.split(" + ")]
        if all(of and of[-1][0] == run.history[-1]["step"] for of in seen):
            return sum(of[-1][1] for of in seen)
        return None

    return measure


def highest(statistic: str, place: Place = "training batches") -> Measure:
    """A statistic's highest value in training."""
    return lambda run: max((value for _, value in run.probed(statistic, place)), default=None)


def shrinks(statistic: str) -> Measure:
    """Logarithm of a statistic at the end of training relative to its beginning."""

    def measure(run: RunResult) -> float | None:
        seen = run.probed(statistic)
        if len(seen) < 2 or min(seen[0][1], seen[-1][1]) <= 0:
            return None
        return float(np.log(seen[-1][1] / seen[0][1]))

    return measure


def fall(run: RunResult) -> float | None:
    """The highest dev score less that at the end."""
    curve = run.curve(SCORE)
    return float(np.nanmax(curve) - curve[-1]) if len(curve) > 1 else None


def last_score(run: RunResult) -> float | None:
    """The dev score at the end."""
    return curve[-1] if (curve := run.curve(SCORE)) else None

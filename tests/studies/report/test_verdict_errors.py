"""How often a paper's verdicts are false: simulated, in the table of docs/reference/verdicts.md."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from scipy.stats import t as student

from multitask.evaluation.statistics import LEVEL, SampledScores, contrast
from studies.report.verdicts import Bound, Levels, Quantity, Verdict, levels, verdict
from tests.conftest import ROOT
from tests.studies.report.test_verdicts import Number

pytestmark = pytest.mark.slow

SEEDS, DEVIATION, MARGIN = 7, 0.008, 0.01
"""How a difference varies over seeds."""
EFFECTS = {"0": (0.0,), "+0.003": (0.003,), "+0.010": (0.01,), "+0.050, every second one 0": (0.05, 0.0)}
"""True differences of a paper's claims."""
VERDICTS: tuple[Verdict, ...] = ("shown", "shown, perhaps smaller than the margin", "equivalent or opposite", "open")


@cache
def quantile(level: float, degrees: int) -> float:
    return float(student.ppf(1 - level / 2, degrees))


def paired(differences: np.ndarray) -> Number:
    """The mean of differences, with the interval of the paired t test."""
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return Number(differences.mean(), lambda level: error * quantile(level, len(differences) - 1))


def false(said: Verdict, number: Quantity, at: Levels, true: float) -> bool:
    """Whether a verdict is wrong. That a claim fails is wrong from the margin on, or if an interval below 0 is."""
    if said == "shown":
        return true <= MARGIN
    if said == "shown, perhaps smaller than the margin":
        return true <= 0
    return said != "open" and true >= (0 if number.interval(at.refute)[1] < 0 else MARGIN)


def of_paper(numbers: Sequence[Quantity], true: Sequence[float]) -> tuple[list[Verdict], bool]:
    """The verdicts of a paper's claims, and whether one is false."""
    claims = [Bound("", number, margin=MARGIN) for number in numbers]
    at = levels(claims)
    found = [verdict(claim, at) for claim in claims]
    return found, any(false(said, number, at, of) for said, number, of in zip(found, numbers, true, strict=True))


def row(name: str, claims: int, papers: int) -> tuple[str, float]:
    """A line of the table, and the share of papers with a false verdict."""
    draws, wrong = np.random.default_rng(0), 0
    true = np.resize(EFFECTS[name], claims)
    counts = dict.fromkeys(VERDICTS, 0)
    for _ in range(papers):
        differences = true[:, None] + DEVIATION * draws.normal(size=(claims, SEEDS))
        found, any_false = of_paper([paired(of) for of in differences], list(true))
        wrong += any_false
        for said in found:
            counts[said] += 1
    shares = " | ".join(f"{counts[said] / papers / claims:.0%}" for said in VERDICTS)
    return f"| {name} | {claims} | {shares} | {wrong / papers:.3f} |", wrong / papers


@pytest.mark.parametrize("claims", [1, 39, 150])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_paper_has_a_false_verdict_at_most_once_in_twenty(name, claims):
    papers = 40_000 // claims if claims < 39 else 2000
    line, error = row(name, claims, papers)
    assert error < LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / papers)
    assert line in (ROOT / "docs" / "reference" / "verdicts.md").read_text(encoding="utf-8").splitlines()


def test_it_is_so_of_intervals_over_seeds_and_examples():
    """Ten thousand draws suffice for the tails of 39 claims."""
    draws, wrong, papers = np.random.default_rng(0), 0, 300
    zero = SampledScores(range(SEEDS), np.zeros(SEEDS), np.zeros((10_000, SEEDS)))
    for _ in range(papers):
        numbers = []
        for _ in range(39):
            dev = 0.003 * draws.normal(size=10_001)  # the first one is the dev set that was seen
            observed = dev[0] + DEVIATION * draws.normal(size=SEEDS)
            row = SampledScores(range(SEEDS), observed, observed + dev[1:, None])
            numbers.append(contrast([(1.0, row), (-1.0, zero)]))
        wrong += of_paper(numbers, [0.0] * 39)[1]
    assert wrong / papers < LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / papers)

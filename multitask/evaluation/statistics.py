"""How sure a score is: spread over seeds, bootstrap intervals, paired tests, and correction for multiple tests.

A dev score varies by chance for two reasons, and every interval and test here covers both.

Examples: another dev set of the same kind would give another score. We resample dev examples with replacement (Efron
and Tibshirani 1993, chapter 13; for systems on one test set Koehn 2004, Berg-Kirkpatrick et al. 2012). All models are
scored on the same resamples, so that a difference of two models is paired. The dev sets of the tasks are resampled
independently of each other.

Seeds: another seed would give another model. Resampling the seeds themselves underestimates this if there are few
(three seeds have ten distinct resamples, with two thirds of the variance). Instead, we shift a mean over seeds by
s/√seeds · t. Here s² is the variance over seeds, pooled over the rows of a table as in the analysis of variance (Fisher
1925), because a row's own three seeds say next to nothing about it, and t is drawn from Student's distribution with the
pooled degrees of freedom. For normal scores of equal spread, this alone is exact. Where the rows' variances differ
(Bartlett 1937, at the 5% level), the variances of the compared rows are used instead, as an approximation (Welch 1947).
Then rows that are averaged before they are compared are averaged within each seed. Together with the resampled
examples it is a generalised confidence interval (Weerahandi 1993). Differences of single examples between seeds are
part of both, so intervals tend to be too wide rather than too narrow. If no row has a second seed, the variance over
seeds is unknown; intervals then describe these models on other examples, not the methods.

A difference is tested by its interval: p is the lowest level at which the interval excludes zero. Dror et al. 2018
recommend two kinds of tests if the distribution is unknown, as for accuracy and correlation: permutations of the two
models' outputs, and the bootstrap. We use the bootstrap: it tests the difference of the scores themselves, not whether
outputs are exchangeable, and it can include seeds. (With three seeds, a permutation test has no p below 1/4.)

Imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bartlett

from multitask.runtime.random_streams import generator

Values = NDArray[np.float64]

SAMPLES = 10_000
LEVEL = 0.05
POWER = 0.8
"""The probability with which a test shows an effect that it "could have shown" (Cohen 1988)."""
SEED = 0
ROUNDING = 1e-12  # smaller differences between numbers of size 1 count as zero


@dataclass(frozen=True)
class Spread:
    """Variance over seeds, and its degrees of freedom. Both are 0 if no row has two seeds."""

    variance: float
    degrees: float

    @classmethod
    def pooled(cls, rows: Sequence[Values]) -> Self:
        """Estimate it from several rows' scores, [seeds] each, around each row's own mean."""
        degrees = sum(len(scores) - 1 for scores in rows)
        squares = sum(float(np.square(scores - scores.mean()).sum()) for scores in rows)
        return cls(squares / degrees if degrees else 0.0, degrees)

    @classmethod
    def welch(cls, terms: Sequence[tuple[float, Values]]) -> Self:
        """Estimate it for a contrast of rows that vary differently, from weights and scores, [seeds] each.

        Each side has its own variance, and the degrees of freedom are those of the sum (Satterthwaite 1946, Welch
        1947). If a row has less than two seeds, the variance is unknown and both are 0.
        """
        if min(len(scores) for _, scores in terms) < 2:
            return cls(0.0, 0)
        found = sides(terms)
        freedom = np.array([len(scores) - 1 for scores in found])
        errors = np.array([scores.var(ddof=1) / len(scores) for scores in found])
        degrees = errors.sum() ** 2 / (errors**2 / freedom).sum() if errors.any() else freedom.sum()
        return cls(float(errors.sum() / _share(terms)), float(degrees))


def sides(terms: Sequence[tuple[float, Values]]) -> list[Values]:
    """What varies over seeds in Σ weight · mean: the weighted sums of the rows of positive and of negative weight.

    Rows of one seed may share chance, such as one random ranking for several shares of pruning. Their sum in each seed
    has the right variance, however they depend on each other; rows of one side have the same seeds, in this order. The
    two sides are treated as independent. That is cautious if what they share moves both the same way.
    """
    found: dict[bool, Values] = {}
    for weight, scores in terms:
        found[weight > 0] = found.get(weight > 0, 0) + weight * scores
    return list(found.values())


def _share(terms: Sequence[tuple[float, Values]]) -> float:
    """The variance of Σ weight · mean for independent rows, relative to the variance of one seed's score."""
    return sum(weight**2 / len(scores) for weight, scores in terms)


def vary_alike(rows: Sequence[Values]) -> bool:
    """Whether nothing at the 5% level shows that rows vary differently over seeds, [seeds] each (Bartlett 1937).

    Rows whose seeds have one score are left out: scores are counts, so ties are chance, and the test knows no zero.
    """
    varied = [scores for scores in rows if len(scores) > 1 and scores.std(ddof=1) > ROUNDING]
    if len(varied) < 2:
        return True
    return not bartlett(*varied).pvalue < LEVEL  # NaN where rounding makes equal variances' statistic negative


@dataclass(frozen=True)
class Uncertain:
    """A number, and draws of the values that it could have with other examples and other seeds, [samples]."""

    value: float
    draws: Values

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The interval's bounds: a share of level / 2 of the draws lies below and the same share above."""
        low, high = np.quantile(self.draws, (level / 2, 1 - level / 2))
        return float(low), float(high)

    def detectable(self, bound: float = 0.0, level: float = LEVEL) -> float:
        """The smallest true value whose interval would lie above the bound with a probability of `POWER`.

        Half of the interval's width must fit between the bound and all but the lowest estimates of such a value.
        """
        low, high = np.quantile(self.draws, (level / 2, POWER))
        return bound + float(high - low)

    def p_value(self) -> float:
        """Two-sided p value of the hypothesis that the value is zero; at least 2/(samples + 1)."""
        fewest = min(np.count_nonzero(self.draws <= ROUNDING), np.count_nonzero(self.draws >= -ROUNDING))
        return float(min(1.0, 2 * (fewest + 1) / (len(self.draws) + 1)))


@dataclass(frozen=True)
class SampledScores:
    """One row's scores."""

    observed: Values  # on the dev set, [seeds]
    resampled: Values  # on resampled dev examples, [samples, seeds]

    @classmethod
    def mean_of(cls, tasks: Sequence["SampledScores"]) -> Self:
        """The mean of several tasks' scores of the same models."""
        return cls(
            np.mean([task.observed for task in tasks], axis=0), np.mean([task.resampled for task in tasks], axis=0)
        )

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds (divided by seeds − 1); None if there is only one seed."""
        return float(self.observed.std(ddof=1)) if len(self.observed) > 1 else None


def contrast(terms: Sequence[tuple[float, SampledScores]], spread: Spread) -> Uncertain:
    """Σ weight · mean over seeds, for rows scored on the same examples.

    Draws add Student's t, scaled by the root of Σ weight² / seeds times the variance over seeds.
    """
    value = sum(weight * scores.observed.mean() for weight, scores in terms)
    resampled = np.sum([weight * scores.resampled.mean(axis=1) for weight, scores in terms], axis=0)
    share = _share([(weight, scores.observed) for weight, scores in terms])
    if not spread.degrees:
        return Uncertain(float(value), resampled)
    student = generator(SEED, "seeds of other runs").standard_t(spread.degrees, size=len(resampled))
    return Uncertain(float(value), resampled + np.sqrt(share * spread.variance) * student)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values (Holm 1979). Rejecting those below a level makes any error with at most that probability.

    This holds however the tests depend on each other.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted

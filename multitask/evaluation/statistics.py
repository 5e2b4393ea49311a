"""How sure a score is: variance over seeds, bootstrap intervals, paired tests, and correction for multiple tests.

A dev score varies by chance for two reasons, and every interval and test here covers both.

Examples: another dev set of the same kind would give another score. We resample dev examples with replacement (Efron
and Tibshirani 1993, chapter 13; for systems on one test set Koehn 2004, Berg-Kirkpatrick et al. 2012). All models are
scored on the same resamples, so that a difference of two models is paired. The dev sets of the tasks are resampled
independently of each other.

Seeds: another seed would give another model. Rows of a table share seeds, data order and parents, so that a contrast of
rows is one number for each seed that all of them have. Resampling these numbers underestimates their variance if there
are few (three seeds have ten distinct resamples, with two thirds of the variance). Instead, we shift their mean by
s/√seeds · t. Here s² is their own variance over seeds, and t is drawn from Student's distribution: this alone is the
paired t test (Student 1908). Nothing is borrowed from other rows, neither a pooled variance nor a prior for moderated
ones (Smyth 2004), because a single row that varies more than the others would then make tests of the others err.
`tests/multitask/evaluation/test_statistics.py` simulates the error rates and the power of these tests.
Rows without two common seeds are compared as independent ones (Welch 1947). Together with the resampled examples the
shift makes a generalised confidence interval (Weerahandi 1993). Differences of single examples between seeds are part
of both, so intervals tend to be too wide rather than too narrow. With one seed, the variance over seeds is unknown;
intervals then describe these models on other examples, not the methods.

A difference is tested by its interval: p is the lowest level at which the interval excludes zero. Dror et al. 2018
recommend two kinds of tests if the distribution is unknown, as for accuracy and correlation: permutations of the two
models' outputs, and the bootstrap. We use the bootstrap: it tests the difference of the scores themselves, not whether
outputs are exchangeable, and it can include seeds. (With three seeds, a permutation test has no p below 1/4.)

Resamples on which a number is undefined are left out, and counted. A number that is undefined itself has no interval.

Imports no torch.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from multitask.base.random_streams import generator
from multitask.evaluation.weighted_scores import SCORE_FUNCTIONS
from multitask.tasks.scores import LOWER_IS_BETTER, Metric

Values = NDArray[np.float64]

SAMPLES = 10_000
LEVEL = 0.05
POWER = 0.8
"""The probability with which a test shows an effect that it "could have shown" (Cohen 1988)."""
SEED = 0
ROUNDING = 1e-12  # smaller differences between numbers of size 1 count as zero
LEAST_BEYOND, MOST_TIMES = 10, 100
"""Draws beyond each end of an interval: strict levels take more draws than there are resamples, up to so many times."""


@dataclass(frozen=True)
class Uncertain:
    """A number, and the values that it could have with other examples and other seeds."""

    value: float
    examples: Values
    """Draws of its values with other examples, [samples]; NaN where it is undefined."""
    error: float = 0.0
    """Its standard error over seeds."""
    degrees: float = 0.0
    """Degrees of freedom of this error; 0 if it is unknown."""

    @property
    def undefined(self) -> int:
        """The number of draws on which it is undefined, which are left out."""
        return int(np.isnan(self.examples).sum())

    @cached_property
    def draws(self) -> Values:
        """Draws of its values with other examples and other seeds, [samples on which it is defined]."""
        return self._draws(1)

    def _draws(self, times: int) -> Values:
        """Draws for which each of the examples' draws is used so many times, with other seeds."""
        examples = np.tile(self.examples, times)
        seeds = self.error * _student(self.degrees, len(examples)) if self.error else 0.0
        return (examples + seeds)[~np.isnan(examples)]

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The interval's bounds: a share of level / 2 of the draws lies below and the same share above.

        NaN if the number is undefined, or all draws are.
        """
        if np.isnan(self.value) or not len(self.draws):
            return np.nan, np.nan
        beyond = level / 2 * len(self.draws)
        times = min(ceil(LEAST_BEYOND / beyond), MOST_TIMES)
        draws = self._draws(times) if self.error and times > 1 else self.draws
        low, high = np.quantile(draws, (level / 2, 1 - level / 2), method="hazen")  # as `_student` has its values
        return float(low), float(high)

    def detectable(self, bound: float = 0.0, level: float = LEVEL) -> float:
        """The smallest true value that such an experiment would show to be above the bound with probability `POWER`.

        It is for an experiment done again, whose standard error over seeds varies as that of this one does. Without
        examples, this is the noncentral t distribution averaged over the errors that these seeds may come from.
        """
        if not len(examples := self.examples[~np.isnan(self.examples)]):
            return np.nan
        margin, estimates = self.value - np.quantile(examples, level / 2), examples - self.value
        if self.error:
            draws, size = generator(SEED, "experiments done again"), len(examples)
            true = self.error / np.sqrt(draws.chisquare(self.degrees, size) / self.degrees)
            found = true * np.sqrt(draws.chisquare(self.degrees, size) / self.degrees)
            margin = np.hypot(margin, student.ppf(1 - level / 2, self.degrees) * found)
            estimates = estimates + true * draws.normal(size=size)
        return bound + float(np.quantile(margin - estimates, POWER))

    def p_value(self) -> float:
        """Two-sided p value of the hypothesis that the value is zero; at least 2/(samples + 1) if seeds do not vary.

        It is 1 if the number is undefined, or all draws are.
        """
        if np.isnan(self.value) or not len(self.draws):
            return 1.0
        if self.error:
            below = student.cdf(-self.examples[~np.isnan(self.examples)] / self.error, self.degrees).mean()
            return float(2 * min(below, 1 - below))
        fewest = min(np.count_nonzero(self.draws <= ROUNDING), np.count_nonzero(self.draws >= -ROUNDING))
        return float(min(1.0, 2 * (fewest + 1) / (len(self.draws) + 1)))


@lru_cache(maxsize=8)  # a million values each at most
def _student(degrees: float, size: int) -> Values:
    """Values of Student's distribution at equal steps of probability, in random order, [size]."""
    values: Values = student.ppf((np.arange(size) + 0.5) / size, degrees)
    return generator(SEED, "seeds of other runs").permutation(values)


@dataclass(frozen=True)
class SampledScores:
    """One row's scores."""

    seeds: Sequence[int]
    """Of the trainings; rows are paired by them."""
    observed: Values  # on the dev set, [seeds]
    resampled: Values  # on resampled dev examples, [samples, seeds]; NaN where undefined

    @classmethod
    def mean_of(cls, tasks: Sequence["SampledScores"]) -> Self:
        """The mean of several tasks' scores of the same models."""
        observed, resampled = ([getattr(task, name) for task in tasks] for name in ("observed", "resampled"))
        return cls(tasks[0].seeds, np.mean(observed, axis=0), np.mean(resampled, axis=0))

    def of(self, seeds: Collection[int]) -> Self:
        """The scores with some of the seeds, in rising order."""
        places = sorted(
            (place for place, seed in enumerate(self.seeds) if seed in seeds), key=lambda place: self.seeds[place]
        )
        return type(self)([self.seeds[place] for place in places], self.observed[places], self.resampled[:, places])


def contrast(terms: Sequence[tuple[float, SampledScores]]) -> Uncertain:
    """Σ weight · mean over seeds, for rows scored on the same examples, paired by example and by seed.

    Only seeds that all rows have count. If there are less than two, all do: rows with the same seeds are paired, and
    others are independent (Satterthwaite 1946, Welch 1947). Of one seed on examples that do not vary, nothing tells an
    interval.
    """
    shared = set.intersection(*(set(scores.seeds) for _, scores in terms))
    used = [(weight, scores.of(shared if len(shared) > 1 else scores.seeds)) for weight, scores in terms]
    paired: dict[tuple[int, ...], Values] = {}
    for weight, scores in used:
        seeds = tuple(scores.seeds)
        paired[seeds] = paired.get(seeds, 0) + weight * scores.observed
    value = float(sum(values.mean() for values in paired.values()))
    examples = np.sum([weight * scores.resampled.mean(axis=1) for weight, scores in used], axis=0)
    freedom = np.array([len(seeds) - 1 for seeds in paired])
    if not freedom.all():  # rows that are equal on all examples do not differ
        return Uncertain(value, examples) if abs(value) <= ROUNDING else _of_one_seed(value, examples)
    squares = np.array([values.var(ddof=1) / len(values) for values in paired.values()])
    if (error := np.sqrt(squares.sum())) < ROUNDING:
        return Uncertain(value, examples, 0.0, float(freedom.sum()))
    return Uncertain(value, examples, float(error), float(squares.sum() ** 2 / (squares**2 / freedom).sum()))


def _of_one_seed(value: float, examples: Values) -> Uncertain:
    """A number, without an interval if no draw of it varies, as of unknown answers."""
    known = examples[~np.isnan(examples)]
    varies = len(known) and np.ptp(known) > ROUNDING
    return Uncertain(value, examples if varies else np.full_like(examples, np.nan))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values (Holm 1979). Rejecting those below a level makes any error with at most that probability.

    This holds however the tests depend on each other.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


WEIGHTS_PER_CHUNK = 200_000  # number of weights that are computed at once, so that they fit into the processor's cache


def resampled_scores(
    labels: NDArray[Any],
    predictions: NDArray[Any],
    metric: Metric,
    draws: np.random.Generator,
    samples: int = SAMPLES,
    classes: int | None = None,
) -> Values:
    """Scores of all models on resampled examples; all models are scored on the same resamples.

    Scores are those of `multitask.tasks.scores`. On a resample where a score is undefined, it is NaN.

    Args:
        labels: [examples], or [examples, labels] of several labels a row.
        predictions: [models, *shape of labels], in the labels' units; of average precision, probabilities; of nDCG,
            that of each query.
        metric: kind of score.
        draws: draws the examples. The draws depend only on it and on the number of examples.
        samples: number of resamples, each with as many examples as there are.
        classes: number of classes of a classification, for macro F1; None: those that occur.

    Returns:
        [samples, models].
    """
    score = SCORE_FUNCTIONS[metric, labels.ndim]
    if metric in ("macro_f1", "matthews") and labels.ndim == 1:
        score = partial(score, classes=classes or int(max(labels.max(), predictions.max())) + 1)
    size, parts = len(labels), []
    for start in range(0, samples, max(1, WEIGHTS_PER_CHUNK // size)):
        rows = min(max(1, WEIGHTS_PER_CHUNK // size), samples - start)
        drawn = draws.integers(size, size=(rows, size)) + size * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)
        parts.append(score(counts / size, labels, predictions))
    return np.concatenate(parts)


class DevAnswers(NamedTuple):
    """A model's answers to a task's rows, as `resampled_scores` takes them."""

    labels: NDArray[Any]  # [rows] or [rows, labels], in file order
    predictions: NDArray[Any]  # of the same shape
    metric: Metric
    classes: int | None  # of a classification
    score: float


def draws_of(task: str) -> np.random.Generator:
    """Draws a task's resampled rows, the same ones for all models and wherever they are shown."""
    return generator(0, "resampled examples", task)


def scores_with_intervals(answers: Mapping[str, DevAnswers]) -> dict[str, Uncertain]:
    """Each task's score, and the mean of those where higher is better, `overall`, over resampled rows.

    A score that does not vary, such as one without an error, has no interval.
    """
    found: dict[str, tuple[float, Values]] = {}
    for task, (labels, predictions, metric, classes, score) in answers.items():
        drawn = resampled_scores(labels, predictions[None], metric, draws_of(task), classes=classes)
        found[task] = score, drawn[:, 0]
    if meant := [found[task] for task, answer in answers.items() if answer.metric not in LOWER_IS_BETTER]:
        scores, drawn_scores = zip(*meant, strict=True)
        found = {"overall": (float(np.mean(scores)), np.mean(drawn_scores, axis=0)), **found}
    return {name: _of_one_seed(score, values) for name, (score, values) in found.items()}

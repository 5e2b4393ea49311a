"""The papers' claims that trained models decide: each by paired tests on the tables of the grid, corrected (Holm)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from multitask.experiments.suites import STS, TRANSFER
from multitask.experiments.tables import components, decoupled, gradient
from multitask.reporting.analysis import Comparison, TableAnalysis, compared
from multitask.reporting.format import interval, score, signed, verdict
from multitask.reporting.results import RowResult, RunResult
from multitask.statistics import LEVEL, SAMPLES, SampledScores, Spread, Uncertain, Values, contrast
from multitask.study.claims import Claim, Verdict

Tables = Mapping[str, TableAnalysis]
"""Analysed tables by key; those that were not run are not there."""

SCORE = "similarity"
AS_GOOD = 0.02
"""A score lower by less than this reaches another."""
KEEPS = 0.01
"""A score that falls by less than this from its highest does not overfit."""
RARELY = 0.01
"""A share of anchors this small decides nothing."""
GAP, PUSH, CLOSER = "distance gap", "hardest negative push", "closer to positive"
DISSIPATED = "dissipated anchors"
ALIGNMENT, UNIFORMITY = "alignment gradient", "uniformity gradient"

UP, GD = "arXiv 2402.18281", "Gradient dissipation paper (ICLR 2023)"
GRADIENT, DECOUPLING, ON_SUITES = "gradient", "decoupled", "objectives-suites"
UNTESTED = Verdict("not tested here", "")
Decide = Callable[[Tables], Verdict]
Measure = Callable[[RunResult], float | None]
Pairs = Sequence[tuple[str, str]]
"""Labels of rows that are compared."""


def probed(run: RunResult, statistic: str) -> list[tuple[int, float]]:
    """What the gradient probe saw in training: step of an evaluation, mean since the one before."""
    return [
        (line["step"], value)
        for line in run.history
        for name, value in line["training"].items()
        if name.endswith(f" {statistic}") and not name.endswith(f"median {statistic}")
    ]


def last(statistic: str) -> Measure:
    """A probed statistic at the end of training; none where the end has none, as of anchors all dissipated."""
    return lambda run: seen[-1][1] if (seen := probed(run, statistic)) and seen[-1][0] == _end(run) else None


def _end(run: RunResult) -> int:
    return int(run.history[-1]["step"])


def _highest(statistic: str) -> Measure:
    """A probed statistic's highest value in training."""
    return lambda run: max((value for _, value in probed(run, statistic)), default=None)


def _spread_out(run: RunResult) -> float | None:
    """Alignment plus uniformity of the training batches at the end (Wang & Isola 2020); lower is better."""
    alignment, uniformity = (last(metric)(run) for metric in ("alignment", "uniformity"))
    return None if alignment is None or uniformity is None else alignment + uniformity


def _shrinks(statistic: str) -> Measure:
    """Logarithm of a probed statistic at the end of training relative to its beginning."""

    def measure(run: RunResult) -> float | None:
        seen = probed(run, statistic)
        if len(seen) < 2 or min(seen[0][1], seen[-1][1]) <= 0:
            return None
        return float(np.log(seen[-1][1] / seen[0][1]))

    return measure


def _fall(run: RunResult) -> float | None:
    """By how much the dev score is below its highest at the end of training."""
    curve = RowResult("", (run,), {}).curves(SCORE)
    return max(curve[0]) - curve[0][-1] if curve and len(curve[0]) > 1 else None


def _values(table: TableAnalysis, label: str, measure: Measure) -> Values:
    """A measure of a row's runs that have it, [seeds]."""
    [row] = [row for row in table.table.rows if row.label == label]
    return np.array([value for run in row.runs if (value := measure(run)) is not None])


def _measured(table: TableAnalysis, measure: Measure, weights: Mapping[str, float]) -> Uncertain | None:
    """A contrast of rows' means of a measure, with the chance of seeds alone; None where a row has less than two.

    Rows differ in how much a measure varies: each counts with its own variance (Welch 1947), and the degrees of
    freedom are the fewest of a row, which is the least that they can be.
    """
    rows = {label: _values(table, label, measure) for label in weights}
    degrees = min(map(len, rows.values())) - 1
    if degrees < 1:
        return None
    shares = {label: weight**2 / len(rows[label]) for label, weight in weights.items()}
    variance = sum(shares[label] * values.var(ddof=1) for label, values in rows.items()) / sum(shares.values())
    terms = [(weight, SampledScores(rows[k], np.tile(rows[k], (SAMPLES, 1)))) for k, weight in weights.items()]
    return contrast(terms, Spread(float(variance), degrees))


def all_compared(differences: Mapping[str, Uncertain | None]) -> dict[str, Comparison] | None:
    """The differences, p adjusted for their number; None where one is missing."""
    known = [difference for difference in differences.values() if difference is not None]
    return None if len(known) < len(differences) else dict(zip(differences, compared(known), strict=True))


def shown(tests: Mapping[str, Comparison]) -> str:
    """Each difference with its interval and what its test says."""
    return "; ".join(
        f"{name} {signed(test.difference)} {interval(test)}, {verdict(test)}" for name, test in tests.items()
    )


def _all_above(differences: Mapping[str, Uncertain | None]) -> Verdict:
    """Reproduced if every difference is above zero at the 5% level, corrected for their number."""
    tests = all_compared(differences)
    return Verdict.of(all(map(higher, tests.values())), shown(tests)) if tests else UNTESTED


def _over(first: str, second: str) -> str:
    return " over ".join("the defaults" if label == gradient.DEFAULTS else label for label in (first, second))


def _above(table: str, pairs: Pairs, column: str = SCORE) -> Decide:
    """The first row of each pair has the higher score."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        return _all_above({_over(a, b): tables[table].contrast({a: 1, b: -1}, column) for a, b in pairs})

    return decide


def _measures_above(table: str, measure: Measure, pairs: Pairs) -> Decide:
    """The same of a measure of the runs."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        return _all_above({_over(a, b): _measured(tables[table], measure, {a: 1, b: -1}) for a, b in pairs})

    return decide


def _reaches(table: str, pairs: Pairs, column: str = SCORE) -> Decide:
    """No first row of a pair has a lower score than the second by as much as `AS_GOOD`."""

    def decide(tables: Tables) -> Verdict:
        if table not in tables:
            return UNTESTED
        tests = all_compared({f"{a} less {b}": tables[table].contrast({a: 1, b: -1}, column) for a, b in pairs})
        if tests is None:
            return UNTESTED
        evidence = [f"{name} {signed(test.difference)} {interval(test)}" for name, test in tests.items()]
        return Verdict.of(all(test.low > -AS_GOOD for test in tests.values()), "; ".join(evidence))

    return decide


def _on_similarity(decided: Callable[[str, Pairs, str], Decide], pairs: Pairs) -> Decide:
    """By the seven similarity tasks where they were scored; else by the dev set, which chose each training's state."""

    def decide(tables: Tables) -> Verdict:
        for table, column, place in ((ON_SUITES, STS, "mean of the STS tasks"), ("objectives", SCORE, "dev set")):
            verdict = decided(table, pairs, column)(tables)
            if verdict.status != UNTESTED.status:
                return Verdict(verdict.status, f"{place}: {verdict.evidence}")
        return UNTESTED

    return decide


def _optimum_within(name: str) -> Decide:
    """Some value has a higher score than the smallest and than the largest one."""
    rows = {f"{name} {value:g}": label for value, label in gradient.swept(name).items()}
    smallest, *within, largest = rows
    pairs = [(value, end) for value in within for end in (smallest, largest)]

    def decide(tables: Tables) -> Verdict:
        if GRADIENT not in tables:
            return UNTESTED
        table = tables[GRADIENT]
        tests = all_compared({_over(a, b): table.contrast({rows[a]: 1, rows[b]: -1}, SCORE) for a, b in pairs})
        if tests is None:
            return UNTESTED
        means = {value: table.estimates[row, SCORE].mean for value, row in rows.items()}
        better = [value for value in within if all(higher(tests[_over(value, end)]) for end in (smallest, largest))]
        best = max(within, key=means.__getitem__)
        evidence = [
            "means " + ", ".join(f"{score(mean)} at {value}" for value, mean in means.items()),
            shown({_over(best, end): tests[_over(best, end)] for end in (smallest, largest)}),
            f"higher than at both ends: {', '.join(better) or 'none'}",
        ]
        return Verdict.of(bool(better), "; ".join(evidence))

    return decide


def higher(comparison: Comparison) -> bool:
    """Whether a difference is above zero, significantly."""
    return comparison.significant and comparison.difference > 0


def _dominates(tables: Tables) -> Verdict:
    if GRADIENT not in tables:
        return UNTESTED
    share = _measured(tables[GRADIENT], last(PUSH), {gradient.DEFAULTS: 1})
    if share is None:
        return UNTESTED
    low, high = share.interval()
    return Verdict.of(low > 0.5, f"{score(share.value)} [{score(low)}, {score(high)}] at the end of training")


def _smaller_gap(tables: Tables) -> Verdict:
    """Where the gate closed at all, since without that both trainings are the same."""
    if GRADIENT not in tables:
        return UNTESTED
    closed = _values(tables[GRADIENT], gradient.DEFAULTS, _highest(DISSIPATED))
    if not len(closed) or closed.mean() < RARELY:
        share = f"{closed.mean():.1%} at most" if len(closed) else "not known"
        return Verdict("not tested here", f"share of anchors that the defaults' gate stops: {share}")
    return _measures_above(GRADIENT, last(GAP), [(_NO_DISSIPATION, gradient.DEFAULTS)])(tables)


def _nearer_more_often(tables: Tables) -> Verdict:
    """Where there is something to gain for a larger ratio."""
    if GRADIENT not in tables:
        return UNTESTED
    rates = {label: _values(tables[GRADIENT], label, last(CLOSER)) for label in (_LOWEST_RATIO, _HIGHEST_RATIO)}
    if not all(map(len, rates.values())):
        return UNTESTED
    if min(rate.mean() for rate in rates.values()) > 1 - RARELY:
        shown_rates = ", ".join(f"{rate.mean():.1%} with {label}" for label, rate in rates.items())
        return Verdict("not tested here", f"it holds of nearly all anchors with any: {shown_rates}")
    return _measures_above(GRADIENT, last(CLOSER), [(_HIGHEST_RATIO, _LOWEST_RATIO)])(tables)


def _not_reflected(tables: Tables) -> Verdict:
    if DECOUPLING not in tables:
        return UNTESTED
    table = tables[DECOUPLING]
    scores = all_compared({label: table.contrast({label: 1, CONTRASTIVE: -1}, SCORE) for label in DECOUPLED})
    if scores is None:
        return UNTESTED
    lower = [label for label, test in scores.items() if test.significant and test.difference < 0]
    if not lower:
        return Verdict("not tested here", f"scores less InfoNCE's: {shown(scores)}")
    metrics = all_compared({label: _measured(table, _spread_out, {label: 1, CONTRASTIVE: -1}) for label in lower})
    if metrics is None:
        return UNTESTED
    return Verdict.of(all(test.high < 0 for test in metrics.values()), f"sum less InfoNCE's: {shown(metrics)}")


def _does_not_overfit(tables: Tables) -> Verdict:
    if DECOUPLING not in tables:
        return UNTESTED
    fall = _measured(tables[DECOUPLING], _fall, {CONTRASTIVE: 1})
    if fall is None:
        return UNTESTED
    low, high = fall.interval()
    return Verdict.of(high < KEEPS, f"falls by {score(fall.value)} [{score(low)}, {score(high)}] from its highest")


CONTRASTIVE = "InfoNCE"
PLAIN = tuple(components.LOSSES)
MODIFIED = tuple(f"{label}, modified" for label in PLAIN)
DECOUPLED = ("Alignment and uniformity", "Decoupled contrastive loss")
DISSIPATING = ("Decoupled, cut at zero", "MET", "MAT", "MPT")
SURE = f"at the {LEVEL:.0%} level, corrected for the number of tests"
_NO_DISSIPATION = max(gradient.swept("m").items())[1]
_LOWEST_RATIO, _HIGHEST_RATIO = (f(gradient.swept("r").items())[1] for f in (min, max))
_HIGHEST_TEMPERATURE = max(gradient.swept("τ").items())[1]
_LOWEST_TEMPERATURE = min(gradient.swept("τ").items())[1]

TRAINED_CLAIMS: tuple[Claim[Tables], ...] = (
    Claim(
        "Losses without negatives are ineffective for semantic textual similarity, where contrastive ones excel.",
        f"{UP}, abstract and section 4",
        f"On the STS tasks, or else on the dev set, InfoNCE scores higher than each of {', '.join(PLAIN)}, {SURE}.",
        _on_similarity(_above, [(CONTRASTIVE, label) for label in PLAIN]),
    ),
    Claim(
        "With dissipation, weight and ratio, losses without negatives become effective.",
        f"{UP}, section 4",
        f"There each modified loss scores higher than the plain one, {SURE}.",
        _on_similarity(_above, list(zip(MODIFIED, PLAIN, strict=True))),
    ),
    Claim(
        "The modified losses are comparable to mainstream contrastive ones.",
        f"{UP}, section 4",
        f"There none scores lower than InfoNCE by {AS_GOOD} or more, by the lower bound of the difference (95%).",
        _on_similarity(_reaches, [(label, CONTRASTIVE) for label in MODIFIED]),
    ),
    Claim(
        "The modified losses keep their performance on transfer tasks.",
        f"{UP}, section 4",
        f"On the mean of the transfer tasks none scores lower than the plain loss by {AS_GOOD} or more, by the lower "
        "bound of the difference (95%).",
        _reaches(ON_SUITES, list(zip(MODIFIED, PLAIN, strict=True)), TRANSFER),
    ),
    *(
        Claim(
            f"There is a suitable {meaning}, above and below which performance falls.",
            f"{UP}, section 3.2",
            f"Some value of {name} within the range scores higher than its smallest and its largest value, {SURE}.",
            _optimum_within(name),
        )
        for name, meaning in (("m", "margin of the dissipation"), ("τ", "temperature of the weight"), ("r", "ratio"))
    ),
    Claim(
        "Conjecture 1 in training: with dissipation the gap between negatives and positives remains smaller.",
        f"{UP}, section 3.2",
        f"At the end of training the distance gap of {_NO_DISSIPATION}, which dissipates nothing, is larger than that "
        f"of the defaults ({gradient.DEFAULTS}), {SURE}; tested where their gate stops {RARELY:.0%} of the anchors at "
        "some time.",
        _smaller_gap,
    ),
    Claim(
        "Conjecture 2 in training: the hardest negative has a dominant position.",
        f"{UP}, section 3.2",
        f"With the defaults ({gradient.DEFAULTS}) its share of the push is more than half, by the lower bound (95%).",
        _dominates,
    ),
    Claim(
        "A higher temperature of the weight takes its dominance from the hardest negative.",
        f"{UP}, section 3.2",
        f"Its share of the push is larger with {_LOWEST_TEMPERATURE} than with {_HIGHEST_TEMPERATURE}, {SURE}.",
        _measures_above(GRADIENT, last(PUSH), [(_LOWEST_TEMPERATURE, _HIGHEST_TEMPERATURE)]),
    ),
    Claim(
        "Conjecture 3 in training: a larger ratio meets Lemma 1's condition more frequently.",
        f"{UP}, section 3.2",
        f"At the end of training the share of anchors nearer to their positive after a step is larger with "
        f"{_HIGHEST_RATIO} than with {_LOWEST_RATIO}, {SURE}; tested where one of them has less than "
        f"{1 - RARELY:.0%}. (The pull that the probe sees is twice r: each pair pulls from both its sides.)",
        _nearer_more_often,
    ),
    Claim(
        "Optimising alignment and uniformity, or the decoupled contrastive loss, scores below the contrastive loss.",
        f"{GD}, abstract and section 1",
        f"InfoNCE scores higher than each, {SURE}; every loss by the best state in {decoupled.EPOCHS} epochs.",
        _above(DECOUPLING, [(CONTRASTIVE, label) for label in DECOUPLED]),
    ),
    Claim(
        "That decoupled losses perform worse is not reflected by the alignment and uniformity metrics.",
        f"{GD}, section 1",
        "Of each that scores significantly lower than InfoNCE, the sum of both metrics (lower is better) is lower at "
        "the end of training, by the upper bound of the difference (95%); tested where one scores lower.",
        _not_reflected,
    ),
    Claim(
        "Training with decoupled losses is prone to overfitting.",
        f"{GD}, abstract and section 1",
        f"The dev score at the end is below its highest by more than InfoNCE's is, {SURE}.",
        _measures_above(DECOUPLING, _fall, [(label, CONTRASTIVE) for label in DECOUPLED]),
    ),
    Claim(
        "Overfitting does not occur with the contrastive loss.",
        f"{GD}, abstract and section 1",
        f"InfoNCE's dev score at the end is below its highest by less than {KEEPS}, by the upper bound (95%).",
        _does_not_overfit,
    ),
    *(
        Claim(
            f"The gradient signal of the contrastive loss dissipates in training, that of decoupled losses does not "
            f"({part} part).",
            f"{GD}, section 1",
            f"The norm of the {part} part, at the end relative to the beginning, is larger for decoupled losses (in "
            f"logarithms), {SURE}.",
            _measures_above(DECOUPLING, _shrinks(statistic), [(label, CONTRASTIVE) for label in DECOUPLED]),
        )
        for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
    ),
    Claim(
        "Losses that imitate dissipation perform as well as the contrastive loss, or better.",
        f"{GD}, abstract and section 1",
        f"None of {', '.join(DISSIPATING)} scores lower than InfoNCE by {AS_GOOD} or more, by the lower bound (95%).",
        _reaches(DECOUPLING, [(label, CONTRASTIVE) for label in DISSIPATING]),
    ),
    Claim(
        "Losses that imitate dissipation alleviate overfitting.",
        f"{GD}, section 1",
        f"Each decoupled loss falls further from its highest dev score than each of {', '.join(DISSIPATING)}, {SURE}.",
        _measures_above(DECOUPLING, _fall, [(a, b) for a in DECOUPLED for b in DISSIPATING]),
    ),
)

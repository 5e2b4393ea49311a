"""The papers' claims that trained models decide: each by tests on the tables of the grid."""

from collections.abc import Callable

from studies.engine.suite_tables import STS, TRANSFER
from studies.gradient_paradigm.simulation_claims import GD, Claim, Verdict
from studies.gradient_paradigm.tables import components, decoupled, gradient
from studies.report.format import score
from studies.report.results import RunResult
from studies.report.verdicts import (
    AS_GOOD,
    SCORE,
    SURE,
    SURE_OF_ANY,
    UNTESTED,
    Decide,
    Pairs,
    Tables,
    above,
    dev_curve,
    each,
    family,
    higher,
    highest,
    last,
    measured,
    measures_above,
    reaches,
    shown,
    shrinks,
    values,
)

KEEPS = 0.01
"""A score that falls by less than this from its highest does not overfit."""
RARELY = 0.01
"""A share of anchors this small decides nothing."""
GAP, PUSH, CLOSER = "distance gap", "hardest negative push", "closer to positive"
DISSIPATED = "dissipated anchors"
ALIGNMENT, UNIFORMITY = "alignment gradient", "uniformity gradient"

UP = "arXiv 2402.18281"
GRADIENT, DECOUPLING, ON_SUITES = "gradient", "decoupled", "objectives-suites"


def _fall(run: RunResult) -> float | None:
    """By how much the dev score is below its highest at the end of training."""
    curve = dev_curve(run)
    return max(curve) - curve[-1] if len(curve) > 1 else None


def _last_score(run: RunResult) -> float | None:
    """The dev score at the end of training."""
    curve = dev_curve(run)
    return curve[-1] if curve else None


def _alignment_and_uniformity(run: RunResult) -> float | None:
    """Alignment plus uniformity of the training batches at the end (Wang & Isola 2020); lower is better."""
    alignment, uniformity = (last(metric)(run) for metric in ("alignment", "uniformity"))
    return None if alignment is None or uniformity is None else alignment + uniformity


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
    ends = (smallest, largest)
    pairs = [(value, end) for value in within for end in ends]

    def decide(tables: Tables) -> Verdict:
        if GRADIENT not in tables:
            return UNTESTED
        table = tables[GRADIENT]
        tests = family({f"{a} over {b}": table.contrast({rows[a]: 1, rows[b]: -1}, SCORE) for a, b in pairs})
        if tests is None:
            return UNTESTED
        means = {value: table.estimates[row, SCORE].mean for value, row in rows.items()}
        to_ends = {value: {name: tests[name] for name in (f"{value} over {end}" for end in ends)} for value in within}
        better = [value for value in within if all(map(higher, to_ends[value].values()))]
        best = max(within, key=means.__getitem__)
        evidence = [
            "means " + ", ".join(f"{score(mean)} at {value}" for value, mean in means.items()),
            shown(to_ends[best]),
            f"higher than at both ends: {', '.join(better) or 'none'}",
        ]
        return Verdict.of(bool(better), "; ".join(evidence))

    return decide


def _dominates(tables: Tables) -> Verdict:
    if GRADIENT not in tables:
        return UNTESTED
    share = measured(tables[GRADIENT], last(PUSH), {gradient.DEFAULTS: 1})
    if share is None:
        return UNTESTED
    low, high = share.interval()
    return Verdict.of(low > 0.5, f"{score(share.value)} [{score(low)}, {score(high)}] at the end of training")


def _smaller_gap(tables: Tables) -> Verdict:
    """Where the gate closed at all, since without that both trainings are the same."""
    if GRADIENT not in tables:
        return UNTESTED
    closed = values(tables[GRADIENT], gradient.DEFAULTS, highest(DISSIPATED))
    if not len(closed) or closed.mean() < RARELY:
        share = f"{closed.mean():.1%} at most" if len(closed) else "not known"
        return Verdict("not tested here", f"share of anchors that the defaults' gate stops: {share}")
    return measures_above(GRADIENT, last(GAP), [(_NO_DISSIPATION, gradient.DEFAULTS)])(tables)


def _nearer_more_often(tables: Tables) -> Verdict:
    """Where there is something to gain for a larger ratio."""
    if GRADIENT not in tables:
        return UNTESTED
    rates = {label: values(tables[GRADIENT], label, last(CLOSER)) for label in (_LOWEST_RATIO, _HIGHEST_RATIO)}
    if not all(map(len, rates.values())):
        return UNTESTED
    if min(rate.mean() for rate in rates.values()) > 1 - RARELY:
        shown_rates = ", ".join(f"{rate.mean():.1%} with {label}" for label, rate in rates.items())
        return Verdict("not tested here", f"it holds of nearly all anchors with any: {shown_rates}")
    return measures_above(GRADIENT, last(CLOSER), [(_HIGHEST_RATIO, _LOWEST_RATIO)])(tables)


def _not_reflected(tables: Tables) -> Verdict:
    if DECOUPLING not in tables:
        return UNTESTED
    table = tables[DECOUPLING]
    scores = family({label: measured(table, _last_score, {label: 1, CONTRASTIVE: -1}) for label in DECOUPLED})
    if scores is None:
        return UNTESTED
    lower = [label for label, test in scores.items() if test.significant and test.difference < 0]
    if not lower:
        return Verdict("not tested here", f"scores at the end less InfoNCE's: {shown(scores)}")
    metrics = each({label: measured(table, _alignment_and_uniformity, {label: 1, CONTRASTIVE: -1}) for label in lower})
    if metrics is None:
        return UNTESTED
    return Verdict.of(all(test.high < 0 for test in metrics.values()), f"sum less InfoNCE's: {shown(metrics)}")


def _does_not_overfit(tables: Tables) -> Verdict:
    if DECOUPLING not in tables:
        return UNTESTED
    fall = measured(tables[DECOUPLING], _fall, {CONTRASTIVE: 1})
    if fall is None:
        return UNTESTED
    low, high = fall.interval()
    return Verdict.of(high < KEEPS, f"falls by {score(fall.value)} [{score(low)}, {score(high)}] from its highest")


CONTRASTIVE = "InfoNCE"
PLAIN = tuple(components.LOSSES)
MODIFIED = tuple(f"{label}, modified" for label in PLAIN)
DECOUPLED = ("Alignment and uniformity", "Decoupled contrastive loss")
DISSIPATING = ("Decoupled, cut at zero", "MET", "MAT", "MPT")
_NO_DISSIPATION = max(gradient.swept("m").items())[1]
_LOWEST_RATIO, _HIGHEST_RATIO = (f(gradient.swept("r").items())[1] for f in (min, max))
_HIGHEST_TEMPERATURE = max(gradient.swept("τ").items())[1]
_LOWEST_TEMPERATURE = min(gradient.swept("τ").items())[1]

TRAINED_CLAIMS: tuple[Claim[Tables], ...] = (
    Claim(
        "Losses without negatives are ineffective for semantic textual similarity, where contrastive ones excel.",
        f"{UP}, abstract and section 4",
        f"On the STS tasks, or else on the dev set, InfoNCE scores higher than each of {', '.join(PLAIN)}, {SURE}.",
        _on_similarity(above, [(CONTRASTIVE, label) for label in PLAIN]),
    ),
    Claim(
        "With dissipation, weight and ratio, losses without negatives become effective.",
        f"{UP}, section 4",
        f"On the STS tasks, or else on the dev set, each modified loss scores higher than the plain one, {SURE}.",
        _on_similarity(above, list(zip(MODIFIED, PLAIN, strict=True))),
    ),
    Claim(
        "The modified losses are comparable to mainstream contrastive ones.",
        f"{UP}, section 4",
        f"On the STS tasks, or else on the dev set, none scores lower than InfoNCE by {AS_GOOD} or more, by the lower "
        "bound of the difference (95%).",
        _on_similarity(reaches, [(label, CONTRASTIVE) for label in MODIFIED]),
    ),
    Claim(
        "The modified losses keep their performance on transfer tasks.",
        f"{UP}, section 4",
        f"On the mean of the transfer tasks none scores lower than the plain loss by {AS_GOOD} or more, by the lower "
        "bound of the difference (95%).",
        reaches(ON_SUITES, list(zip(MODIFIED, PLAIN, strict=True)), TRANSFER),
    ),
    *(
        Claim(
            f"There is a suitable {meaning}, above and below which performance falls.",
            f"{UP}, section 3.2",
            f"Some value of {name} within the range scores higher than its smallest and its largest value, "
            f"{SURE_OF_ANY}.",
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
        measures_above(GRADIENT, last(PUSH), [(_LOWEST_TEMPERATURE, _HIGHEST_TEMPERATURE)]),
    ),
    Claim(
        "Conjecture 3 in training: a larger ratio meets Lemma 1's condition more frequently.",
        f"{UP}, section 3.2",
        f"At the end of training the share of anchors nearer to their positive after a step is larger with "
        f"{_HIGHEST_RATIO} than with {_LOWEST_RATIO}, {SURE}; tested where one of them has less than "
        f"{1 - RARELY:.0%}.",
        _nearer_more_often,
    ),
    Claim(
        "Optimising alignment and uniformity, or the decoupled contrastive loss, scores below the contrastive loss.",
        f"{GD}, abstract and section 1",
        f"InfoNCE scores higher than each, {SURE}; every loss by the best state in {decoupled.EPOCHS} epochs.",
        above(DECOUPLING, [(CONTRASTIVE, label) for label in DECOUPLED]),
    ),
    Claim(
        "That decoupled losses perform worse is not reflected by the alignment and uniformity metrics.",
        f"{GD}, section 1",
        f"Of each whose dev score at the end is lower than InfoNCE's, {SURE_OF_ANY}, the sum of both metrics (lower is "
        "better; of the training batches' projected embeddings, which one of the losses is trained on) is lower then, "
        "by the upper bound of the difference (95%); tested where a score is lower.",
        _not_reflected,
    ),
    Claim(
        "Training with decoupled losses is prone to overfitting.",
        f"{GD}, abstract and section 1",
        f"The dev score at the end is below its highest by more than InfoNCE's is, {SURE}.",
        measures_above(DECOUPLING, _fall, [(label, CONTRASTIVE) for label in DECOUPLED]),
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
            measures_above(DECOUPLING, shrinks(statistic), [(label, CONTRASTIVE) for label in DECOUPLED]),
        )
        for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
    ),
    Claim(
        "Losses that imitate dissipation perform as well as the contrastive loss, or better.",
        f"{GD}, abstract and section 1",
        f"None of {', '.join(DISSIPATING)} scores lower than InfoNCE by {AS_GOOD} or more, by the lower bound (95%).",
        reaches(DECOUPLING, [(label, CONTRASTIVE) for label in DISSIPATING]),
    ),
    Claim(
        "Losses that imitate dissipation alleviate overfitting.",
        f"{GD}, section 1",
        f"Each decoupled loss falls further from its highest dev score than each of {', '.join(DISSIPATING)}, {SURE}.",
        measures_above(DECOUPLING, _fall, [(a, b) for a in DECOUPLED for b in DISSIPATING]),
    ),
)

"""The claims of the two gradient papers, and what results must show.

A claim of the kind "theorem" is proved and checked by tests. One of the kind "beyond the paper" is about a regime or a
measure that the paper does not claim.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import log, radians
from typing import Any

from multitask.evaluation.statistics import LEVEL
from multitask.experiments.grid_frames import ProbedAt
from multitask.experiments.table_definitions import row_key
from studies.gradient_paradigm.simulated_claims import HALF, SIMULATED_CLAIMS, inadequacy_claim, paradigm_claim
from studies.gradient_paradigm.tables import (
    ARCHITECTURE_NAMES,
    COMPONENT_SETTINGS,
    DEFAULT_ROW,
    DEPTHS,
    MODIFIED,
    NON_CONTRASTIVE,
    component_row,
    swept,
)
from studies.report.claims import (
    COMPARABLE,
    MARGIN,
    Claim,
    ClaimKind,
    ClaimPlace,
    ClaimResults,
    every,
    every_chosen,
    fall,
    in_degrees,
    last,
    last_score,
    peak,
    share,
    shrinks,
    some,
)
from studies.report.verdicts import Statement

DECOUPLED = ("align_uniform", "dcl")
IMITATIONS = ("dcl_positive", "met", "mat", "mpt")
LARGEST_MARGIN = component_row("margin", 2.0)
AUTHORS_STEPS = 7800
"""Of the authors' trainings."""

SUITES_OR_DEV = (
    ClaimPlace("objectives-suites", "STS", "mean of the STS tasks"),
    ClaimPlace("objectives", called="dev set"),
)

# The losses, plain and with the components.


def infonce_above_vicreg_from_scratch(results: ClaimResults) -> Statement:
    """InfoNCE is above VICReg in every encoder that was trained from random weights."""
    encoders = [f"architecture={name},size={size}" for name in ARCHITECTURE_NAMES for size in DEPTHS]
    rows = [[f"{encoder},objective={loss}" for encoder in encoders] for loss in ("infonce", "vicreg")]
    return results.each_above(*rows, margin=MARGIN)


def become_effective(results: ClaimResults) -> Statement:
    """Each loss whose plain form is not comparable to InfoNCE is better with the components, and comparable."""
    parts: list[Statement] = []
    left_out: list[Statement] = []
    level = LEVEL / len(MODIFIED)
    for plain, modified in MODIFIED.items():
        comparable = results.above(plain, "infonce", bound=COMPARABLE)
        if comparable.holds_by(level) > 0:
            left_out.append(comparable)
            continue
        better = results.above(modified, plain, margin=MARGIN)
        repaired = every([better, results.above(modified, "infonce", bound=COMPARABLE)])
        needed = comparable.fails_by(level) > 0
        parts.append(repaired if needed else every([repaired], "not known whether it is needed", can="show"))
    return every_chosen(parts, left_out)


def supervised(source: str, called: str) -> Claim:
    """The papers train these losses on dropout views alone."""
    rows = [[f"source={source},objective={loss}" for loss in losses] for losses in (MODIFIED.values(), MODIFIED)]
    return paradigm_claim(
        key=f"modified-on-{source}",
        section="section 4",
        kind="beyond the paper",
        text=f"On {called}, too, non-contrastive losses pre-train better with dissipation, weight and ratio, as models "
        "show after multi-task fine-tuning.",
        criterion="On similarity, each modified loss scores higher than the plain one (margin 0.01). Criterion made "
        "before any run.",
        places=(ClaimPlace("objectives-supervised"),),
        says=lambda results: results.each_above(*rows, margin=MARGIN),
    )


LOSS_CLAIMS = (
    paradigm_claim(
        key="plain",
        section="abstract and section 4",
        text="Non-contrastive losses are ineffective for semantic textual similarity, where contrastive ones excel.",
        criterion="On the STS tasks, or on the dev set if those were not scored, InfoNCE scores higher than each of "
        "MHE, MHS, Barlow Twins, VICReg (margin 0.01). The verdict depends on the start: another claim decides it from "
        "random weights.",
        places=SUITES_OR_DEV,
        says=lambda results: results.each_above(["infonce"], NON_CONTRASTIVE, margin=MARGIN),
    ),
    paradigm_claim(
        key="plain-from-scratch",
        section="abstract and section 4",
        kind="beyond the paper",
        text="Non-contrastive losses are ineffective, where contrastive ones excel, in encoders trained from random "
        "weights.",
        criterion="InfoNCE scores higher than VICReg on the dev set in each of six encoders (margin 0.01).",
        places=(ClaimPlace("shapes"),),
        says=infonce_above_vicreg_from_scratch,
    ),
    paradigm_claim(
        key="modified-over-plain",
        section="section 4",
        text="With dissipation, weight and ratio, non-contrastive losses become effective.",
        criterion="On the dev set, in trainings of ten epochs, because the 32 steps of one may be too few, take each "
        "loss whose plain form is not shown to be comparable to InfoNCE (less than 0.02 below it), corrected for their "
        "number. Its modified form scores higher than the plain one (margin 0.01), and is comparable to InfoNCE. A "
        "loss whose plain form is not shown to be worse either cannot refute it. Not tested if all plain losses are "
        "comparable. We made this criterion after seeing first results.",
        places=(ClaimPlace("objectives-long", called="10 epochs"),),
        says=become_effective,
    ),
    paradigm_claim(
        key="modified-as-good",
        section="section 4",
        text="The modified losses are comparable to mainstream contrastive ones.",
        criterion="On the STS tasks, or on the dev set if those were not scored, no modified loss scores 0.02 or more "
        "below InfoNCE.",
        places=SUITES_OR_DEV,
        says=lambda results: results.each_above([*MODIFIED.values()], ["infonce"], bound=COMPARABLE),
    ),
    supervised("quora", "Quora's pairs"),
    supervised("nli", "NLI's triplets"),
    paradigm_claim(
        key="modified-transfer",
        section="section 4",
        text="The modified losses keep their performance on transfer tasks.",
        criterion="On the mean of the transfer tasks, no modified loss scores 0.02 or more below the plain loss.",
        places=(ClaimPlace("objectives-suites", "Transfer"),),
        says=lambda results: results.each_above([*MODIFIED.values()], NON_CONTRASTIVE, bound=COMPARABLE),
    ),
)


# The components: best values, and the three conjectures in training.


def best_between(parameter: str) -> Callable[[ClaimResults], Statement]:
    """Some value is better than both the smallest and the largest."""
    smallest, *between, largest = swept(parameter).values()
    return lambda results: some(results.each_above([row], [smallest, largest], margin=MARGIN) for row in between)


READ: dict[ProbedAt, tuple[str, str, ClaimKind]] = {
    "held-out sentences": ("", "held-out sentences without the projection, as in the paper's statistics", "claim"),
    "training batches": ("-in-batches", "the projected embeddings of the training batches", "beyond the paper"),
}
"""Where a statistic is read: what a claim's key ends with, the words for it, and the claim's kind."""


def in_both_places(
    key: str, says: Callable[[ProbedAt, ClaimResults], Statement], criterion: str, **about: Any
) -> Iterator[Claim]:
    """A claim about a statistic, on held-out sentences and in training batches."""
    for place, (ending, read, kind) in READ.items():
        text = criterion.format(read=f"Read on {read}.")
        yield Claim(f"{key}{ending}", criterion=text, says=partial(says, place), kind=kind, **about)


def smaller_gap(place: ProbedAt, results: ClaimResults) -> Statement:
    """Without dissipation the gap ends larger."""
    called = "share of anchors that the gate stops"
    results.require(called, [DEFAULT_ROW], peak("dissipated anchors"), low=0.01)
    measure = last("distance gap", place)
    return results.above(LARGEST_MARGIN, DEFAULT_ROW, measure=measure, margin=radians(1), form=in_degrees)


def dominant_push(place: ProbedAt, results: ClaimResults) -> Statement:
    """The hardest negative makes more than half of the push."""
    return results.above(DEFAULT_ROW, bound=HALF, measure=last("hardest negative push", place), form=share)


def nearer_more_often(place: ProbedAt, results: ClaimResults) -> Statement:
    """More anchors come closer to their positive with the largest ratio than with the smallest."""
    smallest, *_, largest = swept("ratio").values()
    measure = last("closer to positive", place)
    called = "nearly all anchors come closer with either ratio"
    results.require(called, [smallest, largest], measure, high=0.99)
    return results.above(largest, smallest, measure=measure, margin=0.05)


_CONJECTURE = {"paper": "paradigm", "section": "section 3.2", "places": (ClaimPlace("gradient"),)}
COMPONENT_CLAIMS = (
    *(
        paradigm_claim(
            key=parameter,
            section="section 3.2",
            text=f"There is a suitable {what}, above and below which performance falls.",
            criterion=f"Some value of {symbol} scores higher than both the smallest and the largest (margin 0.01).",
            places=(ClaimPlace("gradient"),),
            says=best_between(parameter),
        )
        for parameter, what, symbol in (
            ("margin", "margin of the dissipation", "m"),
            ("temperature", "temperature of the weight", "τ"),
            ("ratio", "ratio", "r"),
        )
    ),
    *in_both_places(
        "smaller-gap",
        smaller_gap,
        "At the end of training, the distance gap with m 2.00, which dissipates nothing, is larger than with the "
        "defaults (m 0.30, τ 0.05, r 1; margin 1°). Tested if the defaults' gate stops 1% of the anchors at some "
        "evaluation. {read}",
        text="Conjecture 1 in training: with dissipation the gap between negatives and positives remains smaller.",
        **_CONJECTURE,
    ),
    *in_both_places(
        "dominant-push",
        dominant_push,
        "With the defaults (m 0.30, τ 0.05, r 1) the hardest negative makes more than half of the push. Half is our "
        "threshold: the paper names none. {read}",
        text="Conjecture 2 in training: the hardest negative has a dominant position.",
        **_CONJECTURE,
    ),
    *in_both_places(
        "nearer-more-often",
        nearer_more_often,
        "At the end of training, the share of anchors that a step brings closer to their positive is larger with r 2 "
        "than with r 0.25 (margin 0.05). Tested if one of the shares is below 99%. {read}",
        text="Conjecture 3 in training: a larger ratio meets Lemma 1's condition more frequently.",
        **_CONJECTURE,
    ),
)

# The weight and the coefficient that changes with it; where components should stop to matter.


def each_higher(after: tuple[float, str], before: tuple[float | None, str]) -> Callable[[ClaimResults], Statement]:
    """Each loss scores higher with one coefficient and weight component than with another; no coefficient: its own."""
    usual = {loss: coefficient for loss, (coefficient, weight, _) in COMPONENT_SETTINGS.items() if weight}
    higher, lower = (
        [row_key({"loss": loss, "coefficient": form[0] or own, "weight": form[1]}) for loss, own in usual.items()]
        for form in (after, before)
    )
    return lambda results: results.each_above(higher, lower, margin=MARGIN)


def no_difference(condition: str, parameter: str, small: float, large: float) -> Callable[[ClaimResults], Statement]:
    """Under a condition, a small and a large value of a parameter score the same."""
    row, less = (row_key({"condition": condition, parameter: value}) for value in (large, small))
    return lambda results: every(results.above(row, less, bound=bound, above=bound < 0) for bound in (-MARGIN, MARGIN))


_BEYOND: dict[str, Any] = {"section": "section 3.2", "kind": "beyond the paper"}
SEPARATE_CLAIMS = (
    paradigm_claim(
        key="coefficient-alone",
        text="A smaller coefficient of the uniformity part, λ 1 in place of 10 or 30, helps MHE, Barlow Twins and "
        "VICReg by itself.",
        criterion="Without the weight component, each of the three scores higher with λ 1 than with its usual λ "
        "(margin 0.01). Criterion made before any run.",
        places=(ClaimPlace("coefficients"),),
        says=each_higher((1.0, "off"), (None, "off")),
        **_BEYOND,
    ),
    paradigm_claim(
        key="weight-alone",
        text="The weight component helps MHE, Barlow Twins and VICReg at the same λ.",
        criterion="With λ 1, each of the three scores higher with the weight component than without (margin 0.01). "
        "Criterion made before any run.",
        places=(ClaimPlace("coefficients"),),
        says=each_higher((1.0, "on"), (1.0, "off")),
        **_BEYOND,
    ),
    paradigm_claim(
        key="ratio-at-a-tiny-rate",
        text="At a tiny learning rate the ratio makes no difference.",
        criterion="At a fiftieth of the usual learning rate, r 2 and r 0.25 score within 0.01 of each other. Criterion "
        "made before any run.",
        places=(ClaimPlace("break-conditions"),),
        says=no_difference("tiny-rate", "ratio", 0.25, 2.0),
        **_BEYOND,
    ),
    paradigm_claim(
        key="weight-among-hard-negatives",
        text="If all negatives are hard, the weight's focus on the hardest makes no difference.",
        criterion="With the 16 hardest of 127 negatives alone, τ 1 and τ 0.05 score within 0.01 of each other. "
        "Criterion made before any run.",
        places=(ClaimPlace("break-conditions"),),
        says=no_difference("hardest", "temperature", 0.05, 1.0),
        **_BEYOND,
    ),
)

# Decoupled losses.

LONG_OR_SHORT = (ClaimPlace("decoupled-long", called="10 epochs"), ClaimPlace("decoupled", called="3 epochs"))
READ_FROM = "Read from 10 epochs if they were run with three seeds, otherwise from 3."
LONGEST_FIRST = (ClaimPlace("decoupled-longest", called="30 epochs"), *LONG_OR_SHORT)
READ_FROM_LONGEST = "Read from 30 epochs if they were run with three seeds, otherwise from 10 or 3."


def lower_with_few_negatives(count: int) -> Claim:
    """The paper's argument is that sentence encoders have few negatives; it names no number below 63."""
    row, *others = (f"objective={loss},negatives={count}" for loss in ("infonce", *DECOUPLED))
    return inadequacy_claim(
        key=f"decoupled-with-{count}",
        section="abstract and section 1",
        kind="beyond the paper",
        text=f"With {count} negatives, optimising alignment and uniformity, or the decoupled contrastive loss, scores "
        "below the contrastive loss.",
        criterion="InfoNCE scores higher than each of the two (margin 0.01). Every loss is scored by its best "
        "checkpoint in one pass.",
        places=(ClaimPlace("few-negatives"),),
        says=lambda results: results.each_above([row], others, margin=MARGIN),
    )


def _chosen(
    condition: Callable[[str], Statement], statement: Callable[[str], Statement]
) -> tuple[list[Statement], list[Statement]]:
    """The statements for decoupled losses that meet a condition, and the conditions of the others."""
    conditions = {loss: condition(loss) for loss in DECOUPLED}
    level = LEVEL / len(conditions)
    met = [loss for loss, premise in conditions.items() if premise.holds_by(level) > 0]
    return [*map(statement, met)], [premise for loss, premise in conditions.items() if loss not in met]


def not_reflected(place: ProbedAt, results: ClaimResults) -> Statement:
    """Where a decoupled loss ends lower than InfoNCE, its sum of both metrics is lower, which is better."""
    parts, left_out = _chosen(
        lambda loss: results.above(loss, "infonce", measure=last_score, above=False),
        lambda loss: results.above(loss, "infonce", measure=last("alignment + uniformity", place), above=False),
    )
    return every_chosen(parts, left_out)


DECOUPLED_CLAIMS = (
    inadequacy_claim(
        key="decoupled",
        section="abstract and section 1",
        text="Optimising alignment and uniformity, or the decoupled contrastive loss, scores below the contrastive "
        "loss.",
        criterion="InfoNCE scores higher than each of the two (margin 0.01). Every loss is scored by its best "
        "checkpoint in 3 epochs.",
        places=(ClaimPlace("decoupled"),),
        says=lambda results: results.each_above(["infonce"], DECOUPLED, margin=MARGIN),
    ),
    *map(lower_with_few_negatives, (2, 4, 8, 16, 32, 63, 127)),
    *in_both_places(
        "not-reflected",
        not_reflected,
        "Take each decoupled loss whose dev score at the end is lower than InfoNCE's, corrected for their number. Its "
        f"sum of both metrics is lower (better) than InfoNCE's. Tested if some score is lower. {{read}} {READ_FROM}",
        text="The alignment and uniformity metrics do not reflect that decoupled losses perform worse.",
        paper="inadequacy",
        section="section 1",
        places=LONG_OR_SHORT,
    ),
)


def overfit(results: ClaimResults) -> Statement:
    """Both decoupled losses fall, and further than InfoNCE."""
    falls = [results.above(loss, bound=MARGIN, measure=fall) for loss in DECOUPLED]
    further = results.each_above(DECOUPLED, ["infonce"], measure=fall, margin=MARGIN)
    return results.trained_for(AUTHORS_STEPS, every([further, *falls]), can="show")


def does_not_overfit(results: ClaimResults) -> Statement:
    """InfoNCE does not fall by the margin."""
    lasts = results.above("infonce", bound=MARGIN, measure=fall, above=False)
    return results.trained_for(AUTHORS_STEPS, lasts, can="refute")


def imitations_do_not_overfit(results: ClaimResults) -> Statement:
    """A decoupled loss that overfits falls further than every loss that imitates dissipation."""
    parts, left_out = _chosen(
        lambda loss: results.above(loss, bound=MARGIN, measure=fall),
        lambda loss: results.each_above([loss], IMITATIONS, measure=fall, margin=MARGIN),
    )
    return results.trained_for(AUTHORS_STEPS, every_chosen(parts, left_out), can="refute")


def dissipates(part: str) -> Callable[[ClaimResults], Statement]:
    """The norm of a part of the gradient shrinks more with InfoNCE than with decoupled losses."""
    measure = shrinks(f"{part} gradient")
    return lambda results: results.each_above(DECOUPLED, ["infonce"], measure=measure, margin=log(1.25))


OVERFITTING_CLAIMS = (
    inadequacy_claim(
        key="overfits",
        section="abstract and section 1",
        text="Training with decoupled losses is prone to overfitting.",
        criterion="The dev scores of both decoupled losses fall by more than 0.01 from their highest to the end of "
        "training, and further than InfoNCE's does (margin 0.01). Trainings shorter than the authors' 7,800 steps can "
        f"only show this. {READ_FROM_LONGEST}",
        places=LONGEST_FIRST,
        says=overfit,
    ),
    inadequacy_claim(
        key="does-not-overfit",
        section="abstract and section 1",
        text="Overfitting does not occur with the contrastive loss.",
        criterion="InfoNCE's dev score falls by less than 0.01 from its highest to the end of training. Trainings "
        f"shorter than the authors' 7,800 steps can only refute this. {READ_FROM_LONGEST}",
        places=LONGEST_FIRST,
        says=does_not_overfit,
    ),
    *(
        inadequacy_claim(
            key=f"{part}-dissipates",
            section="section 1",
            text="The gradient signal of the contrastive loss dissipates in training; that of decoupled losses does "
            f"not ({part} part).",
            criterion=f"The logarithm of the {part} part's norm, at the end relative to the beginning, is larger for "
            "decoupled losses. The margin is a factor of 1.25. Read on the projected embeddings of the training "
            "batches.",
            places=LONG_OR_SHORT,
            says=dissipates(part),
        )
        for part in ("alignment", "uniformity")
    ),
    inadequacy_claim(
        key="imitations-as-good",
        section="abstract and section 1",
        text="Losses that imitate dissipation perform as well as the contrastive loss, or better.",
        criterion="None of “Decoupled, cut at zero”, MET, MAT and MPT scores 0.02 or more below InfoNCE.",
        places=(ClaimPlace("decoupled"),),
        says=lambda results: results.each_above(IMITATIONS, ["infonce"], bound=COMPARABLE),
    ),
    inadequacy_claim(
        key="imitations-do-not-overfit",
        section="section 1",
        text="Losses that imitate dissipation alleviate overfitting.",
        criterion="The dev score of each decoupled loss that overfits, corrected for their number, falls further from "
        "its highest than that of each of “Decoupled, cut at zero”, MET, MAT and MPT (margin 0.01). Trainings shorter "
        "than the authors' 7,800 steps can only refute this. Tested if one overfits: its dev score falls by more than "
        f"0.01. {READ_FROM}",
        places=LONG_OR_SHORT,
        says=imitations_do_not_overfit,
    ),
)

CLAIMS = (*SIMULATED_CLAIMS, *LOSS_CLAIMS, *COMPONENT_CLAIMS, *SEPARATE_CLAIMS, *DECOUPLED_CLAIMS, *OVERFITTING_CLAIMS)

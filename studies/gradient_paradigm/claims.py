"""The claims of the gradient paradigm paper, and what results must show.

A claim of the kind "theorem" is proved and checked by tests. One of the kind "beyond the paper" is about a regime or a
measure that the paper does not claim.
"""

from collections.abc import Callable
from functools import partial
from math import radians

from multitask.evaluation.statistics import LEVEL
from multitask.experiments.grid_frames import ProbedAt
from multitask.experiments.table_definitions import row_key
from studies.engine.recipes import RETRIEVAL, TRANSFER
from studies.gradient_paradigm.condition_tables import ARCHITECTURE_NAMES, DEPTHS
from studies.gradient_paradigm.simulated_claims import HALF, paradigm_claim
from studies.gradient_paradigm.tables import (
    COMPONENT_SETTINGS,
    COMPONENTS,
    DEFAULT_ROW,
    LOSS_NAMES,
    MEANINGS,
    MODIFIED,
    NON_CONTRASTIVE,
    SYMBOLS,
    component_row,
    swept,
)
from studies.report.claims import (
    COMPARABLE,
    MARGIN,
    Claim,
    ClaimPlace,
    ClaimResults,
    every,
    every_chosen,
    in_both_places,
    in_degrees,
    last,
    peak,
    share,
    some,
)
from studies.report.verdicts import Bound, Statement

LARGEST_MARGIN = component_row("margin", 2.0)
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
            criterion=f"Some value of {SYMBOLS[parameter]} scores higher than both the smallest and the largest "
            "(margin 0.01).",
            places=(ClaimPlace("gradient"),),
            says=best_between(parameter),
        )
        for parameter, what in MEANINGS.items()
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
        "With the defaults (m 0.30, τ 0.05, r 1) the hardest negative makes more than half of the push at the end of "
        "training. Half is our threshold: the paper names none. {read}",
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

# The components by task.


def each_raised_by(component: str, results: ClaimResults) -> Statement:
    """Each loss that can have the component scores higher with it, averaged over the others."""
    effects: list[Statement] = []
    for loss in COMPONENT_SETTINGS:
        on, off = list[str](), list[str]()
        for row in results.table.table.rows:
            components = row.point["components"]
            assert isinstance(components, tuple)
            if row.point["loss"] == loss:
                (on if component in components else off).append(row.key)
        if on:
            weights = dict.fromkeys(on, 1 / len(on)) | dict.fromkeys(off, -1 / len(off))
            effects.append(Bound(f"{LOSS_NAMES[loss]}, {component}", results.contrast(weights), margin=MARGIN))
    return every(effects)


BY_TASK_CLAIMS = tuple(
    paradigm_claim(
        key=f"{component}-on-{column.lower()}",
        section="section 4",
        kind="beyond the paper",
        text=f"The {component} component raises scores on {tasks}.",
        criterion="Averaged over the settings of the other components, each non-contrastive loss that can have it "
        "scores higher with it (margin 0.01). Criterion made before any run.",
        places=(ClaimPlace("components-suites", column),),
        says=partial(each_raised_by, component),
    )
    for component in COMPONENTS
    for column, tasks in ((TRANSFER, "the transfer tasks"), (RETRIEVAL, "the retrieval tasks"))
)

# The weight and the coefficient that changes with it; where components should stop mattering.


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
    return lambda results: results.equal(row, less)


SEPARATE_CLAIMS = tuple(
    paradigm_claim(
        key=key,
        section="section 3.2",
        kind="beyond the paper",
        text=text,
        criterion=f"{criterion} Criterion made before any run.",
        places=(ClaimPlace(table),),
        says=says,
    )
    for key, table, text, criterion, says in (
        (
            "coefficient-alone",
            "coefficients",
            "A smaller coefficient of the uniformity part, λ 1 in place of 10 or 30, helps MHE, Barlow Twins and "
            "VICReg by itself.",
            "Without the weight component, each of the three scores higher with λ 1 than with its usual λ (margin "
            "0.01).",
            each_higher((1.0, "off"), (None, "off")),
        ),
        (
            "weight-alone",
            "coefficients",
            "The weight component helps MHE, Barlow Twins and VICReg at the same λ.",
            "With λ 1, each of the three scores higher with the weight component than without (margin 0.01).",
            each_higher((1.0, "on"), (1.0, "off")),
        ),
        (
            "ratio-at-a-tiny-rate",
            "break-conditions",
            "At a tiny learning rate the ratio makes no difference.",
            "At a fiftieth of the usual learning rate, r 2 and r 0.25 score within 0.01 of each other.",
            no_difference("tiny-rate", "ratio", 0.25, 2.0),
        ),
        (
            "weight-among-hard-negatives",
            "break-conditions",
            "If all negatives are hard, the weight's focus on the hardest makes no difference.",
            "With the 16 hardest of 127 negatives alone, τ 1 and τ 0.05 score within 0.01 of each other.",
            no_difference("hardest", "temperature", 0.05, 1.0),
        ),
    )
)

CLAIMS = (*LOSS_CLAIMS, *COMPONENT_CLAIMS, *BY_TASK_CLAIMS, *SEPARATE_CLAIMS)

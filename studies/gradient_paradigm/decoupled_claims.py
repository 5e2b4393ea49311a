"""The claims of the gradient dissipation paper: decoupled losses score lower, and overfit."""

from collections.abc import Callable
from math import log

from multitask.evaluation.statistics import LEVEL
from multitask.experiments.grid_frames import ProbedAt
from studies.gradient_paradigm.simulated_claims import inadequacy_claim
from studies.report.claims import (
    COMPARABLE,
    MARGIN,
    Claim,
    ClaimPlace,
    ClaimResults,
    every,
    every_chosen,
    fall,
    in_both_places,
    last,
    last_score,
    shrinks,
)
from studies.report.verdicts import Statement

DECOUPLED = ("align_uniform", "dcl")
IMITATIONS = ("dcl_positive", "met", "mat", "mpt")
AUTHORS_STEPS = 7800  # of the authors' trainings

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
        "sum of both metrics is lower (better) than InfoNCE's. Tested if some score is lower. {read} "
        f"{READ_FROM_LONGEST} Reading from 30 epochs was added after these runs.",
        text="The alignment and uniformity metrics do not reflect that decoupled losses perform worse.",
        paper="inadequacy",
        section="section 1",
        places=LONGEST_FIRST,
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

CLAIMS = (*DECOUPLED_CLAIMS, *OVERFITTING_CLAIMS)

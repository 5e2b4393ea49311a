"""The papers' claims that trained models decide: tests on the scores of rows, and on what the gradient probe saw."""

from collections.abc import Callable
from functools import partial

from studies.engine.experiments import STS, TRANSFER
from studies.gradient_paradigm import INADEQUACY, UNIFIED
from studies.gradient_paradigm import tables_of_sweeps as sweeps
from studies.gradient_paradigm.tables_of_losses import DECOUPLING, EPOCHS, LABELS, MODIFIED, WITHOUT_NEGATIVES
from studies.gradient_paradigm.tables_of_sweeps import DEFAULT_LABEL, DEFAULT_ROW, component_label, component_row
from studies.report.format import score
from studies.report.run_results import RunResult
from studies.report.table_results import TableResults
from studies.report.verdicts import (
    AS_GOOD,
    SCORE,
    SURE,
    SURE_OF_ANY,
    UNTESTED,
    Claim,
    Decide,
    RowPairs,
    Tables,
    Verdict,
    above,
    each,
    family,
    higher,
    highest,
    last,
    measured,
    measures_above,
    on_table,
    reaches,
    shown,
    shrinks,
    values,
)

KEEPS = 0.01
"""A loss does not overfit if its score falls by less than this from its highest."""
RARELY = 0.01
"""A smaller share of anchors decides nothing."""
GAP, PUSH, CLOSER = "distance gap", "hardest negative push", "closer to positive"
DISSIPATED = "dissipated anchors"
ALIGNMENT, UNIFORMITY = "alignment gradient", "uniformity gradient"
OBJECTIVES, ON_SUITES, GRADIENT, DECOUPLED = "objectives", "objectives-suites", "gradient", "decoupled"
"""Keys of the tables that decide claims."""

CONTRASTIVE = "infonce"
PLAIN, REPAIRED = WITHOUT_NEGATIVES, tuple(MODIFIED.values())
WITHOUT_DISSIPATION = ("align_uniform", "dcl")
DISSIPATING = ("dcl_positive", "met", "mat", "mpt")
CONTRASTIVE_OVER_DECOUPLED = [(CONTRASTIVE, row) for row in WITHOUT_DISSIPATION]
DECOUPLED_OVER_CONTRASTIVE = [(row, CONTRASTIVE) for row in WITHOUT_DISSIPATION]


def swept(parameter: str) -> dict[float, str]:
    """Keys of the gradient form's rows along one parameter, by its value in rising order."""
    values = sorted((*sweeps.VARIED[parameter], sweeps.DEFAULTS[parameter]))
    return {value: component_row(parameter, value) for value in values}


NO_DISSIPATION = swept("margin")[max(swept("margin"))]
LOWEST_RATIO, *_, HIGHEST_RATIO = swept("ratio").values()
LOWEST_TEMPERATURE, *_, HIGHEST_TEMPERATURE = swept("temperature").values()


def _fall(run: RunResult) -> float | None:
    """The highest dev score less the dev score at the end of training."""
    curve = run.curve(SCORE)
    return max(curve) - curve[-1] if len(curve) > 1 else None


def _last_score(run: RunResult) -> float | None:
    """The dev score at the end of training."""
    curve = run.curve(SCORE)
    return curve[-1] if curve else None


def _alignment_and_uniformity(run: RunResult) -> float | None:
    """Alignment plus uniformity of the training batches at the end (Wang & Isola 2020); lower is better."""
    alignment, uniformity = (last(metric)(run) for metric in ("alignment", "uniformity"))
    return None if alignment is None or uniformity is None else alignment + uniformity


def _on_similarity(decide: Callable[[TableResults, RowPairs, str], Verdict | None], pairs: RowPairs) -> Decide:
    """By the seven similarity tasks if they were scored. Otherwise by the dev set, which selected the checkpoints."""
    places = {
        "mean of the STS tasks": on_table(ON_SUITES, lambda results: decide(results, pairs, STS)),
        "dev set": on_table(OBJECTIVES, lambda results: decide(results, pairs, SCORE)),
    }

    def decided(tables: Tables) -> Verdict:
        verdicts = ((place, decide_there(tables)) for place, decide_there in places.items())
        tested = ((place, verdict) for place, verdict in verdicts if verdict.status != UNTESTED.status)
        return next((Verdict(verdict.status, f"{place}: {verdict.evidence}") for place, verdict in tested), UNTESTED)

    return decided


def _optimum_within(parameter: str, results: TableResults) -> Verdict | None:
    """Whether some value scores higher than both the smallest and the largest one."""
    rows = {f"{sweeps.SYMBOLS[parameter]} {value:g}": row for value, row in swept(parameter).items()}
    smallest, *within, largest = rows
    pairs = [(value, end) for value in within for end in (smallest, largest)]
    tests = family({f"{a} over {b}": results.contrast({rows[a]: 1, rows[b]: -1}, SCORE) for a, b in pairs})
    if tests is None:
        return None
    means = {value: results.estimates[row, SCORE].mean for value, row in rows.items()}
    to_ends = {
        value: {name: tests[name] for name in (f"{value} over {smallest}", f"{value} over {largest}")}
        for value in within
    }
    better = [value for value in within if all(map(higher, to_ends[value].values()))]
    evidence = [
        "means " + ", ".join(f"{score(mean)} at {value}" for value, mean in means.items()),
        shown(to_ends[max(within, key=means.__getitem__)]),
        f"higher than at both ends: {', '.join(better) or 'none'}",
    ]
    return Verdict.of(bool(better), "; ".join(evidence))


def _dominates(results: TableResults) -> Verdict | None:
    share = measured(results, last(PUSH), {DEFAULT_ROW: 1})
    if share is None:
        return None
    low, high = share.interval()
    return Verdict.of(low > 0.5, f"{score(share.value)} [{score(low)}, {score(high)}] at the end of training")


def _smaller_gap(results: TableResults) -> Verdict | None:
    """Tested only if the gate stopped some anchors; otherwise both trainings are the same."""
    closed = values(results, DEFAULT_ROW, highest(DISSIPATED))
    if not len(closed) or closed.mean() < RARELY:
        share = f"{closed.mean():.1%} at most" if len(closed) else "not known"
        return Verdict("not tested here", f"share of anchors that the gate stops with the defaults: {share}")
    return measures_above(results, last(GAP), [(NO_DISSIPATION, DEFAULT_ROW)])


def _nearer_more_often(results: TableResults) -> Verdict | None:
    """Tested only if a larger ratio has something to gain."""
    rates = {row: values(results, row, last(CLOSER)) for row in (LOWEST_RATIO, HIGHEST_RATIO)}
    if not all(map(len, rates.values())):
        return None
    if min(rate.mean() for rate in rates.values()) > 1 - RARELY:
        found = ", ".join(f"{rate.mean():.1%} with {results.table.label(row)}" for row, rate in rates.items())
        return Verdict("not tested here", f"nearly all anchors come closer with either ratio: {found}")
    return measures_above(results, last(CLOSER), [(HIGHEST_RATIO, LOWEST_RATIO)])


def _not_reflected(results: TableResults) -> Verdict | None:
    rows = {results.table.label(row): row for row in WITHOUT_DISSIPATION}
    scores = family({name: measured(results, _last_score, {row: 1, CONTRASTIVE: -1}) for name, row in rows.items()})
    if scores is None:
        return None
    lower = {name: rows[name] for name, test in scores.items() if test.significant and test.difference < 0}
    if not lower:
        return Verdict("not tested here", f"scores at the end less InfoNCE's: {shown(scores)}")
    metrics = each(
        {name: measured(results, _alignment_and_uniformity, {row: 1, CONTRASTIVE: -1}) for name, row in lower.items()}
    )
    if metrics is None:
        return None
    return Verdict.of(all(test.high < 0 for test in metrics.values()), f"sum less InfoNCE's: {shown(metrics)}")


def _does_not_overfit(results: TableResults) -> Verdict | None:
    fall = measured(results, _fall, {CONTRASTIVE: 1})
    if fall is None:
        return None
    low, high = fall.interval()
    return Verdict.of(high < KEEPS, f"falls by {score(fall.value)} [{score(low)}, {score(high)}] from its highest")


_LABEL = {row: component_label(name, value) for name in sweeps.VARIED for value, row in swept(name).items()}
_PLAIN = ", ".join(LABELS[row] for row in PLAIN)
_IMITATIONS = ", ".join(DECOUPLING[row] for row in DISSIPATING)
_ON_STS = "On the STS tasks, or on the dev set if those were not scored"

_unified = partial(Claim[Tables], UNIFIED)
_inadequacy = partial(Claim[Tables], INADEQUACY)
TRAINED_CLAIMS: tuple[Claim[Tables], ...] = (
    _unified(
        "abstract and section 4",
        "Losses without negatives are ineffective for semantic textual similarity, where contrastive ones excel.",
        f"{_ON_STS}, InfoNCE scores higher than each of {_PLAIN}, {SURE}.",
        _on_similarity(above, [(CONTRASTIVE, row) for row in PLAIN]),
    ),
    _unified(
        "section 4",
        "With dissipation, weight and ratio, losses without negatives become effective.",
        f"{_ON_STS}, each modified loss scores higher than the plain one, {SURE}.",
        _on_similarity(above, list(zip(REPAIRED, PLAIN, strict=True))),
    ),
    _unified(
        "section 4",
        "The modified losses are comparable to mainstream contrastive ones.",
        f"{_ON_STS}, no modified loss scores {AS_GOOD} or more below InfoNCE, by the lower bound of the difference "
        "(95%).",
        _on_similarity(reaches, [(row, CONTRASTIVE) for row in REPAIRED]),
    ),
    _unified(
        "section 4",
        "The modified losses keep their performance on transfer tasks.",
        f"On the mean of the transfer tasks, no modified loss scores {AS_GOOD} or more below the plain loss, by the "
        "lower bound of the difference (95%).",
        on_table(ON_SUITES, partial(reaches, pairs=list(zip(REPAIRED, PLAIN, strict=True)), column=TRANSFER)),
    ),
    *(
        _unified(
            "section 3.2",
            f"There is a suitable {meaning}, above and below which performance falls.",
            f"Some value of {sweeps.SYMBOLS[parameter]} scores higher than both the smallest and the largest value, "
            f"{SURE_OF_ANY}.",
            on_table(GRADIENT, partial(_optimum_within, parameter)),
        )
        for parameter, meaning in sweeps.MEANINGS.items()
    ),
    _unified(
        "section 3.2",
        "Conjecture 1 in training: with dissipation the gap between negatives and positives remains smaller.",
        f"At the end of training, the distance gap with {_LABEL[NO_DISSIPATION]}, which dissipates nothing, is larger "
        f"than with the defaults ({DEFAULT_LABEL}), {SURE}. Tested if the defaults' gate stops {RARELY:.0%} of the "
        "anchors at some evaluation.",
        on_table(GRADIENT, _smaller_gap),
    ),
    _unified(
        "section 3.2",
        "Conjecture 2 in training: the hardest negative has a dominant position.",
        f"With the defaults ({DEFAULT_LABEL}) the hardest negative makes more than half of the push, by the lower "
        "bound (95%).",
        on_table(GRADIENT, _dominates),
    ),
    _unified(
        "section 3.2",
        "A higher temperature of the weight takes its dominance from the hardest negative.",
        f"The hardest negative's share of the push is larger with {_LABEL[LOWEST_TEMPERATURE]} than with "
        f"{_LABEL[HIGHEST_TEMPERATURE]}, {SURE}.",
        on_table(
            GRADIENT, partial(measures_above, measure=last(PUSH), pairs=[(LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)])
        ),
    ),
    _unified(
        "section 3.2",
        "Conjecture 3 in training: a larger ratio meets Lemma 1's condition more frequently.",
        "At the end of training, the share of anchors that a step brings closer to their positive is larger with "
        f"{_LABEL[HIGHEST_RATIO]} than with {_LABEL[LOWEST_RATIO]}, {SURE}. Tested if one of the shares is below "
        f"{1 - RARELY:.0%}.",
        on_table(GRADIENT, _nearer_more_often),
    ),
    _inadequacy(
        "abstract and section 1",
        "Optimising alignment and uniformity, or the decoupled contrastive loss, scores below the contrastive loss.",
        f"InfoNCE scores higher than each of the two, {SURE}. Every loss is scored by its best checkpoint in {EPOCHS} "
        "epochs.",
        on_table(DECOUPLED, partial(above, pairs=CONTRASTIVE_OVER_DECOUPLED)),
    ),
    _inadequacy(
        "section 1",
        "The alignment and uniformity metrics do not reflect that decoupled losses perform worse.",
        f"Take each decoupled loss whose dev score at the end is lower than InfoNCE's, {SURE_OF_ANY}. Its sum of both "
        "metrics is lower (better) than InfoNCE's, by the upper bound of the difference (95%). The metrics are those "
        "of the training batches' projected embeddings, on which one of the losses is trained. Tested if some score is "
        "lower.",
        on_table(DECOUPLED, _not_reflected),
    ),
    _inadequacy(
        "abstract and section 1",
        "Training with decoupled losses is prone to overfitting.",
        f"The dev score falls further from its highest to the end of training than InfoNCE's does, {SURE}.",
        on_table(DECOUPLED, partial(measures_above, measure=_fall, pairs=DECOUPLED_OVER_CONTRASTIVE)),
    ),
    _inadequacy(
        "abstract and section 1",
        "Overfitting does not occur with the contrastive loss.",
        f"InfoNCE's dev score falls by less than {KEEPS} from its highest to the end of training, by the upper bound "
        "(95%).",
        on_table(DECOUPLED, _does_not_overfit),
    ),
    *(
        _inadequacy(
            "section 1",
            "The gradient signal of the contrastive loss dissipates in training; that of decoupled losses does not "
            f"({part} part).",
            f"The logarithm of the {part} part's norm, at the end relative to the beginning, is larger for decoupled "
            f"losses, {SURE}.",
            on_table(DECOUPLED, partial(measures_above, measure=shrinks(statistic), pairs=DECOUPLED_OVER_CONTRASTIVE)),
        )
        for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
    ),
    _inadequacy(
        "abstract and section 1",
        "Losses that imitate dissipation perform as well as the contrastive loss, or better.",
        f"None of {_IMITATIONS} scores {AS_GOOD} or more below InfoNCE, by the lower bound (95%).",
        on_table(DECOUPLED, partial(reaches, pairs=[(row, CONTRASTIVE) for row in DISSIPATING])),
    ),
    _inadequacy(
        "section 1",
        "Losses that imitate dissipation alleviate overfitting.",
        f"The dev score of each decoupled loss falls further from its highest than that of each of {_IMITATIONS}, "
        f"{SURE}.",
        on_table(
            DECOUPLED,
            partial(measures_above, measure=_fall, pairs=[(a, b) for a in WITHOUT_DISSIPATION for b in DISSIPATING]),
        ),
    ),
)

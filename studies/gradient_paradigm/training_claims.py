"""The papers' claims that trained models decide: tests on the scores of rows, and on what the gradient probe saw."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import degrees, exp, log, radians

from multitask.evaluation.statistics import LEVEL
from studies.engine.experiments import STS, TRANSFER
from studies.gradient_paradigm import INADEQUACY, UNIFIED
from studies.gradient_paradigm import tables_of_sweeps as sweeps
from studies.gradient_paradigm.tables_of_losses import DECOUPLING, EPOCHS, LABELS, LONGER, MODIFIED, NON_CONTRASTIVE
from studies.gradient_paradigm.tables_of_sweeps import DEFAULT_LABEL, DEFAULT_ROW, component_label, component_row
from studies.report.evidence import Above, Below, Every, Limited, Some, Statement
from studies.report.format import score, signed
from studies.report.run_results import Place, RunResult
from studies.report.table_results import TableResults
from studies.report.verdicts import (
    EQUAL,
    SCORE,
    UNTESTED,
    Decide,
    Measure,
    RowPairs,
    Tables,
    Verdict,
    above,
    complete,
    difference,
    highest,
    last,
    measured,
    measures_above,
    on_table,
    reaches,
    read_claims,
    shrinks,
    values,
)

KEEPS = 0.01
"""A loss does not overfit if its score falls by less than this from its highest."""
RARELY, NEARLY_ALL = 0.01, 0.99
"""A smaller share of anchors, or a larger one, decides nothing."""
SAME_GAP, SAME_SHARE, SAME_NORM = radians(1), 0.05, log(1.25)
"""Claims of a larger gap, share or norm are refuted if the difference is surely smaller: 1°, 5 points, a quarter."""
HELD_OUT: Place = "held-out sentences"
BATCHES: Place = "training batches"
GAP, PUSH, CLOSER = "distance gap", "hardest negative push", "closer to positive"
DISSIPATED = "dissipated anchors"
ALIGNMENT, UNIFORMITY = "alignment gradient", "uniformity gradient"
OBJECTIVES, ON_SUITES, GRADIENT = "objectives", "objectives-suites", "gradient"
DECOUPLED, DECOUPLED_LONG = "decoupled", "decoupled-long"
"""Keys of the tables that decide claims."""

CONTRASTIVE = "infonce"
PLAIN, REPAIRED = NON_CONTRASTIVE, tuple(MODIFIED.values())
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


def _fall(run: RunResult) -> float | None:
    """The highest dev score less the dev score at the end of training."""
    curve = run.curve(SCORE)
    return max(curve) - curve[-1] if len(curve) > 1 else None


def _still_rising(results: TableResults, rows: Sequence[str]) -> str:
    """The rows whose trainings were too short to overfit, as a sentence; empty if there are none.

    A training is long enough if it came within `KEEPS` of its highest score before its second half.
    """

    def settled(run: RunResult) -> bool:
        steps, curve = [line["step"] for line in run.history], run.curve(SCORE)
        reached = next(step for step, value in zip(steps, curve, strict=True) if value > max(curve) - KEEPS)
        return bool(reached <= steps[-1] / 2)

    short = [row for row in rows if not all(settled(run) for run in results.runs.get(row, ()) if run.curve(SCORE))]
    names = ", ".join(map(results.table.label, short))
    return f"trained too briefly to overfit: {names}" if short else ""


def _last_score(run: RunResult) -> float | None:
    """The dev score at the end of training."""
    curve = run.curve(SCORE)
    return curve[-1] if curve else None


def _alignment_and_uniformity(place: Place) -> Measure:
    """Alignment plus uniformity at the end (Wang & Isola 2020); lower is better."""

    def measure(run: RunResult) -> float | None:
        alignment, uniformity = (last(metric, place)(run) for metric in ("alignment", "uniformity"))
        return None if alignment is None or uniformity is None else alignment + uniformity

    return measure


def _on_similarity(
    decide: Callable[[TableResults, RowPairs, str], Verdict | Statement | None], pairs: RowPairs
) -> Decide:
    """By the seven similarity tasks if they were scored. Otherwise by the dev set, which selected the checkpoints."""
    return _first_tested(
        {
            "mean of the STS tasks": on_table(ON_SUITES, lambda results: decide(results, pairs, STS)),
            "dev set": on_table(OBJECTIVES, lambda results: decide(results, pairs, SCORE)),
        }
    )


def _on_longest(decide: Callable[[TableResults], Verdict | Statement | None]) -> Decide:
    """By the trainings of ten epochs if there are any. Otherwise by the shorter ones."""
    return _first_tested(
        {f"{LONGER} epochs": on_table(DECOUPLED_LONG, decide), f"{EPOCHS} epochs": on_table(DECOUPLED, decide)}
    )


def _first_tested(places: Mapping[str, Decide]) -> Decide:
    """By the first place whose rows were run. The evidence begins with its name."""

    def decided(tables: Tables) -> Verdict:
        verdicts = ((place, decide_there(tables)) for place, decide_there in places.items())
        scored = ((place, verdict) for place, verdict in verdicts if verdict != UNTESTED)
        return next((Verdict(verdict.status, f"{place}: {verdict.evidence}") for place, verdict in scored), UNTESTED)

    return decided


def _become_effective(results: TableResults, pairs: RowPairs, column: str) -> Verdict | None:
    """The first row of each pair is better than the second, and comparable to InfoNCE, where the second is not.

    A loss that may be comparable without components does not refute the claim.
    """
    before = reaches(results, [(plain, CONTRASTIVE) for _, plain in pairs], column)
    after = reaches(results, [(modified, CONTRASTIVE) for modified, _ in pairs], column)
    better = above(results, pairs, column)
    if before is None or after is None or better is None:
        return None
    repairs, left_out, level = [], [], LEVEL / len(pairs)
    for plain, modified, gain in zip(before.parts, after.parts, better.parts, strict=True):
        if plain.shown(level):
            left_out.append(f"{plain.text}; {gain.text}")
        else:
            unsure = "" if plain.refuted(level) else "it is not known whether the plain loss is comparable already"
            repairs.append(Limited(Every([gain, modified]), unsure, shows=True))
    effective = f"comparable to InfoNCE without components: {'; '.join(left_out)}" if left_out else ""
    if not repairs:
        return Verdict("not tested here", effective)
    every = Every(repairs)
    return Verdict.of(every, "; ".join(filter(None, (every.text, effective))))


def _optimum_within(parameter: str, results: TableResults) -> Verdict | None:
    """Some value scores higher than both the smallest and the largest one."""
    rows = {f"{sweeps.SYMBOLS[parameter]} {value:g}": row for value, row in swept(parameter).items()}
    smallest, *within, largest = rows
    ends = smallest, largest
    pairs = list(product(within, ends))
    known = complete({(value, end): difference(results, {rows[value]: 1, rows[end]: -1}) for value, end in pairs})
    if known is None:
        return None
    to_ends = {
        value: Every([Above(f"{value} less {end}", known[value, end], margin=EQUAL) for end in ends])
        for value in within
    }
    some = Some(list(to_ends.values()))
    better = [value for value, sure in zip(within, some.each_shown(), strict=True) if sure]
    means = {value: results.estimates[row, SCORE].mean for value, row in rows.items()}
    evidence = [
        "means " + ", ".join(f"{score(mean)} at {value}" for value, mean in means.items()),
        to_ends[max(within, key=means.__getitem__)].text,
        f"higher than at both ends: {', '.join(better) or 'none'}",
    ]
    return Verdict.of(some, "; ".join(evidence))


def _dominates(place: Place, results: TableResults) -> Statement | None:
    share = measured(results, last(PUSH, place), {DEFAULT_ROW: 1})
    return None if share is None else Above("", share, 0.5, form=_as_share)


def _as_share(value: float) -> str:
    """Bounds of an interval may lie outside of 0 to 1."""
    return score(min(max(value, 0.0), 1.0))


def _in_degrees(angle: float) -> str:
    return f"{signed(degrees(angle), 1)}°"


def _smaller_gap(place: Place, results: TableResults) -> Verdict | Statement | None:
    """Tested only if the gate stopped some anchors; otherwise both trainings are the same."""
    closed = values(results, DEFAULT_ROW, highest(DISSIPATED))
    if not len(closed) or closed.mean() < RARELY:
        share = f"{closed.mean():.1%} at most" if len(closed) else "not known"
        return Verdict("not tested here", f"share of anchors that the gate stops with the defaults: {share}")
    return measures_above(results, last(GAP, place), [(NO_DISSIPATION, DEFAULT_ROW)], SAME_GAP, _in_degrees)


def _nearer_more_often(place: Place, results: TableResults) -> Verdict | Statement | None:
    """Tested only if a larger ratio has something to gain."""
    rates = {row: values(results, row, last(CLOSER, place)) for row in (LOWEST_RATIO, HIGHEST_RATIO)}
    if not all(map(len, rates.values())):
        return None
    if min(rate.mean() for rate in rates.values()) > NEARLY_ALL:
        found = ", ".join(f"{rate.mean():.1%} with {results.table.label(row)}" for row, rate in rates.items())
        return Verdict("not tested here", f"nearly all anchors come closer with either ratio: {found}")
    return measures_above(results, last(CLOSER, place), [(HIGHEST_RATIO, LOWEST_RATIO)], SAME_SHARE)


def _not_reflected(place: Place, results: TableResults) -> Verdict | Statement | None:
    rows = {results.table.label(row): row for row in WITHOUT_DISSIPATION}
    scores = complete({name: measured(results, _last_score, {row: 1, CONTRASTIVE: -1}) for name, row in rows.items()})
    if scores is None:
        return None
    some = Some([Below(name, found) for name, found in scores.items()])
    names = [name for name, sure in zip(scores, some.each_shown(), strict=True) if sure]
    if not names:
        return Verdict("not tested here", f"scores at the end less InfoNCE's: {some.text}")
    metric = _alignment_and_uniformity(place)
    sums = complete({name: measured(results, metric, {rows[name]: 1, CONTRASTIVE: -1}) for name in names})
    return None if sums is None else Every([Below(f"{name} less InfoNCE", found) for name, found in sums.items()])


def _overfits(results: TableResults) -> Statement | None:
    more = measures_above(results, _fall, DECOUPLED_OVER_CONTRASTIVE, KEEPS)
    falls = complete({row: measured(results, _fall, {row: 1}) for row in WITHOUT_DISSIPATION})
    if more is None or falls is None:
        return None
    fall = [Above(f"{results.table.label(row)} falls by", of, KEEPS, form=score) for row, of in falls.items()]
    return Limited(Every([more, *fall]), _still_rising(results, WITHOUT_DISSIPATION), shows=True)


def _does_not_overfit(results: TableResults) -> Statement | None:
    fall = measured(results, _fall, {CONTRASTIVE: 1})
    if fall is None:
        return None
    return Limited(Below("falls by", fall, KEEPS, form=score), _still_rising(results, [CONTRASTIVE]), refutes=True)


def _imitations_do_not_overfit(results: TableResults) -> Verdict | Statement | None:
    """Tested only with decoupled losses that overfit; otherwise there is nothing to alleviate."""
    falls = complete({row: measured(results, _fall, {row: 1}) for row in WITHOUT_DISSIPATION})
    if falls is None:
        return None
    some = Some([Above(results.table.label(row), fall, KEEPS, form=score) for row, fall in falls.items()])
    rows = [row for row, sure in zip(falls, some.each_shown(), strict=True) if sure]
    if not rows:
        return Verdict(
            "not tested here", f"no decoupled loss is shown to overfit; falls of their dev scores: {some.text}"
        )
    further = measures_above(results, _fall, list(product(rows, DISSIPATING)), KEEPS)
    return further and Limited(further, _still_rising(results, DISSIPATING), refutes=True)


_LABEL = {row: component_label(name, value) for name in sweeps.VARIED for value, row in swept(name).items()}
IN_BRACES = {
    "ON_STS": "On the STS tasks, or on the dev set if those were not scored",
    "PLAIN_LOSSES": ", ".join(LABELS[row] for row in PLAIN),
    "HELD_OUT": "Read on held-out sentences without the projection, as in the paper's statistics.",
    "IN_BATCHES": "Read on the projected embeddings of the training batches.",
    "LONG_ENOUGH": f"within {KEEPS} of their highest score before their second half",
    "IMITATIONS": ", ".join(DECOUPLING[row] for row in DISSIPATING),
    "EPOCHS": EPOCHS,
    "LONGEST": f"Read from {LONGER} epochs if they were run with three seeds, otherwise from {EPOCHS}.",
    "KEEPS": KEEPS,
    "RARELY": RARELY,
    "NEARLY_ALL": NEARLY_ALL,
    "SAME_SHARE": SAME_SHARE,
    "SAME_NORM": exp(SAME_NORM),
    "DEFAULTS": DEFAULT_LABEL,
    "NO_DISSIPATION": _LABEL[NO_DISSIPATION],
    "LOWEST_RATIO": _LABEL[LOWEST_RATIO],
    "HIGHEST_RATIO": _LABEL[HIGHEST_RATIO],
}
"""What stands for names in braces in claims.toml."""

_modified_over_plain = list(zip(REPAIRED, PLAIN, strict=True))
_on_gradient, _on_decoupled = partial(on_table, GRADIENT), partial(on_table, DECOUPLED)
_BY_PLACE: dict[str, tuple[Callable[..., Decide], Callable[[Place, TableResults], Verdict | Statement | None]]] = {
    "smaller-gap": (_on_gradient, _smaller_gap),
    "dominant-push": (_on_gradient, _dominates),
    "nearer-more-often": (_on_gradient, _nearer_more_often),
    "not-reflected": (_on_longest, _not_reflected),
}
"""Claims that are read twice: on held-out sentences as in the papers, and on training batches."""
DECISIONS: dict[str, Decide] = {
    "plain": _on_similarity(above, [(CONTRASTIVE, row) for row in PLAIN]),
    "modified-over-plain": _on_similarity(_become_effective, _modified_over_plain),
    "modified-as-good": _on_similarity(reaches, [(row, CONTRASTIVE) for row in REPAIRED]),
    "modified-transfer": on_table(ON_SUITES, partial(reaches, pairs=_modified_over_plain, column=TRANSFER)),
    **{parameter: _on_gradient(partial(_optimum_within, parameter)) for parameter in sweeps.VARIED},
    **{key: on(partial(decide, HELD_OUT)) for key, (on, decide) in _BY_PLACE.items()},
    **{f"{key}-in-batches": on(partial(decide, BATCHES)) for key, (on, decide) in _BY_PLACE.items()},
    "decoupled": _on_decoupled(partial(above, pairs=CONTRASTIVE_OVER_DECOUPLED)),
    "overfits": _on_longest(_overfits),
    "does-not-overfit": _on_longest(_does_not_overfit),
    **{
        f"{part}-dissipates": _on_decoupled(
            partial(measures_above, measure=shrinks(statistic), pairs=DECOUPLED_OVER_CONTRASTIVE, margin=SAME_NORM)
        )
        for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
    },
    "imitations-as-good": _on_decoupled(partial(reaches, pairs=[(row, CONTRASTIVE) for row in DISSIPATING])),
    "imitations-do-not-overfit": _on_longest(_imitations_do_not_overfit),
}
TRAINED_CLAIMS = read_claims(__file__, "trained", (UNIFIED, INADEQUACY), DECISIONS, IN_BRACES)

"""The papers' claims that trained models decide: tests on the scores of rows, and on what the gradient probe saw."""

from collections.abc import Callable
from functools import partial
from itertools import product

from studies.engine.experiments import STS, TRANSFER
from studies.gradient_paradigm import INADEQUACY, UNIFIED
from studies.gradient_paradigm import tables_of_sweeps as sweeps
from studies.gradient_paradigm.tables_of_losses import DECOUPLING, EPOCHS, LABELS, MODIFIED, WITHOUT_NEGATIVES
from studies.gradient_paradigm.tables_of_sweeps import DEFAULT_LABEL, DEFAULT_ROW, component_label, component_row
from studies.report.format import score
from studies.report.run_results import RunResult
from studies.report.table_results import TableResults
from studies.report.verdicts import (
    SCORE,
    UNTESTED,
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
    read_claims,
    shown,
    shrinks,
    values,
)

KEEPS = 0.01
"""A loss does not overfit if its score falls by less than this from its highest."""
RARELY, NEARLY_ALL = 0.01, 0.99
"""A smaller share of anchors, or a larger one, decides nothing."""
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
    if min(rate.mean() for rate in rates.values()) > NEARLY_ALL:
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
IN_BRACES = {
    "ON_STS": "On the STS tasks, or on the dev set if those were not scored",
    "PLAIN_LOSSES": ", ".join(LABELS[row] for row in PLAIN),
    "IMITATIONS": ", ".join(DECOUPLING[row] for row in DISSIPATING),
    "EPOCHS": EPOCHS,
    "KEEPS": KEEPS,
    "RARELY": RARELY,
    "NEARLY_ALL": NEARLY_ALL,
    "DEFAULTS": DEFAULT_LABEL,
    "NO_DISSIPATION": _LABEL[NO_DISSIPATION],
    "LOWEST_TEMPERATURE": _LABEL[LOWEST_TEMPERATURE],
    "HIGHEST_TEMPERATURE": _LABEL[HIGHEST_TEMPERATURE],
    "LOWEST_RATIO": _LABEL[LOWEST_RATIO],
    "HIGHEST_RATIO": _LABEL[HIGHEST_RATIO],
}
"""What stands for names in braces in claims.toml."""

_modified_over_plain = list(zip(REPAIRED, PLAIN, strict=True))
_on_gradient, _on_decoupled = partial(on_table, GRADIENT), partial(on_table, DECOUPLED)
DECISIONS: dict[str, Decide] = {
    "plain": _on_similarity(above, [(CONTRASTIVE, row) for row in PLAIN]),
    "modified-over-plain": _on_similarity(above, _modified_over_plain),
    "modified-as-good": _on_similarity(reaches, [(row, CONTRASTIVE) for row in REPAIRED]),
    "modified-transfer": on_table(ON_SUITES, partial(reaches, pairs=_modified_over_plain, column=TRANSFER)),
    **{parameter: _on_gradient(partial(_optimum_within, parameter)) for parameter in sweeps.VARIED},
    "smaller-gap": _on_gradient(_smaller_gap),
    "dominant-push": _on_gradient(_dominates),
    "push-falls-with-temperature": _on_gradient(
        partial(measures_above, measure=last(PUSH), pairs=[(LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)])
    ),
    "nearer-more-often": _on_gradient(_nearer_more_often),
    "decoupled": _on_decoupled(partial(above, pairs=CONTRASTIVE_OVER_DECOUPLED)),
    "not-reflected": _on_decoupled(_not_reflected),
    "overfits": _on_decoupled(partial(measures_above, measure=_fall, pairs=DECOUPLED_OVER_CONTRASTIVE)),
    "does-not-overfit": _on_decoupled(_does_not_overfit),
    **{
        f"{part}-dissipates": _on_decoupled(
            partial(measures_above, measure=shrinks(statistic), pairs=DECOUPLED_OVER_CONTRASTIVE)
        )
        for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
    },
    "imitations-as-good": _on_decoupled(partial(reaches, pairs=[(row, CONTRASTIVE) for row in DISSIPATING])),
    "imitations-do-not-overfit": _on_decoupled(
        partial(measures_above, measure=_fall, pairs=list(product(WITHOUT_DISSIPATION, DISSIPATING)))
    ),
}
TRAINED_CLAIMS = read_claims(__file__, "trained", (UNIFIED, INADEQUACY), DECISIONS, IN_BRACES)

"""Figures of trained models for the study's page: values over training, and effects of a loss's components.

Which components matter, and whether they interact, is a full two-level factorial for each loss. Every factor x_f is +1
(on) or −1 (off), and a cell is Σ_S b_S Π_{f∈S} x_f over all subsets S of the factors. The effect of S is 2 b_S (Box,
Hunter and Hunter 2005, chapter 5). For one factor it is the mean with the factor on less the mean with it off. For two
it is half of the growth of one's effect when the other is switched on.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import pandas

from multitask.evaluation.statistics import Uncertain
from multitask.experiments.compare_rows import TableResults, compared
from multitask.experiments.figures import Picture, intervals, lines, over_seeds
from multitask.experiments.grid_frames import ProbedAt, RunResult
from multitask.experiments.report_page import Section
from multitask.experiments.score_tables import difference
from studies.gradient_paradigm.tables import COMPONENTS, LOSS_NAMES, MEANINGS, MODIFIED, NON_CONTRASTIVE, SYMBOLS, swept
from studies.report.claims import LEAST_SEEDS, SCORE
from studies.report.study_page import as_intervals, section_of, table_section

Track = Callable[[RunResult], Sequence[tuple[float, float]]]  # from a run to steps and values
HELD_OUT_SENTENCES: ProbedAt = "held-out sentences"
STATISTIC_LABELS = {
    "distance gap": "mean angle to negatives less mean angle to the positive, radians",
    "hardest negative push": "share of the push that the hardest negative makes",
    "closer to positive": "share of anchors that a step brings closer to their positive",
}
NORMS = ("alignment", "uniformity")


def over_training(
    results: TableResults,
    panels: Mapping[str, Mapping[str, str]],
    track: Track,
    ylabel: str,
    caption: str,
    graded: bool = False,
    scale: str = "linear",
) -> Picture | None:
    """A value over training, means over seeds with bands of one standard deviation. None if no row has two points.

    `panels` has, by their headings, the keys of rows by the names of their lines; `graded` if these are values of a
    parameter.
    """
    drawn = {}
    for heading, rows in panels.items():
        seen = {name: [track(run) for run in results.runs.get(row, ())] for name, row in rows.items()}
        drawn[heading] = {
            name: over_seeds(tracks) for name, tracks in seen.items() if tracks and min(map(len, tracks)) > 1
        }
    title = f"{results.table.numbered_title}: {caption}"
    if not any(drawn.values()):
        return None
    size = (4.2, 2.9) if len(panels) == 1 else (2.9, 2.4)
    svg = lines(drawn, "step", title, ylabel=ylabel, graded=graded, scale=("linear", scale), size=size)
    return Picture(svg, title, caption)


def component_sweeps(found: TableResults) -> Section:
    """Statistics of the gradient probe over training. The scores are in the pictures of the tables."""
    drawn = [
        over_training(
            found,
            {"": {f"{SYMBOLS[parameter]} {value:g}": row for value, row in swept(parameter).items()}},
            partial(RunResult.probed, statistic=statistic, place=HELD_OUT_SENTENCES),
            statistic,
            f"{what}, by {MEANINGS[parameter]}",
            graded=True,
        )
        for statistic, what in STATISTIC_LABELS.items()
        for parameter in MEANINGS
    ]
    return Section(
        "sweeps",
        "One component varied at a time",
        "The gradient form with one of its components varied and the others at their defaults (arXiv 2402.18281, "
        "section 3.2): statistics of the gradient probe on held-out sentences without the projection, averaged between "
        "evaluations.",
        tuple(picture for picture in drawn if picture),
    )


_dev_curve: Track = partial(RunResult.curve_by_step, column=SCORE)


def _on_dev_set(run: RunResult, metric: str) -> list[tuple[float, float]]:
    """Steps, and alignment or uniformity of the STS dev set.

    Empty if an evaluation lacks it: seeds are averaged evaluation by evaluation.
    """
    seen = {line["step"]: line["numbers"].get(SCORE, {}).get(metric) for line in run.history}
    return [] if None in seen.values() else list(seen.items())


def _gap_to_sts(run: RunResult, metric: str) -> list[tuple[float, float]]:
    """Steps, and alignment or uniformity of the STS dev set less that of dropout views of its sentences.

    The latter is an average over the steps since the previous evaluation, as the gradient probe saw them. Empty if an
    evaluation lacks either.
    """
    of_dev_set, held_out = _on_dev_set(run, metric), dict(run.probed(metric, HELD_OUT_SENTENCES))
    complete = all(step in held_out for step, _ in of_dev_set)
    return [(step, value - held_out[int(step)]) for step, value in of_dev_set] if complete else []


def decoupling_section(found: TableResults) -> Section | None:
    """Dev curves, gradient norms and metrics of contrastive and decoupled losses."""
    draw = partial(over_training, found, {"": {row.label: row.key for row in found.table.rows}})
    drawn = [draw(_dev_curve, found.heading(SCORE).removeprefix("Similarity "), "dev score")]
    for part in NORMS:
        norm = partial(RunResult.probed, statistic=f"{part} gradient")
        drawn.append(draw(norm, "norm", f"norm of the {part} part of the anchors' gradient", scale="log"))
    for part in NORMS:
        held_out = partial(RunResult.probed, statistic=part, place=HELD_OUT_SENTENCES)
        drawn.append(draw(held_out, part, f"{part} of two dropout views of held-out sentences; lower is better"))
    for part in NORMS:
        caption = f"{part} of the STS dev set, less that of two dropout views of some of its sentences"
        drawn.append(draw(partial(_gap_to_sts, metric=part), f"gap of {part}", caption))
    return table_section(found, drawn)


def long_section(found: TableResults) -> Section | None:
    """Dev scores and uniformity over ten times the usual steps, of losses as published and of modified ones."""
    panels = {
        "As published": {LOSS_NAMES[key]: key for key in LOSS_NAMES if key not in MODIFIED.values()},
        "With three components": {LOSS_NAMES[key]: MODIFIED.get(key, key) for key in ("infonce", *MODIFIED)},
    }
    tracks: dict[str, Track] = {
        "dev score": _dev_curve,
        "uniformity of the dev set": partial(_on_dev_set, metric="uniformity"),
    }
    return table_section(found, [over_training(found, panels, track, what, what) for what, track in tracks.items()])


ActiveFactors = frozenset[str]  # the factors that are on


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets of the factors, from the empty one to the largest."""
    return [subset for size in range(len(factors) + 1) for subset in combinations(factors, size)]


def effect(factors: Sequence[str], chosen: Sequence[str]) -> dict[ActiveFactors, float]:
    """Weights of the cells whose sum is the effect of some factors: a main effect of one, an interaction of more."""
    cells = map(frozenset, subsets(factors))
    return {cell: (-1.0) ** len(set(chosen) - cell) / 2 ** (len(factors) - 1) for cell in cells}


def effects_of_components(results: TableResults) -> pandas.DataFrame:
    """Main effects and then interactions of the components by loss and effect, as one family of tests.

    For each loss with scores of all its cells. Interactions need `LEAST_SEEDS` seeds of every cell.
    """
    found: dict[tuple[Any, ...], Uncertain] = {}
    for loss in NON_CONTRASTIVE:
        points = {row.key: row.point for row in results.table.rows if row.point["loss"] == loss}
        cells = {frozenset(point["components"]): key for key, point in points.items()}  # type: ignore[arg-type]
        factors = [name for name in COMPONENTS if any(name in cell for cell in cells)]
        for chosen in subsets(factors)[1:]:
            weights = {cells.get(cell, ""): weight for cell, weight in effect(factors, chosen).items()}
            fewest = min(len(results.runs.get(row, ())) for row in weights)
            contrast = results.contrast(weights, "similarity")
            if contrast is not None and (len(chosen) == 1 or fewest >= LEAST_SEEDS):
                found[loss, " × ".join(chosen)] = contrast
    return compared(found)


def factorial_section(found: TableResults) -> Section | None:
    """A panel of effects for each loss, and a table of all effects. None without any."""
    if not len(effects := effects_of_components(found)):
        return None
    panels = {
        LOSS_NAMES[str(loss)]: as_intervals(loss_effects.droplevel(0))
        for loss, loss_effects in effects.groupby(level=0, sort=False)
    }
    lines = [(LOSS_NAMES[loss], name, difference(e).replace("\\", "")) for (loss, name), e in effects.iterrows()]
    title = "Effects of components on similarity"
    return Section(
        found.table.key,
        "Do the components act by themselves or together?",
        "Beyond the papers: every subset of the components that a loss can have. A main effect is the mean score with "
        "the component on less the mean score with it off, over all settings of the others. An interaction is half of "
        "the growth of one's effect when the other is switched on; it needs three seeds. Filled marks: significant "
        "after the correction for all effects.",
        (Picture(intervals(panels, title, dict.fromkeys(panels, 0.0)), title),),
        pandas.DataFrame(lines, columns=["Loss", "Effect", "On the score"]),
    )


SECTIONS = (
    section_of("gradient", component_sweeps),
    section_of("objectives-long", long_section),
    *(section_of(key, decoupling_section) for key in ("decoupled", "decoupled-long", "decoupled-longest")),
    section_of("components", factorial_section),
)

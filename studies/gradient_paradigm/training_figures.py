"""Figures of trained models for the study's page: sweeps over a parameter, and values over training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from studies.engine.experiments import RETRIEVAL, STS, TRANSFER
from studies.engine.table import Point, Table, Value
from studies.gradient_paradigm.factorial import factorial_section
from studies.gradient_paradigm.tables_of_losses import LABELS, MODIFIED
from studies.gradient_paradigm.tables_of_sweeps import (
    ARCHITECTURES,
    DEPTHS,
    DOMAINS,
    LIMITS,
    MEANINGS,
    NEGATIVES,
    SYMBOLS,
)
from studies.gradient_paradigm.training_claims import (
    ALIGNMENT,
    CLOSER,
    DECOUPLED,
    DECOUPLED_LONG,
    GAP,
    GRADIENT,
    HELD_OUT,
    PUSH,
    UNIFORMITY,
    swept,
)
from studies.report import figures
from studies.report.format import score
from studies.report.preset_results import PresetResults
from studies.report.run_results import RunResult
from studies.report.sections import Illustration, Section, table_section
from studies.report.table_results import TableResults
from studies.report.verdicts import SCORE

YLABEL = "similarity, Pearson correlation"
NAMES: dict[str, Mapping[Any, str]] = {
    "objective": LABELS,
    "architecture": ARCHITECTURES,
    "size": DEPTHS,
    "source": DOMAINS,
    "negatives": {way: name for way, (_, name) in NEGATIVES.items()},
    "limit": LIMITS,
}
"""Names for readers of values in points, by parameter."""


@dataclass(frozen=True)
class Sweep:
    """Rows of a table along one parameter of their points. Rows with equal other parameters form a line.

    Args:
        table: its key.
        parameter: the parameter.
        axis: its name for readers.
        caption: of the figure.
        ordered: whether to connect the values.
        columns: the scores; of several columns, each has a line of its own.
        ylabel: of the scores.
    """

    table: str
    parameter: str
    axis: str
    caption: str
    ordered: bool = True
    columns: tuple[str, ...] = (SCORE,)
    ylabel: str = YLABEL


AXES = {parameter: f"{meaning}, {SYMBOLS[parameter]}" for parameter, meaning in MEANINGS.items()}
COMPONENT_SWEEPS = tuple(
    Sweep(GRADIENT, parameter, axis, f"Dev score against {axis}. Bars: one standard deviation over seeds.")
    for parameter, axis in AXES.items()
)
TASK_SWEEPS = tuple(
    Sweep(
        "gradient-suites",
        parameter,
        axis,
        f"Mean score of each kind of task against {axis}. Bars: one standard deviation over seeds.",
        columns=(STS, TRANSFER, RETRIEVAL),
        ylabel="mean score of the tasks",
    )
    for parameter, axis in AXES.items()
)
OTHER_SWEEPS = (
    Sweep("batch-sizes", "batch_size", "batch size", "Batch size, at the same number of sentences."),
    Sweep("data-sizes", "limit", "sentences", "Number of sentences, at one pass over them."),
    Sweep(
        "negatives", "negatives", "negatives of an anchor", "Which sentences of the batch are negatives.", ordered=False
    ),
    Sweep("domains", "source", "domain", "What the sentences are about.", ordered=False),
    Sweep("shapes", "size", "encoder", "Family and size of an encoder that was trained from scratch."),
)


def rows_along(table: Table, parameter: str) -> dict[str, dict[Value, str]]:
    """Rows along one parameter: a line's name -> the row's key at each value.

    A line is two or more rows whose points differ by this parameter only. Its name is made from the other parameters.
    """
    lines: list[tuple[Point, dict[Value, str]]] = []
    for row in table.rows:
        others = {name: value for name, value in row.point.items() if name != parameter}
        line = next((line for point, line in lines if point == others), None)
        if line is None:
            lines.append((others, line := {}))
        line[row.point[parameter]] = row.key
    return {_name(point): line for point, line in lines if len(line) > 1}


def _name(point: Point) -> str:
    return ", ".join(NAMES[name][value] for name, value in point.items() if name in NAMES) or "gradient form"


def _in_order(values: Sequence[Value]) -> list[Value]:
    """Numbers in rising order, then all other values in the given order."""
    numbers = [value for value in values if isinstance(value, int | float)]
    rest = [value for value in values if value not in numbers]
    return [*sorted(numbers), *rest]


def sweep_figure(sweep: Sweep, results: PresetResults) -> Illustration | None:
    """Mean dev scores along a parameter. None if no row has a score."""
    if sweep.table not in results.finished_tables:
        return None
    found = results.finished_tables[sweep.table]
    rows = rows_along(found.table, sweep.parameter)
    values = _in_order(list(dict.fromkeys(value for line in rows.values() for value in line)))
    lines = {
        name if len(sweep.columns) == 1 else column: [_mean(found, line.get(value), column) for value in values]
        for name, line in rows.items()
        for column in sweep.columns
    }
    lines = {name: points for name, points in lines.items() if any(points)}
    if not lines:
        return None
    names = NAMES.get(sweep.parameter, {})
    places = [names.get(value) or (f"{value:g}" if isinstance(value, float) else f"{value:,}") for value in values]
    described = "; ".join(
        f"{name}: "
        + ", ".join(f"{place} {score(point and point[0])}" for place, point in zip(places, points, strict=True))
        for name, points in lines.items()
    )
    description = f"{found.table.numbered_title}, by {sweep.axis}. {described}."
    svg = figures.sweep(lines, places, sweep.axis, sweep.ylabel, description, sweep.ordered)
    return Illustration(svg, f"{sweep.caption} One seed." if found.single_seed else sweep.caption)


def _mean(results: TableResults, row: str | None, column: str) -> tuple[float, float | None] | None:
    estimate = None if row is None else results.estimates.get((row, column))
    return None if estimate is None else (estimate.mean, estimate.deviation)


def trajectory_figure(
    results: TableResults,
    rows: Mapping[str, str],
    track: Callable[[RunResult], Sequence[tuple[int, float]]],
    ylabel: str,
    caption: str,
    graded: bool = False,
    logarithmic: bool = False,
) -> Illustration | None:
    """A value over training, a line for each row. None if no row has two points.

    Args:
        results: of the rows' table.
        rows: a line's name -> its row's key.
        track: from a run to steps and values.
        ylabel: of the values.
        caption: of the figure.
        graded: whether lines are values of a parameter.
        logarithmic: whether the values are on a logarithmic axis.
    """
    seen = {name: [track(run) for run in results.runs.get(row, ())] for name, row in rows.items()}
    lines = {name: seeds for name, seeds in seen.items() if seeds and min(map(len, seeds)) > 1}
    if not lines:
        return None
    ends = ", ".join(
        f"{name} {score(fmean(s[0][1] for s in seeds))} to {score(fmean(s[-1][1] for s in seeds))}"
        for name, seeds in lines.items()
    )
    title = results.table.numbered_title
    svg = figures.trajectories(lines, ylabel, f"{title}: {ylabel} over training; {ends}.", graded, logarithmic)
    if any(len(seeds) > 1 for seeds in lines.values()):
        caption += " Bands: one standard deviation over seeds."
    if logarithmic:
        caption += " Zeros are below the axis, and there is no band where it would reach 0."
    return Illustration(svg, caption)


PROBED = (
    (GAP, "distance gap, radians", "Mean angle to negatives less mean angle to the positive"),
    (PUSH, "share of the hardest negative", "Share of the push that the hardest negative makes"),
    (CLOSER, "share of anchors", "Share of anchors that a step brings closer to their positive"),
)


def component_sweeps(results: PresetResults) -> Section | None:
    """The gradient form's scores, and statistics of the gradient probe over training."""
    scores = [figure for sweep in (*COMPONENT_SWEEPS, *TASK_SWEEPS) if (figure := sweep_figure(sweep, results))]
    if not scores:
        return None
    drawn = [
        trajectory_figure(
            results.finished_tables[GRADIENT],
            {f"{SYMBOLS[parameter]} {value:g}": row for value, row in swept(parameter).items()},
            partial(RunResult.probed, statistic=statistic, place=HELD_OUT),
            ylabel,
            f"{caption}, by {axis}; of held-out sentences, without the projection.",
            graded=True,
        )
        for statistic, ylabel, caption in PROBED
        for parameter, axis in AXES.items()
        if GRADIENT in results.finished_tables
    ]
    return Section(
        "sweeps",
        "One component varied at a time",
        "The gradient form with one of its components varied and the others at their defaults (arXiv 2402.18281, "
        "section 3.2). First the score, then statistics of the gradient probe on held-out sentences, averaged between "
        "evaluations. The claims also have those of the training batches.",
        (*scores, *(figure for figure in drawn if figure)),
    )


def _dev_curve(run: RunResult) -> list[tuple[int, float]]:
    """Steps and dev scores."""
    return [(line["step"], value) for line, value in zip(run.history, run.curve(SCORE), strict=False)]


def _on_dev_set(run: RunResult, metric: str) -> list[tuple[int, float]]:
    """Steps, and alignment or uniformity of the STS dev set.

    Empty if an evaluation lacks it: seeds are averaged evaluation by evaluation.
    """
    seen = {line["step"]: line["dev"].get(SCORE, {}).get(metric) for line in run.history}
    return [] if None in seen.values() else list(seen.items())


def _gap_to_sts(run: RunResult, metric: str) -> list[tuple[int, float]]:
    """Steps, and alignment or uniformity of the STS dev set less that of dropout views of its sentences.

    The latter is an average over the steps since the previous evaluation, as the gradient probe saw them. Empty if an
    evaluation lacks either.
    """
    of_dev_set, held_out = _on_dev_set(run, metric), dict(run.probed(metric, HELD_OUT))
    complete = all(step in held_out for step, _ in of_dev_set)
    return [(step, value - held_out[step]) for step, value in of_dev_set] if complete else []


def decoupling_section(key: str, results: PresetResults) -> Section | None:
    """Dev curves, gradient norms and metrics of contrastive and decoupled losses."""
    found = results.finished_tables.get(key)
    if found is None:
        return None
    rows = {row.label: row.key for row in found.table.rows}
    drawn = [
        trajectory_figure(found, rows, _dev_curve, YLABEL, "Dev score over training."),
        *(
            trajectory_figure(
                found,
                rows,
                partial(RunResult.probed, statistic=statistic),
                f"norm of the {part} part",
                f"Norm of the {part} part of the anchors' gradient, averaged since the previous evaluation.",
                logarithmic=True,
            )
            for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
        ),
        *(
            trajectory_figure(
                found,
                rows,
                partial(RunResult.probed, statistic=statistic, place=HELD_OUT),
                statistic,
                f"{statistic.capitalize()} of two dropout views of held-out sentences, averaged between evaluations. "
                "Lower is better.",
            )
            for statistic in ("alignment", "uniformity")
        ),
        *(
            trajectory_figure(
                found,
                rows,
                partial(_gap_to_sts, metric=metric),
                f"gap of {metric} to STS",
                f"The gap to STS: {metric} of the STS dev set, less that of two dropout views of some of its "
                "sentences, averaged since the previous evaluation.",
            )
            for metric in ("alignment", "uniformity")
        ),
    ]
    return table_section(found, [figure for figure in drawn if figure])


def long_section(results: PresetResults) -> Section | None:
    """Dev scores and uniformity over ten times the usual steps; eleven lines in one figure could not be told apart."""
    found = results.finished_tables.get("objectives-long")
    if found is None:
        return None
    groups = {
        "as published": set(LABELS) - set(MODIFIED.values()),
        "with three components": {"infonce", *MODIFIED.values()},
    }
    rows = {what: {row.label: row.key for row in found.table.rows if row.key in keys} for what, keys in groups.items()}
    drawn = [
        trajectory_figure(found, lines, track, ylabel, f"{caption}: InfoNCE and losses {what}.")
        for track, ylabel, caption in (
            (_dev_curve, YLABEL, "Dev score over training"),
            (
                partial(_on_dev_set, metric="uniformity"),
                "uniformity of the dev set",
                "Uniformity of the STS dev set over training",
            ),
        )
        for what, lines in rows.items()
    ]
    return table_section(found, [figure for figure in drawn if figure])


def other_sweeps(results: PresetResults) -> Section | None:
    """Batch size, data size, domain, shape of the encoder."""
    there = tuple(figure for sweep in OTHER_SWEEPS if (figure := sweep_figure(sweep, results)))
    if not there:
        return None
    return Section(
        "conditions",
        "Other conditions",
        "Beyond the papers: do losses keep their order under other conditions? Bars: one standard deviation.",
        there,
    )


SECTIONS = (
    component_sweeps,
    long_section,
    partial(decoupling_section, DECOUPLED),
    partial(decoupling_section, DECOUPLED_LONG),
    factorial_section,
    other_sweeps,
)

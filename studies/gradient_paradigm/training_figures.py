"""What trained models add to the gradient study: figures of sweeps and of training, and the factorial of components."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from markupsafe import Markup

from studies.gradient_paradigm import figures
from studies.gradient_paradigm.factorial import effect, subsets
from studies.gradient_paradigm.tables import batch_sizes, components, data_sizes, domains, gradient, shapes
from studies.gradient_paradigm.training_claims import ALIGNMENT, CLOSER, DECOUPLING, GAP, GRADIENT, PUSH, UNIFORMITY
from studies.report.analysis import Comparison, TableAnalysis, compared
from studies.report.format import score, signed
from studies.report.illustrations import Illustration, Section
from studies.report.results import RunResult
from studies.report.verdicts import SCORE, Tables, probed

YLABEL = "similarity, Pearson correlation"


@dataclass(frozen=True)
class Sweep:
    """Rows of a table along an axis.

    Args:
        table: its key.
        axis: what differs.
        caption: of the figure.
        places: on the axis, in order.
        lines: a line's name -> the row at each place.
        ordered: whether the places follow each other.
    """

    table: str
    axis: str
    caption: str
    places: tuple[str, ...]
    lines: Mapping[str, tuple[str, ...]]
    ordered: bool = True


def _rows(labels: Sequence[str], places: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {label: tuple(f"{label}, {place}" for place in places) for label in labels}


COMPONENTS = {"m": "margin of the dissipation, m", "τ": "temperature of the weight, τ", "r": "ratio, r"}
COMPONENT_SWEEPS = tuple(
    Sweep(
        GRADIENT,
        axis,
        f"Dev score against {axis}. Bars: one standard deviation over seeds.",
        tuple(f"{value:g}" for value in gradient.swept(name)),
        {"gradient form": tuple(gradient.swept(name).values())},
    )
    for name, axis in COMPONENTS.items()
)
_SIZES = tuple(f"{size:,}" for size in batch_sizes.SIZES)
_SENTENCES = tuple("all" if size is None else f"{size:,}" for size in data_sizes.SIZES)
OTHER_SWEEPS = (
    Sweep(
        "batch-sizes",
        "batch size",
        "Batch size, at the same number of sentences.",
        _SIZES,
        {label: tuple(f"{label}, {size}" for size in batch_sizes.SIZES) for label in batch_sizes.LABELS},
    ),
    Sweep(
        "data-sizes",
        "sentences",
        "Number of sentences, at one pass over them.",
        _SENTENCES,
        _rows(data_sizes.LABELS, _SENTENCES),
    ),
    Sweep(
        "domains",
        "domain",
        "What the sentences are about.",
        tuple(domains.DOMAINS),
        _rows(domains.LABELS, tuple(domains.DOMAINS)),
        ordered=False,
    ),
    Sweep(
        "shapes",
        "encoder",
        "Family and size of an encoder that was trained from scratch.",
        tuple(shapes.SIZES),
        {
            f"{architecture}, {label}": tuple(f"{architecture}, {size}, {label}" for size in shapes.SIZES)
            for architecture in shapes.ARCHITECTURES
            for label in shapes.LABELS
        },
    ),
)


def sweep_figure(sweep: Sweep, tables: Tables) -> Illustration | None:
    """Mean dev scores along an axis; None where none of the rows has one."""
    if sweep.table not in tables:
        return None
    estimates = tables[sweep.table].estimates
    lines = {
        name: [
            None if (found := estimates.get((row, SCORE))) is None else (found.mean, found.deviation) for row in rows
        ]
        for name, rows in sweep.lines.items()
    }
    lines = {name: points for name, points in lines.items() if any(points)}
    if not lines:
        return None
    described = "; ".join(
        f"{name}: "
        + ", ".join(f"{place} {score(point and point[0])}" for place, point in zip(sweep.places, points, strict=True))
        for name, points in lines.items()
    )
    description = f"{tables[sweep.table].table.title}, by {sweep.axis}. {described}."
    svg = figures.sweep(lines, sweep.places, sweep.axis, YLABEL, description, sweep.ordered)
    return Illustration(Markup(svg), sweep.caption)


def trajectory_figure(
    table: TableAnalysis,
    rows: Mapping[str, str],
    track: Callable[[RunResult], Sequence[tuple[int, float]]],
    ylabel: str,
    caption: str,
    graded: bool = False,
) -> Illustration | None:
    """A value over training, a line for each row; None where it was looked at once at most.

    Args:
        table: that the rows are in.
        rows: a line's name -> its row's label.
        track: from a run to steps and values.
        ylabel: what the values are.
        caption: of the figure.
        graded: whether the lines are values of a parameter.
    """
    runs = {row.label: row.runs for row in table.table.rows}
    seen = {name: [track(run) for run in runs.get(label, ())] for name, label in rows.items()}
    lines = {name: seeds for name, seeds in seen.items() if seeds and min(map(len, seeds)) > 1}
    if not lines:
        return None
    ends = ", ".join(
        f"{name} {score(fmean(s[0][1] for s in seeds))} to {score(fmean(s[-1][1] for s in seeds))}"
        for name, seeds in lines.items()
    )
    svg = figures.trajectories(lines, ylabel, f"{table.table.title}: {ylabel} over training; {ends}.", graded)
    return Illustration(Markup(svg), caption)


@dataclass(frozen=True)
class Effects:
    """Effects of components on the score of a loss: main effects, then interactions, in order."""

    loss: str
    effects: Mapping[str, Comparison]


def factorial_effects(tables: Tables) -> list[Effects]:
    """Of each loss whose cells are all there; p adjusted over all effects of all losses (Holm)."""
    if "components" not in tables:
        return []
    table = tables["components"]
    found = {}
    for label, loss in components.LOSSES.items():
        cells = {
            frozenset(components.switched_on(objective)): f"{label}, {names}"
            for names, objective in components.cells(loss)
        }
        factors = [name for name in components.COMPONENTS if any(name in cell for cell in cells)]
        for of in subsets(factors)[1:]:
            weights = {cells[cell]: weight for cell, weight in effect(factors, of).items()}
            if (contrast := table.contrast(weights, SCORE)) is not None:
                found[label, " × ".join(of)] = contrast
    tests = dict(zip(found, compared(list(found.values())), strict=True))
    return [
        Effects(loss, {name: test for (label, name), test in tests.items() if label == loss})
        for loss in components.LOSSES
        if any(label == loss for label, _ in tests)
    ]


def factorial(tables: Tables) -> Section | None:
    """A forest of effects for each loss."""
    found = factorial_effects(tables)
    if not found:
        return None
    panels = []
    for of in found:
        described = ", ".join(
            f"{name} {signed(e.difference)} ({signed(e.low)} to {signed(e.high)})" for name, e in of.effects.items()
        )
        bounds = {name: (e.difference, e.low, e.high) for name, e in of.effects.items()}
        svg = figures.forest(
            bounds, "effect on similarity", f"Effects of components in {of.loss}: {described}.", of.loss, zero=True
        )
        panels.append(Illustration(Markup(svg), f"{of.loss}: effects and their 95% intervals."))
    return Section(
        "factorial",
        "Do the components act by themselves or together?",
        "Beyond the papers: every subset of the components that a loss can have. A main effect is the mean score with "
        "the component on less that with it off, over all settings of the others; an interaction is half of how much "
        "one's effect grows when the other is switched on. Filled marks: intervals, uncorrected, that leave out zero.",
        tuple(panels),
    )


def _estimates(key: str) -> Callable[[Tables], Section | None]:
    """A forest of all scores of a table."""

    def section(tables: Tables) -> Section | None:
        if key not in tables or not tables[key].estimates:
            return None
        table = tables[key].table
        estimates = {label: (e.mean, e.low, e.high) for (label, _), e in tables[key].estimates.items()}
        described = ", ".join(f"{label} {score(mean)}" for label, (mean, _, _) in estimates.items())
        svg = figures.forest(estimates, YLABEL, f"{table.title}: {described}.")
        drawn = Illustration(Markup(svg), "Dev scores and their 95% intervals.")
        return Section(key, table.title, table.recorded.note, (drawn,))

    return section


def component_sweeps(tables: Tables) -> Section | None:
    """The gradient form's scores, and what the probe saw in training."""
    scores = [figure for sweep in COMPONENT_SWEEPS if (figure := sweep_figure(sweep, tables))]
    if not scores:
        return None
    drawn = [
        trajectory_figure(
            tables[GRADIENT],
            {f"{name} {value:g}": label for value, label in gradient.swept(name).items()},
            partial(probed, statistic=statistic),
            ylabel,
            f"{caption}, by {axis}.",
            graded=True,
        )
        for statistic, ylabel, caption in PROBED
        for name, axis in COMPONENTS.items()
    ]
    return Section(
        "sweeps",
        "One component varied at a time",
        "The gradient form with one of its components varied, the others at their defaults (arXiv 2402.18281, section "
        "3.2): the score, then what the gradient probe saw between one evaluation and the next.",
        (*scores, *(figure for figure in drawn if figure)),
    )


PROBED = (
    (GAP, "distance gap, radians", "Mean angle to negatives less mean angle to the positive"),
    (PUSH, "share of the hardest negative", "Share of the push that the hardest negative makes"),
    (CLOSER, "rate of Lemma 1's condition", "Share of anchors that a step brings closer to their positive"),
)


def decoupling(tables: Tables) -> Section | None:
    """Dev curves and gradient norms of contrastive and decoupled losses."""
    if DECOUPLING not in tables:
        return None
    table = tables[DECOUPLING]
    rows = {row.label: row.label for row in table.table.rows}

    def curve(run: RunResult) -> list[tuple[int, float]]:
        measure = run.evaluation["measures"][SCORE]
        return [(line["step"], line["dev"][SCORE][measure]) for line in run.history if SCORE in line["dev"]]

    drawn = [
        trajectory_figure(table, rows, curve, YLABEL, "Dev score over training."),
        *(
            trajectory_figure(
                table,
                rows,
                partial(probed, statistic=statistic),
                f"norm of the {part} part",
                f"Norm of the {part} part of the anchors' gradient, mean since the evaluation before.",
            )
            for part, statistic in (("alignment", ALIGNMENT), ("uniformity", UNIFORMITY))
        ),
    ]
    there = tuple(figure for figure in drawn if figure)
    if not there:
        return None
    return Section("decoupled", table.table.title, table.table.recorded.note, there)


def other_sweeps(tables: Tables) -> Section | None:
    """Batch size, data size, domain, shape of the encoder."""
    there = tuple(figure for sweep in OTHER_SWEEPS if (figure := sweep_figure(sweep, tables)))
    if not there:
        return None
    return Section(
        "conditions",
        "Batch, data, domain and encoder",
        "Beyond the papers: whether losses keep their places under other conditions. Bars: one standard deviation over "
        "seeds.",
        there,
    )


STUDIED = {"objectives", "mixed", "components", GRADIENT, DECOUPLING, *(sweep.table for sweep in OTHER_SWEEPS)}
"""Keys of the tables that the study reads."""
TRAINED_SECTIONS: tuple[Callable[[Tables], Section | None], ...] = (
    _estimates("objectives"),
    component_sweeps,
    decoupling,
    factorial,
    _estimates("mixed"),
    other_sweeps,
)

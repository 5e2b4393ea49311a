"""SparseCSE's figures: score against sparsity, pruning by scores against pruning at random, and what is pruned."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from minbert.files import read_json
from multitask.base.runs import Run
from multitask.evaluation.statistics import Values
from multitask.experiments.compare_rows import PresetResults, TableResults, compared
from multitask.experiments.figures import OURS, CurvePoints, Picture, intervals, lines, render
from multitask.experiments.grid_frames import RunResult
from multitask.experiments.report_page import Section
from studies.engine.recipes import GROUPS, STS, TRANSFER
from studies.report.study_page import as_intervals, section_of, table_section
from studies.sparse_cse.tables import CRITERIA, PRUNING_CHANGES, SCORE_SHARES, SHARES, WHOLE, pruned

START_PRUNED, OWN_PRUNED = "sparsity", "sparsity-own"
PRUNED = {
    START_PRUNED: "What is pruned: start weights, pruned as they are",
    OWN_PRUNED: "What is pruned: encoder trained here, pruned and rewound as in the paper",
}
UNITS = ("heads", "neurons")
PLACES = ["0%", *(f"{share:.0%}" for share in SHARES)]


def score_curves(found: TableResults, columns: Sequence[str]) -> dict[str, dict[str, CurvePoints]]:
    """Scores against sparsity by column, pruned by score and at random; both begin with the whole encoder."""
    rows = {name: [WHOLE, *(pruned(share, criterion) for share in SHARES)] for criterion, name in CRITERIA.items()}
    panels: dict[str, dict[str, CurvePoints]] = {}
    for column in columns:
        panels[column] = {
            name: [
                (place, found.mean(row, column), *found.interval(row, column))
                for place, row in enumerate(keys)
                if (row, column) in found.scores
            ]
            for name, keys in rows.items()
        }
    return {column: curves for column, curves in panels.items() if any(curves.values())}


def curves_section(found: TableResults) -> Section | None:
    """The curves of a table for all columns. None if all scores are undefined."""
    if not found.scores:
        return None
    drawn = score_curves(found, (*GROUPS, *GROUPS[TRANSFER], *GROUPS[STS]))
    title = f"{found.table.title}: scores against the share removed"
    svg = lines(drawn, "share removed (95% intervals)", title, places=PLACES)
    return table_section(found, [Picture(svg, title, "STS and Transfer are the means of the seven tasks.")])


def scores_section(found: TableResults) -> Section | None:
    """The start weights pruned by each score, less at random: a panel for each column, a figure for each share."""
    pairs = {
        share: {
            name: (pruned(share, criterion), pruned(share, "random"))
            for criterion, (name, _) in PRUNING_CHANGES.items()
            if criterion != "random"
        }
        for share in SCORE_SHARES
    }
    if not len(tests := against_random(found, pairs)):
        return None
    drawn = []
    for share, share_tests in tests.groupby(level=1, sort=False):
        panels = {column: as_intervals(g.droplevel([0, 1])) for column, g in share_tests.groupby(level=0, sort=False)}
        title = f"{found.table.title}: {share:.0%} removed, less at random"
        caption = (
            f"{share:.0%} removed, less at random, with uncorrected 95% intervals. Filled: significant after "
            f"correction for the {len(tests)} differences of these figures."
        )
        drawn.append(Picture(intervals(panels, title, dict.fromkeys(panels, 0.0)), title, caption))
    return table_section(found, drawn)


def against_random(found: TableResults, pairs: Mapping[float, Mapping[str, tuple[str, str]]]) -> pandas.DataFrame:
    """Differences by column, share and name, as one family of tests.

    `pairs` has, for each share and name, the keys of the rows pruned by a score and at random.
    """
    return compared(
        {
            (column, share, name): gain
            for column, share in product(found.table.groups, pairs)
            for name, (row, other) in pairs[share].items()
            if (gain := found.contrast({row: 1, other: -1}, column)) is not None
        }
    )


def pruned_section(key: str, results: PresetResults) -> Section | None:
    """A heat map of each kind of units, layers by shares, means over seeds. None without pruned runs."""
    found = results.finished_tables.get(key)
    by_share = (
        {share: removed(found.runs.get(pruned(share, "score"), ()), results.folder) for share in SHARES}
        if found
        else {}
    )
    known = {f"{share:.0%}": parts for share, parts in by_share.items() if parts is not None}
    if not known:
        return None
    panels = {name: np.stack([parts[place] for parts in known.values()]) for place, name in enumerate(UNITS)}
    texts = {name: np.char.mod("%.0f", 100 * shares) for name, shares in panels.items()}
    layers = [str(layer) for layer in range(panels["heads"].shape[1])]
    svg = matrices(panels, texts, list(known), layers, ("layer", "share removed of all"), PRUNED[key])
    caption = "Share of each layer's units that is removed, in percent, mean over seeds. Each layer keeps a head."
    text = "Units are removed by the gradient of alignment and uniformity."
    return Section(f"{key}-pruned", PRUNED[key], text, (Picture(svg, PRUNED[key], caption),))


def removed(runs: Sequence[RunResult], folder: Path) -> tuple[Values, Values] | None:
    """The share of each layer's heads and neurons that was removed, [layers] each, means over runs.

    None without a run that was pruned. Units that an earlier pruning removed do not count.
    """
    found = []
    for run in runs:
        for stage in (stage for stage in run.chain if Run(folder / stage).stage == "prune"):
            layers = read_json(folder / stage / "pruning.json", dict)["layers"]
            found.append(
                [
                    [(before - after) / max(before, 1) for before, after in (layer[kind] for layer in layers)]
                    for kind in UNITS
                ]
            )
    if not found:
        return None
    heads, neurons = np.mean(found, axis=0)
    return heads, neurons


def matrices(
    panels: Mapping[str, NDArray[Any]],
    texts: Mapping[str, NDArray[Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    labels: tuple[str, str],
    title: str,
) -> Markup:
    """Shares of 0 to 1 by row and column, [rows, columns] in each panel. A deeper colour is a larger share.

    `texts` stand in the cells; `labels` say what columns and rows are; the title is the alternative text.
    """

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (heading, matrix) in zip(drawn, panels.items(), strict=True):
            for (row, column), share in np.ndenumerate(matrix):
                corner, alpha = (column - 0.5, row - 0.5), 0.75 * float(share)
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=OURS, alpha=alpha))
                axes.text(column, row, str(texts[heading][row, column]), ha="center", va="center", fontsize=8)
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), title=heading)
            axes.set(xlabel=labels[0], ylabel=labels[1])
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)

    return render(draw, (len(panels) * (1 + 0.36 * len(columns)), 1 + 0.34 * len(rows)), title)


SECTIONS = (
    section_of(START_PRUNED, curves_section),
    section_of(OWN_PRUNED, curves_section),
    section_of("sparsity-scores", scores_section),
    partial(pruned_section, START_PRUNED),
    partial(pruned_section, OWN_PRUNED),
)

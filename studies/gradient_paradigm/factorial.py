"""Which components of a loss matter, and whether they interact: a full two-level factorial for each loss.

Every factor x_f is +1 (on) or −1 (off), and a cell is Σ_S b_S Π_{f∈S} x_f over all subsets S of the factors. The effect
of S is 2 b_S (Box, Hunter and Hunter 2005, chapter 5). For one factor it is the mean with the factor on less the mean
with it off. For two it is half of the growth of one's effect when the other is switched on.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pandas

from multitask.evaluation.statistics import Uncertain
from multitask.experiments.figures import Picture, intervals
from multitask.experiments.report import Section
from multitask.experiments.table_results import PresetResults, TableResults, compared
from multitask.experiments.text import difference
from studies.gradient_paradigm.tables_of_losses import COMPONENTS, LABELS, NON_CONTRASTIVE
from studies.report.claims import LEAST_SEEDS
from studies.report.study_page import as_intervals

ActiveFactors = frozenset[str]
"""The factors that are on."""
TABLE = "components"


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets of the factors, from the empty one to the largest."""
    return [subset for size in range(len(factors) + 1) for subset in combinations(factors, size)]


def effect(factors: Sequence[str], of: Sequence[str]) -> dict[ActiveFactors, float]:
    """Weights of the cells whose sum is the effect of some factors: a main effect of one, an interaction of more.

    Raises:
        ValueError: `of` is empty or has a name that is no factor.
    """
    if not of or not set(of) <= set(factors):
        raise ValueError(f"effect of {list(of)}; expected one or more of {list(factors)}")
    cells = map(frozenset, subsets(factors))
    return {cell: (-1.0) ** len(set(of) - cell) / 2 ** (len(factors) - 1) for cell in cells}


def effects_of_components(results: TableResults) -> pandas.DataFrame:
    """Main effects and then interactions of the components by loss and effect, as one family of tests.

    For each loss with scores of all its cells. Interactions need `LEAST_SEEDS` seeds of every cell.
    """
    found: dict[tuple[Any, ...], Uncertain] = {}
    for loss in NON_CONTRASTIVE:
        points = {row.key: row.point for row in results.table.rows if row.point["loss"] == loss}
        cells = {frozenset(point["components"]): key for key, point in points.items()}  # type: ignore[arg-type]
        factors = [name for name in COMPONENTS if any(name in cell for cell in cells)]
        for of in subsets(factors)[1:]:
            weights = {cells.get(cell, ""): weight for cell, weight in effect(factors, of).items()}
            fewest = min(len(results.runs.get(row, ())) for row in weights)
            contrast = results.contrast(weights, "similarity")
            if contrast is not None and (len(of) == 1 or fewest >= LEAST_SEEDS):
                found[loss, " × ".join(of)] = contrast
    return compared(found)


def factorial_section(results: PresetResults) -> Section | None:
    """A panel of effects for each loss, and a table of all effects."""
    table = results.finished_tables.get(TABLE)
    if table is None or not len(effects := effects_of_components(table)):
        return None
    panels = {LABELS[str(loss)]: as_intervals(of.droplevel(0)) for loss, of in effects.groupby(level=0, sort=False)}
    lines = [(LABELS[loss], name, difference(e).replace("\\", "")) for (loss, name), e in effects.iterrows()]
    title = "Effects of components on similarity"
    return Section(
        TABLE,
        "Do the components act by themselves or together?",
        "Beyond the papers: every subset of the components that a loss can have. A main effect is the mean score with "
        "the component on less the mean score with it off, over all settings of the others. An interaction is half of "
        "the growth of one's effect when the other is switched on; it needs three seeds. Filled marks: significant "
        "after the correction for all effects.",
        (Picture(intervals(panels, title, dict.fromkeys(panels, 0.0)), title),),
        pandas.DataFrame(lines, columns=["Loss", "Effect", "On the score"]),
    )

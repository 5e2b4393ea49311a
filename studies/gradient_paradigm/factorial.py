"""Which components of a loss matter, and whether they interact: a full two-level factorial for each loss.

Every factor x_f is +1 (on) or −1 (off), and a cell is Σ_S b_S Π_{f∈S} x_f over all subsets S of the factors. The effect
of S is 2 b_S (Box, Hunter and Hunter 2005, chapter 5). For one factor it is the mean with the factor on less the mean
with it off. For two it is half of the growth of one's effect when the other is switched on.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from multitask.evaluation.statistics import Uncertain
from studies.gradient_paradigm.tables_of_losses import COMPONENTS, LABELS, NON_CONTRASTIVE
from studies.report import figures
from studies.report.comparisons import Comparison, compared
from studies.report.format import interval, signed, verdict
from studies.report.preset_results import PresetResults
from studies.report.sections import Illustration, Section
from studies.report.table_results import TableResults
from studies.report.verdicts import LEAST_SEEDS, difference

Cell = frozenset[str]
"""The factors that are on."""
TABLE = "components"


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets of the factors, from the empty one to the largest."""
    return [subset for size in range(len(factors) + 1) for subset in combinations(factors, size)]


def effect(factors: Sequence[str], of: Sequence[str]) -> dict[Cell, float]:
    """Weights of the cells whose sum is the effect of some factors: a main effect of one, an interaction of more.

    Raises:
        ValueError: `of` is empty or has a name that is no factor.
    """
    if not of or not set(of) <= set(factors):
        raise ValueError(f"effect of {list(of)}; expected one or more of {list(factors)}")
    cells = map(frozenset, subsets(factors))
    return {cell: (-1.0) ** len(set(of) - cell) / 2 ** (len(factors) - 1) for cell in cells}


def effects_of_components(results: TableResults) -> dict[str, dict[str, Comparison]]:
    """Main effects and then interactions of the components, for each loss with scores of all its cells.

    p is corrected over all effects of all losses (Holm 1979). Interactions need `LEAST_SEEDS` seeds of every cell.
    """
    found: dict[tuple[str, str], Uncertain] = {}
    for loss in NON_CONTRASTIVE:
        points = {row.key: row.point for row in results.table.rows if row.point["loss"] == loss}
        cells = {frozenset(_on(point["components"])): key for key, point in points.items()}
        factors = [name for name in COMPONENTS if any(name in cell for cell in cells)]
        for of in subsets(factors)[1:]:
            weights = effect(factors, of)
            if not weights.keys() <= cells.keys():
                continue
            fewest = min(len(results.runs.get(cells[cell], ())) for cell in weights)
            contrast = difference(results, {cells[cell]: weight for cell, weight in weights.items()})
            if contrast is not None and (len(of) == 1 or fewest >= LEAST_SEEDS):
                found[loss, " × ".join(of)] = contrast
    tests = compared(found)
    return {
        loss: {name: test for (of, name), test in tests.items() if of == loss}
        for loss in NON_CONTRASTIVE
        if any(of == loss for of, _ in tests)
    }


def _on(components: object) -> tuple[str, ...]:
    assert isinstance(components, tuple), "the table's points have tuples of components"
    return components


def factorial_section(results: PresetResults) -> Section | None:
    """A forest of effects for each loss, and a table of all effects."""
    if TABLE not in results.finished_tables:
        return None
    table = results.finished_tables[TABLE]
    found = effects_of_components(table)
    if not found:
        return None
    rows = [("Loss", "Effect", "On the score")]
    for loss, effects in found.items():
        for name, e in effects.items():
            told = f"{signed(e.difference)} {interval(e)}, {verdict(e, 'effect')}{table.seeds_note}"
            rows.append((LABELS[loss], name, told))
    return Section(
        TABLE,
        "Do the components act by themselves or together?",
        "Beyond the papers: every subset of the components that a loss can have. A main effect is the mean score with "
        "the component on less the mean score with it off, over all settings of the others. An interaction is half of "
        "the growth of one's effect when the other is switched on; it needs three seeds. Filled marks: uncorrected "
        "intervals exclude zero.",
        tuple(_forest(LABELS[loss], effects, table.seeds_note) for loss, effects in found.items()),
        table=tuple(rows),
    )


def _forest(loss: str, effects: Mapping[str, Comparison], note: str) -> Illustration:
    described = ", ".join(
        f"{name} {signed(e.difference)} ({signed(e.low)} to {signed(e.high)})" for name, e in effects.items()
    )
    bounds = {name: (e.difference, e.low, e.high) for name, e in effects.items()}
    description = f"Effects of components in {loss}: {described}."
    svg = figures.forest(bounds, "effect on similarity", description, loss)
    return Illustration(svg, f"{loss}: effects and their 95% intervals{note}.")

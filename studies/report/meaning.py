"""What a table means, in two sentences: which rows differ from the reference row, and the published order.

The sentences claim no more than the table's tests show. A further one tells what these tests could have shown.
"""

from collections.abc import Sequence
from math import isfinite

from multitask.evaluation.text_tables import capitalized
from studies.report.format import score
from studies.results import RANDOM_WEIGHTS, RowScores, TableScores

NAMED = 4
"""The most rows that a sentence names. Of more it tells the number."""


def meaning(table: TableScores) -> str:
    """Two sentences on the table's first pictured column."""
    place = table.pictured[0]
    return f"{_differences(table, place)} {_published(table, place)}"


def significant_sizes(table: TableScores) -> str:
    """How large differences to the reference row must be to be significant. Empty if that is not known."""
    columns = [table.description.columns[place] for place in table.pictured]
    known = [f"{column.heading} {_range(*column.significant_from)}" for column in columns if column.significant_from]
    if not known:
        return ""
    return (
        f"By row, differences to the reference row are significant from: {', '.join(known)}. "
        "About every second experiment would show a true difference of this size."
    )


def first_stage(table: TableScores) -> str:
    """Which weights the rows' first stages start from."""
    scored = [row for row in table.rows if any(cell and cell.values for cell in row.cells)]
    scratch = [row for row in scored if row.start == RANDOM_WEIGHTS]
    if not scratch:
        return f"The first stage starts from {table.start}."
    if scratch == scored:
        return f"The first stage starts from {RANDOM_WEIGHTS}."
    rows = "; ".join(row.label for row in scratch)
    return f"The first stage starts from {table.start}. Rows that start from {RANDOM_WEIGHTS}: {rows}."


def _range(least: float, most: float) -> str:
    return score(least) if score(least) == score(most) else f"{score(least)} to {score(most)}"


def _differences(table: TableScores, place: int) -> str:
    """Which rows differ significantly from the reference row."""
    heading, begin = table.description.columns[place].heading, _seeds(table)
    tested = [(row, cell) for row in table.rows if (cell := row.cells[place]) and cell.p is not None]
    if table.description.reference is None:
        return f"{begin}no row is tested, because this table has no reference row{_highest(table, place)}."
    reference = f"“{table.reference.label}”" if table.reference else "the reference row"
    if not tested:
        return f"{begin}no row could be tested against {reference}."
    above = [row for row, cell in tested if cell.significant and (cell.difference or 0) > 0]
    below = [row for row, cell in tested if cell.significant and (cell.difference or 0) < 0]
    rest = len(tested) - len(above) - len(below)
    if not (above or below):
        found = "the only tested row does not differ" if rest == 1 else f"none of the {rest} tested rows differs"
        return f"{begin}{found} significantly from {reference} in {heading}, which does not show equality."
    sides = [f"{_named(rows)} significantly {side}" for rows, side in ((above, "above"), (below, "below")) if rows]
    others = "one other row does" if rest == 1 else f"{rest} other rows do"
    left = f"; {others} not differ significantly, which does not show equality" if rest else ""
    return f"{begin}{' and '.join(sides)} {reference} in {heading}{left}."


def _published(table: TableScores, place: int) -> str:
    """How the order of the rows compares with the published one."""
    column = table.description.columns[place]
    if not any(cell and cell.published is not None for row in table.rows for cell in row.cells):
        return "No published scores of these rows are recorded here."
    if not column.orderings:
        return f"No two rows with different published scores can be compared in {column.heading}."
    single = "with a single seed, " if table.seeds[-1:] == [1] else ""
    other = column.orderings - column.agree
    if column.orderings == 1:
        order = "the published" if column.agree else "not the published"
        sure = "significant" if column.significant + column.contrary else "not significant"
        found = f"the only two compared rows with different published scores in {column.heading} have {order} order"
        return capitalized(f"{single}{found}, and the difference is {sure}.")
    return capitalized(
        f"{single}of {column.orderings} compared pairs of rows with different published scores in {column.heading}, "
        f"{column.agree} {_have(column.agree)} the published order here ({_significant(column.significant)}) and "
        f"{other} {_have(other)} not ({_significant(column.contrary)})."
    )


def _seeds(table: TableScores) -> str:
    """How a sentence on results begins."""
    fewest, most = (table.seeds or [0])[0], (table.seeds or [0])[-1]
    if most <= 1:
        return "With a single seed, which does not show what another seed would give, "
    return f"With {most} seeds, " if fewest == most else f"With {fewest} to {most} seeds, "


def _highest(table: TableScores, place: int) -> str:
    """The row with the highest mean, if several rows have one."""
    found = [(cell, row) for row in table.rows if (cell := row.cells[place]) and cell.values and isfinite(cell.mean)]
    if len(found) < 2:
        return ""
    cell, row = max(found, key=lambda one: one[0].mean)
    heading = table.description.columns[place].heading
    return (
        f"; “{row.label}” has the highest mean, {score(cell.mean)} [{score(cell.low)}, {score(cell.high)}] in {heading}"
    )


def _named(rows: Sequence[RowScores]) -> str:
    """`“A”, “B” and “C” are`, or `7 rows are`."""
    if len(rows) > NAMED:
        return f"{_rows(len(rows))} are"
    *most, last = [f"“{row.label}”" for row in rows]
    return f"{', '.join(most)} and {last} are" if most else f"{last} is"


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _significant(count: int) -> str:
    return f"{count or 'none'} significantly"

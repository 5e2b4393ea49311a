"""A table of results as text, in Markdown and in LaTeX."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas

from multitask.evaluation.markup import MINUS, SEEN, Latex, latex, markdown_table, markdown_text
from multitask.evaluation.text_tables import capitalized
from multitask.tasks.metrics import LOWER_IS_BETTER
from studies.results import Column, TableScores

SIGNIFICANT = "\\*"
"""Marks a score that differs significantly from the reference row's, in Markdown."""
Cell: TypeAlias = Any
"""A line of `TableScores.cells`, or of `table_results.compared`."""


def score(value: float | None) -> str:
    """Three decimals; a dash without a value."""
    return "–" if value is None or np.isnan(value) else f"{value:.3f}".replace("-", MINUS)


def signed(value: float, decimals: int = 3) -> str:
    """Decimals with a sign, zero without a sign."""
    text = f"{value:+.{decimals}f}".replace("-", MINUS)
    return text if float(f"{value:.{decimals}f}") else text[1:]


def p_value(p: float) -> str:
    """`p < 0.001` or `p = 0.034`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def difference(test: Cell) -> str:
    """`+0.012* [+0.003, +0.021], p = 0.034` from a line of `table_results.compared`."""
    mark = SIGNIFICANT if test.significant else ""
    interval = f"[{signed(test.low)}, {signed(test.high)}]"
    return f"{signed(test.difference)}{mark} {interval}, {p_value(test.p)}"


def mean(cell: Cell) -> str:
    """`0.783 ± 0.004`: mean and standard deviation over seeds; a dash without seeds."""
    if not cell.seeds:
        return "–"
    if np.isnan(cell["mean"]):
        return "undefined"
    return score(cell["mean"]) + ("" if np.isnan(cell.deviation) else f" ± {cell.deviation:.3f}")


def interval(cell: Cell) -> str:
    """`[0.770, 0.791]`; empty without an interval."""
    return "" if np.isnan(cell.low) or np.isnan(cell["mean"]) else f"[{score(cell.low)}, {score(cell.high)}]"


def marks(cell: Cell) -> str:
    """Marks of a significant difference and of seen examples."""
    return (SIGNIFICANT if cell.significant else "") + (SEEN if seen(cell) else "")


def seen(cell: Cell) -> bool:
    """Whether models were trained on some of the scored examples, as far as that is known."""
    return not pandas.isna(cell.seen) and bool(cell.seen)


def best(table: TableScores, place: int) -> float:
    """The best mean of a column with scores; NaN if fewer than two rows have one."""
    column, means = table.description.columns[place], table.column(place)["mean"].dropna()
    if len(means) < 2 or table.column(place).low.isna().all():
        return np.nan
    return float(means.min() if column.metric in LOWER_IS_BETTER else means.max())


def score_table(table: TableScores, places: Sequence[int]) -> str:
    """Means ± deviations with intervals, the best in bold, published scores, and what is known of whole columns."""
    columns = {"Row": [_label(table, row) for row in table.rows.index] + list(_FOOTER)}
    if table.rows.start.nunique() > 1:
        columns["Start"] = [*map(markdown_text, table.rows.start), *[""] * len(_FOOTER)]
    published, footer = has_published(table), list(_FOOTER.values())
    for place in places:
        cells, column, top = table.column(place), table.description.columns[place], best(table, place)
        shown = [_cell(cell, cell["mean"] == top) for _, cell in cells.iterrows()]
        columns[markdown_text(column.heading)] = [*shown, *(of(column) for of in footer)]
        if published and not cells.low.isna().all():
            columns[f"{column.heading}, published"] = [*map(score, cells.published), *[""] * len(_FOOTER)]
    frame = pandas.DataFrame(columns)
    empty = (frame.iloc[len(table.rows) :, 1:] == "").all(axis=1)
    frame = frame.drop(index=empty[empty].index)
    return markdown_table(frame.rename(columns=lambda name: "Published" if name.endswith(", published") else name))


def _label(table: TableScores, row: str) -> str:
    return f"{markdown_text(table.rows.label[row])}{' (reference)' if row == table.description.reference else ''}"


def _cell(cell: Cell, top: bool) -> str:
    text = mean(cell)
    return f"{f'**{text}**' if top else text}{marks(cell)} {interval(cell)}".rstrip()


def _agreement(column: Column) -> str:
    if not column.orderings:
        return ""
    contrary = f", contrary: {column.contrary}" if column.contrary else ""
    return f"{column.agree} of {column.orderings} [significant: {column.significant}{contrary}]"


def _sizes(column: Column) -> str:
    return " to ".join(dict.fromkeys(map(score, column.significant_from or ())))


_FOOTER: dict[str, Callable[[Column], str]] = {
    "*Pairs in published order*": _agreement,
    "*Significant from*": _sizes,
    "*Variance over seeds*": lambda column: "" if column.alike else "by row",
}


def has_published(table: TableScores) -> bool:
    """Whether the paper gives any score for the table."""
    return bool(table.cells.published.notna().any())


def difference_table(table: TableScores) -> str:
    """Each tested row less the reference row; empty without tests, or in files that lack the intervals."""
    tested = table.cells[table.cells.difference_low.notna()]
    if not len(tested):
        return ""
    rows = list(dict.fromkeys(tested.index.get_level_values("row")))
    places = list(dict.fromkeys(tested.index.get_level_values("place")))

    def shown(row: str, place: int) -> str:
        if (row, place) not in tested.index:
            return "–"
        cell = tested.loc[(row, place)]
        return difference(cell.drop(["low", "high"]).rename({"difference_low": "low", "difference_high": "high"}))

    headings = {table.description.columns[place].heading: place for place in sorted(places)}
    frame = {heading: [shown(row, place) for row in rows] for heading, place in headings.items()}
    return markdown_table(pandas.DataFrame({"Row": [markdown_text(table.rows.label[row]) for row in rows], **frame}))


def latex_table(table: TableScores, subject: str) -> str:
    """The table for LaTeX with booktabs: intervals below their scores; columns of groups instead of their tasks."""
    about, published = table.description, has_published(table)
    places = [place for place in table.pictured if not table.column(place).low.isna().all()]
    width = 2 if published else 1
    heads = [capitalized(about.columns[place].task) for place in places]
    lines = [" & ".join(["", *(_spanned(head, width) for head in heads)]) + r" \\"]
    if published:
        lines.append("".join(rf"\cmidrule(lr){{{2 * n}-{2 * n + 1}}}" for n in range(1, len(places) + 1)))
        lines.append(" & ".join(["", *["ours & publ."] * len(places)]) + r" \\")
    lines.append(r"\midrule")
    for row in table.rows.index:
        cells = [table.cells.loc[(row, place)] for place in places]
        texts, below = [latex(table.rows.label[row])], [Latex("")]
        for cell, place in zip(cells, places, strict=True):
            text = latex(mean(cell))
            text = Latex(rf"\textbf{{{text}}}") if cell["mean"] == best(table, place) else text
            mark = latex(SEEN) if seen(cell) else ""
            sure = r"\rlap{$^{\ast}$}" if cell.significant else ""
            texts += [Latex(f"{text}{mark}{sure}"), *([latex(score(cell.published))] if published else [])]
            below += [Latex(rf"{{\scriptsize {latex(interval(cell))}}}"), *([Latex("")] if published else [])]
        lines.append(" & ".join(texts) + r" \\")
        if any(interval(cell) for cell in cells):
            lines.append(" & ".join(below) + r" \\")
    if any(about.columns[place].orderings for place in places):
        counts = [_spanned(_agreement(about.columns[place]).partition(" [")[0] or "–", width) for place in places]
        lines += [r"\midrule", " & ".join(["Pairs in published order", *counts]) + r" \\"]
    against = ""
    if about.reference in table.rows.index:
        against = f"; $^{{\\ast}}$ differs significantly from ``{latex(table.rows.label[about.reference])}''"
    title = re.sub(r"^(Table|Figure) \d+: ", "", about.title)
    headings = [about.columns[place].heading for place in places]
    scores = "" if headings == heads else f"; scores: {latex(', '.join(headings))}"
    caption = f"{latex(title)}. {latex(subject)}{scores}; 95\\% intervals below{against}."
    body = "\n".join(f"    {line}" for line in lines)
    return (
        f"% Needs \\usepackage{{booktabs}}. Written by `multitask report`; {about.name}.\n"
        "\\begin{table}\n  \\centering\n  \\footnotesize\n  \\setlength{\\tabcolsep}{3pt}\n"
        f"  \\caption{{{caption}}}\n  \\label{{tab:{about.name}}}\n"
        f"  \\begin{{tabular}}{{l{'r' * width * len(places)}}}\n    \\toprule\n{body}\n    \\bottomrule\n"
        "  \\end{tabular}\n\\end{table}\n"
    )


def _spanned(text: str, width: int) -> str:
    return rf"\multicolumn{{2}}{{c}}{{{latex(text)}}}" if width == 2 else latex(text)

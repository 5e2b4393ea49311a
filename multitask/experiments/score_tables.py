"""The scores of a table in words and as a table: in Markdown for reports and terminals, in LaTeX for papers."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, TypeAlias

import numpy as np
import pandas

from multitask.data.markup import MINUS, latex, latex_table, markdown_table, markdown_text
from multitask.evaluation.text_tables import SEEN
from multitask.experiments.results_file import STEPS, Column, TableScores
from multitask.tasks.scores import LOWER_IS_BETTER

SIGNIFICANT = "\\*"  # marks a score that differs significantly from the reference row's, in Markdown
ComparedCell: TypeAlias = Any  # a line of `TableScores.cells`, or of `compare_rows.compared`


def format_score(value: float | None) -> str:
    """Three decimals; a dash without a value."""
    return "–" if value is None or np.isnan(value) else f"{value:z.3f}".replace("-", MINUS)


def signed(value: float, decimals: int = 3) -> str:
    """Decimals with a sign, zero without a sign."""
    text = f"{value:+.{decimals}f}".replace("-", MINUS)
    return text if float(f"{value:.{decimals}f}") else text[1:]


def p_value(p: float) -> str:
    """`p < 0.001` or `p = 0.034`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def difference(test: ComparedCell) -> str:
    """`+0.012* [+0.003, +0.021], p = 0.034` from a line of `compare_rows.compared`; no test without an interval."""
    if np.isnan(test.low):
        return signed(test.difference)
    mark = SIGNIFICANT if test.significant else ""
    interval = f"[{signed(test.low)}, {signed(test.high)}]"
    return f"{signed(test.difference)}{mark} {interval}, {p_value(test.p)}"


def mean(cell: ComparedCell) -> str:
    """`0.783 ± 0.004`: mean and standard deviation over seeds; a dash without seeds."""
    if not cell.seeds:
        return "–"
    if np.isnan(cell["mean"]):
        return "undefined"
    return format_score(cell["mean"]) + ("" if np.isnan(cell.deviation) else f" ± {cell.deviation:.3f}")


def interval(cell: ComparedCell) -> str:
    """`[0.770, 0.791]`; empty without an interval."""
    unknown = np.isnan(cell.low) or np.isnan(cell["mean"])
    return "" if unknown else f"[{format_score(cell.low)}, {format_score(cell.high)}]"


def best_mean(table: TableScores, place: int) -> float:
    """The best mean of a column with scores; NaN if fewer than two rows have one."""
    column, means = table.description.columns[place], table.column(place)["mean"].dropna()
    if len(means) < 2 or not table.has_scores(place):
        return np.nan
    return float(means.min() if column.metric in LOWER_IS_BETTER else means.max())


@dataclass(frozen=True)
class Writer:
    """How a language writes names, numbers, the best mean, notes, a significant difference, a mean with interval."""

    text: Callable[[str], str]
    number: Callable[[str], str]
    bold: str
    italic: str
    star: str
    cell: str


MARKDOWN = Writer(markdown_text, str, "**{}**", "*{}*", SIGNIFICANT, "{} {}")
LATEX = Writer(
    latex, latex, r"\textbf{{{}}}", r"\emph{{{}}}", r"\rlap{$^{\ast}$}", r"\shortstack[r]{{{}\\{{\scriptsize {}}}}}"
)


def score_rows(table: TableScores, places: Sequence[int], write: Writer) -> list[list[str]]:
    """Means ± deviations with intervals, the best in bold, published scores, and what is known of whole columns."""
    about, rows, nothing = table.description, table.rows, [""] * len(FOOTER)
    labels = [f"{write.text(label)}{' (reference)' * (row == about.reference)}" for row, label in rows.label.items()]
    columns = [["Row", *labels, *map(write.italic.format, FOOTER)]]
    if rows.start.nunique() > 1:
        columns.append(["Start", *map(write.text, rows.start), *nothing])
    for place in places:
        cells, column, top = table.column(place), about.columns[place], best_mean(table, place)
        if column.metric == STEPS:
            shown = ["–" if np.isnan(steps) else f"{steps:,.0f}" for steps in cells["mean"]]
        else:
            shown = [_cell(cell, cell["mean"] == top, write) for _, cell in cells.iterrows()]
        columns.append(
            [write.text(column.heading), *shown, *(write.number(statistic(column)) for statistic in FOOTER.values())]
        )
        if table.cells.published.notna().any() and table.has_scores(place):
            columns.append(["Published", *(write.number(format_score(value)) for value in cells.published), *nothing])
    lines = [[*line] for line in zip(*columns, strict=True)]
    return [line for number, line in enumerate(lines) if number <= len(rows) or any(line[1:])]


def score_table(table: TableScores, places: Sequence[int]) -> str:
    """Some columns of a table in Markdown."""
    return markdown_table(score_rows(table, places, MARKDOWN))


def _cell(cell: ComparedCell, top: bool, write: Writer) -> str:
    text = write.bold.format(write.number(mean(cell))) if top else write.number(mean(cell))
    text += write.number(SEEN) if pandas.notna(cell.seen) and cell.seen else ""
    text += write.star if cell.significant else ""
    return write.cell.format(text, write.number(interval(cell))) if interval(cell) else text


def _agreement(column: Column) -> str:
    if not column.orderings:
        return ""
    contrary = f", contrary: {column.contrary}" if column.contrary else ""
    return f"{column.agree} of {column.orderings} [significant: {column.significant}{contrary}]"


FOOTER: dict[str, Callable[[Column], str]] = {
    "Most frequent label": lambda column: format_score(column.majority) if column.majority is not None else "",
    "Pairs in published order": _agreement,
    "Resamples left out": lambda column: f"{column.left_out:.1%}" if column.left_out else "",
    "Significant from": lambda column: " to ".join(dict.fromkeys(map(format_score, column.significant_from or ()))),
}
"""What is known of whole columns, with its names."""


def difference_table(table: TableScores) -> str:
    """Each tested row less the reference row; empty without tests, or in files that lack the intervals."""
    ends = {"difference_low": "low", "difference_high": "high"}
    tested = table.cells[table.cells.difference_low.notna()].drop(columns=[*ends.values()]).rename(columns=ends)
    rows, places = (tested.index.unique(level) for level in ("row", "place"))
    lines = [["Row", *(table.description.columns[place].heading for place in sorted(places))]]
    for row in rows:
        shown = [difference(tested.loc[row, p]) if (row, p) in tested.index else "–" for p in sorted(places)]
        lines.append([markdown_text(table.rows.label[row]), *shown])
    return markdown_table(lines) if len(rows) else ""


def latex_float(table: TableScores, subject: str) -> str:
    """The table for LaTeX: intervals below their scores; columns of groups instead of their tasks."""
    about = table.description
    places = [place for place in table.pictured if table.has_scores(place)]
    body = indent(latex_table(score_rows(table, places, LATEX)), "  ")
    against = ""
    if about.reference in table.rows.index:
        against = f"; $^{{\\ast}}$ differs significantly from ``{latex(table.rows.label[about.reference])}''"
    seen = f"; {latex(SEEN)} trained on some of the scored examples" if table.cells.seen.fillna(False).any() else ""
    title = latex(re.sub(r"^(Table|Figure) \d+: ", "", about.title))
    caption = f"{title}. {latex(subject)}; 95\\% intervals below{against}{seen}."
    return (
        f"% Needs \\usepackage{{booktabs}}. Written by `multitask experiments run`; {about.name}.\n"
        "\\begin{table}\n  \\centering\n  \\footnotesize\n  \\setlength{\\tabcolsep}{3pt}\n"
        f"  \\caption{{{caption}}}\n  \\label{{tab:{about.name}}}\n"
        f"{body}\\end{{table}}\n"
    )

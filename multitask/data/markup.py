"""Tables of text for a terminal, in Markdown and in LaTeX, and texts from outside without markup in these languages.

HTML is made of Markdown (`multitask.experiments.report_page`).
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from multitask.data.messages import plain

if TYPE_CHECKING:
    import pandas

TableCells = Sequence[Sequence[str]]
"""Cells of a table, the header first. All columns but the first ones are aligned right."""
MINUS = "−"  # as wide as a plus sign, unlike a hyphen

LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the start of a row, it would be the optional argument of the preceding line break
    "]": "{]}",
    "*": "{*}",  # would also be read as a part of that line break
    '"': "''",
    "–": "--",
    "—": "---",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    MINUS: "$-$",
    "±": r"$\pm$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "→": r"$\to$",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
}


def latex(value: object) -> str:
    """Text as LaTeX for any engine: special characters are escaped, others become similar ASCII or a question mark."""
    return "".join(map(_latex_sign, str(value)))


def _latex_sign(sign: str) -> str:
    if sign in LATEX_ESCAPES:
        return LATEX_ESCAPES[sign]
    if sign.isspace():
        return " "
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return plain if plain.isprintable() and plain else "?"


def markdown_text(text: str) -> str:
    """A text from outside, such as a folder's name, as one line of Markdown, or a cell of a table, without markup."""
    return re.sub(r"([\\`*\[\]<>|#&])", r"\\\1", " ".join(text.split()))


def markdown_code(text: str) -> str:
    """A name from outside as code in a line of Markdown or a cell of its tables."""
    return "`" + " ".join(text.replace("`", "'").replace("|", "\\|").split()) + "`"


def aligned(rows: TableCells, left: int = 1) -> str:
    """A table for a terminal; the first `left` columns are aligned left.

    Names from outside may have control characters, which a terminal would obey: they become spaces.
    """
    rows = [[plain(cell, most=len(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown_table(rows: TableCells, left: int = 1) -> str:
    """A table in Markdown, whose cells are Markdown."""
    header, *lines = rows
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *lines))


def latex_table(rows: TableCells) -> str:
    """A table for LaTeX with the package booktabs, whose cells are LaTeX."""
    header, *lines = [" & ".join(line) + r" \\" for line in rows]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
    body = [rf"  {line}" for line in (r"\toprule", header, r"\midrule", *lines, r"\bottomrule")]
    return "\n".join([begin, *body, r"\end{tabular}"]) + "\n"


def text_rows(frame: "pandas.DataFrame") -> TableCells:
    """A frame of text without its index."""
    return [[*map(str, frame.columns)], *frame.to_numpy().tolist()]

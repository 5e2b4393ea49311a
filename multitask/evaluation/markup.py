"""Text and tables for Markdown and LaTeX."""

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

SEEN = "†"  # marks a score on rows that the model was partly trained on
MINUS = "−"  # as wide as a plus sign, unlike a hyphen

LATEX = {
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
    if sign in LATEX:
        return LATEX[sign]
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


def markdown_table(frame: "pandas.DataFrame", left: int = 1) -> str:
    """A frame of Markdown, without its index; all columns but the first `left` are aligned right."""
    header = [*map(str, frame.columns)]
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *frame.to_numpy()))

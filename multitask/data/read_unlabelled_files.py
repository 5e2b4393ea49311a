"""Read text without labels: triplets, pairs of sentences with the same meaning, and plain sentences.

A row with an empty sentence is left out, and one warning per file counts such rows. Anything else that is wrong is an
error.
"""

from dataclasses import dataclass
from pathlib import Path

from minbert.errors import InputError
from multitask.data.examples import Examples
from multitask.data.problems import OnProblem, refuse
from multitask.data.read_tables import open_table
from multitask.data.tables import Source


@dataclass(frozen=True)
class Layout:
    """How unlabelled rows are written: the file's name in a data folder, which says its format, and its columns."""

    file: str
    columns: tuple[str, ...]


TRIPLETS = Layout("nli_triplets.csv", ("sent0", "sent1", "hard_neg"))
"""A premise, a sentence that it entails, and one that contradicts it."""
PAIRS = Layout("positive_pairs.tsv", ("sentence1", "sentence2"))
"""Two sentences with the same meaning."""
SENTENCES = Layout("sentences.txt", ("text",))
"""One sentence per line; blank lines are left out."""
CAPTIONS_FILE = "captions.txt"
NEWS_FILE = "news.txt"


def read_texts(path: Path, layout: Layout, limit: int | None = None, on_problem: OnProblem = refuse) -> Examples:
    """Read at most `limit` usable rows without labels; a file compressed by its suffix (.gz) too.

    Raises:
        InputError: the file is missing, has no usable row up to the limit, lacks a column, or is not UTF-8; with the
            default `on_problem` also a malformed row.
    """
    table = open_table(Source(str(path)), on_problem=on_problem, form=Path(layout.file).suffix)
    table.require(layout.columns)
    rows: list[list[str]] = []
    incomplete: list[int] = []
    for line, row in table.rows:
        if len(rows) == limit:
            break
        texts = [row[column].strip() for column in layout.columns]
        if all(texts):
            rows.append(texts)
        else:
            incomplete.append(line)
    table.warn("left out", "without a sentence", incomplete)
    if not rows:
        raise InputError(f"{path}: no usable row; expected at least one with a sentence")
    return Examples(tuple(map(list, zip(*rows, strict=True))), None, (), None, str(path), len(incomplete))

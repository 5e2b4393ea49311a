"""Results of tables as data: every score with its labels, in a Parquet file that needs neither runs nor models.

`multitask experiments run` writes the file `report/results.parquet`.

    from multitask.experiments.results import Results
    scores = Results.load("report/results.parquet").to_pandas()
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pandas
import pyarrow
from pyarrow import parquet

from minbert.errors import InputError
from minbert.files import atomic_file
from minbert.settings import read_as
from multitask.data.markup import MINUS, latex, latex_table, markdown_table, markdown_text
from multitask.evaluation.statistics import LEVEL
from multitask.evaluation.text_tables import SEEN
from multitask.tasks.scores import LOWER_IS_BETTER

RESULTS_VERSION = 6
"""Of the file."""
METADATA = b"minbert-multitask results"
"""Key of the tables' descriptions in the file's metadata."""
STEPS = "steps"
"""The metric of the column with the number of updates of a row's last training; it is there if rows differ in it."""
_TEXT, _FLOAT = pyarrow.string(), pyarrow.float64()
LINE: Final[dict[str, pyarrow.DataType]] = {
    "preset": _TEXT,  # name of the preset that was run
    "start": _TEXT,  # start weights of the row, or RANDOM_WEIGHTS
    "data": _TEXT,  # folder of the data, or a tasks file
    "study": _TEXT,  # the study that has the table; missing for tasks of one's own
    "table": _TEXT,  # the table's key
    "row": _TEXT,  # the row's key in the table
    "label": _TEXT,  # the row's name for readers
    "point": _TEXT,  # the row's parameters as a JSON object
    "seed": pyarrow.int64(),  # missing if the row has a published score only, or no score at all
    "task": _TEXT,  # the task, or the name of a mean over tasks
    "metric": _TEXT,  # what is measured
    "value": _FLOAT,  # the seed's score; missing if it is undefined
    "low": _FLOAT,  # ends of the 95% interval of the row's mean over seeds
    "high": _FLOAT,
    "difference": _FLOAT,  # of the means of the row and of the table's reference row; missing if not compared
    "p": _FLOAT,  # of the hypothesis that there is no difference, corrected for all tests of the table
    "published": _FLOAT,  # the paper's score
    "difference_low": _FLOAT,  # ends of the 95% interval of the difference
    "difference_high": _FLOAT,
    "seen": pyarrow.bool_(),  # whether the row's models were trained on some of the scored examples
}
"""The columns of the file, with their types. A line is the score of one seed, with what is known of its row's mean."""
OF_CELL = ["low", "high", "difference", "p", "published", "difference_low", "difference_high", "seen"]
"""The columns that all seeds of a row share."""


@dataclass(frozen=True)
class Column:
    """A column of a table: a metric of a task, or of a mean over tasks."""

    task: str
    metric: str
    heading: str
    pictured: bool
    """Whether the table's picture has a panel for it."""
    orderings: int = 0
    """Pairs of rows with different published scores; `agree` of them have the published order."""
    agree: int = 0
    significant: int = 0
    """Of those that agree, so many differ significantly; of the others, `contrary`."""
    contrary: int = 0
    significant_from: tuple[float, float] | None = None
    """How large a difference to the reference row must be to be significant, of the row that varies least and of the
    one that varies most; None if no row is tested, or if there is a single seed."""
    majority: float | None = None
    """The accuracy of always answering the most frequent label."""
    left_out: float = 0.0
    """The largest share of a row's resamples on which the score is undefined, and which its interval leaves out."""


@dataclass(frozen=True)
class Description:
    """What the lines of a table do not say."""

    table: str
    """The table's key."""
    name: str
    """For files and links."""
    title: str
    """With the paper's number of the table."""
    note: str
    reference: str | None
    """Key of the row that the others are compared with."""
    columns: tuple[Column, ...]
    start: str
    """The preset's start weights."""


@dataclass(frozen=True)
class TableScores:
    """A table with all its scores."""

    description: Description
    lines: pandas.DataFrame
    """Of the file, those of this table."""

    @cached_property
    def rows(self) -> pandas.DataFrame:
        """Label, start weights and parameters (`point`, a mapping) by the row's key, in the table's order."""
        rows = self.lines.drop_duplicates("row").set_index("row")[["label", "start", "point"]]
        return rows.assign(point=[_point(text) for text in rows.point])

    @cached_property
    def cells(self) -> pandas.DataFrame:
        """A line for each row and column, by the row's key and the column's place; both in the table's order.

        Columns: `mean` and sample standard `deviation` over seeds, `seeds` (how many), `values`, then the columns of
        the file that seeds share, and `significant`. A mean is missing without seeds, and where it is undefined.
        """
        places = {(column.task, column.metric): place for place, column in enumerate(self.description.columns)}
        place = [places[key] for key in zip(self.lines.task, self.lines.metric, strict=True)]
        cells = self.lines.assign(place=place).groupby(["row", "place"], sort=False)
        found = cells[OF_CELL].first()
        seeds, values = cells.seed.count(), cells.value.agg(lambda of: tuple(of.dropna()))
        undefined = values.map(len) < seeds
        mean, deviation = cells.value.mean().mask(undefined), cells.value.std().mask(undefined)
        found = found.assign(mean=mean, deviation=deviation, seeds=seeds, values=values)
        found = found.reindex([(row, at) for row in self.rows.index for at in range(len(places))])
        values = found["values"].map(lambda of: of if isinstance(of, tuple) else ())
        return found.assign(seeds=found.seeds.fillna(0).astype(int), values=values, significant=found.p < LEVEL)

    def column(self, place: int) -> pandas.DataFrame:
        """The cells of a column by the row's key."""
        return self.cells.xs(place, level="place")

    @property
    def pictured(self) -> list[int]:
        """Places of the columns that are pictured."""
        return [place for place, column in enumerate(self.description.columns) if column.pictured]


@dataclass(frozen=True)
class Results:
    """The scores of all tables of a report."""

    tables: tuple[TableScores, ...]

    @classmethod
    def load(cls, path: Path | str = "report/results.parquet") -> Self:
        """Read a file of results.

        Raises:
            InputError: it does not exist, is not a file of results, or another version wrote it.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such file; `multitask experiments run` writes results.parquet")
        try:
            found = parquet.read_table(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise _foreign(path, f"not a Parquet file ({str(error).splitlines()[0]:.80})") from None
        about = (found.schema.metadata or {}).get(METADATA)
        if about is None:
            raise _foreign(path, "another Parquet file")
        text = about.decode(errors="replace")
        if read_as(dict[str, Any], text, path).get("version") != RESULTS_VERSION:
            raise _foreign(path, "written by another version")
        if {one.name: one.type for one in found.schema} != LINE:
            raise _foreign(path, "with other columns")
        described: _Descriptions = read_as(_Descriptions, text, path)
        lines = frame_of(found)
        return cls(tuple(TableScores(one, lines[lines.table == one.table]) for one in described.tables))

    def save(self, path: Path) -> None:
        """Write the file, atomically."""
        descriptions = _Descriptions(RESULTS_VERSION, tuple(table.description for table in self.tables))
        about = json.dumps(asdict(descriptions), ensure_ascii=False).encode()
        lines = pyarrow.Table.from_pandas(self.to_pandas(), pyarrow.schema(list(LINE.items())), preserve_index=False)
        with atomic_file(path) as temporary:
            parquet.write_table(lines.replace_schema_metadata({METADATA: about}), temporary)

    def to_pandas(self) -> pandas.DataFrame:
        """The scores as a table with the columns of `LINE`: a line for each score, and for each cell without any."""
        return pandas.concat([table.lines for table in self.tables] or [frame_of(())], ignore_index=True)

    def table(self, key: str) -> TableScores:
        """A table. Raises InputError if there is none with this key."""
        found = {one.description.table: one for one in self.tables}
        if key not in found:
            raise InputError(f"no table {key}; there are {', '.join(found)}")
        return found[key]


def frame_of(lines: pyarrow.Table | tuple[Mapping[str, Any], ...] | list[dict[str, Any]]) -> pandas.DataFrame:
    """Lines as a frame with all columns of `LINE`; those that lines lack are empty."""
    if not isinstance(lines, pyarrow.Table):
        lines = pyarrow.Table.from_pylist(list(lines), pyarrow.schema(list(LINE.items())))
    # A missing seed must not turn the others into fractions.
    kinds = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}
    return lines.select(list(LINE)).to_pandas(types_mapper=kinds.get)


@dataclass(frozen=True)
class _Descriptions:
    """The file's metadata."""

    version: int
    tables: tuple[Description, ...]


def _point(text: str) -> Mapping[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}


def _foreign(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}; expected a report's results.parquet")


SIGNIFICANT = "\\*"
"""Marks a score that differs significantly from the reference row's, in Markdown."""
ComparedCell: TypeAlias = Any
"""A line of `TableScores.cells`, or of `table_results.compared`."""


def format_score(value: float | None) -> str:
    """Three decimals; a dash without a value."""
    return "–" if value is None or np.isnan(value) else f"{value:.3f}".replace("-", MINUS)


def signed(value: float, decimals: int = 3) -> str:
    """Decimals with a sign, zero without a sign."""
    text = f"{value:+.{decimals}f}".replace("-", MINUS)
    return text if float(f"{value:.{decimals}f}") else text[1:]


def p_value(p: float) -> str:
    """`p < 0.001` or `p = 0.034`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def difference(test: ComparedCell) -> str:
    """`+0.012* [+0.003, +0.021], p = 0.034` from a line of `table_results.compared`."""
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


def trained_on_scored(cell: ComparedCell) -> bool:
    """Whether models were trained on some of the scored examples, as far as that is known."""
    return not pandas.isna(cell.seen) and bool(cell.seen)


def best_mean(table: TableScores, place: int) -> float:
    """The best mean of a column with scores; NaN if fewer than two rows have one."""
    column, means = table.description.columns[place], table.column(place)["mean"].dropna()
    if len(means) < 2 or table.column(place).low.isna().all():
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
        columns.append([write.text(column.heading), *shown, *(write.number(of(column)) for of in FOOTER.values())])
        if has_published(table) and not cells.low.isna().all():
            columns.append(["Published", *(write.number(format_score(value)) for value in cells.published), *nothing])
    lines = [[*line] for line in zip(*columns, strict=True)]
    return [line for number, line in enumerate(lines) if number <= len(rows) or any(line[1:])]


def score_table(table: TableScores, places: Sequence[int]) -> str:
    """Some columns of a table in Markdown."""
    return markdown_table(score_rows(table, places, MARKDOWN))


def _cell(cell: ComparedCell, top: bool, write: Writer) -> str:
    text = write.bold.format(write.number(mean(cell))) if top else write.number(mean(cell))
    text += (write.number(SEEN) if trained_on_scored(cell) else "") + (write.star if cell.significant else "")
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


def has_published(table: TableScores) -> bool:
    """Whether the paper gives any score for the table."""
    return bool(table.cells.published.notna().any())


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
    places = [place for place in table.pictured if not table.column(place).low.isna().all()]
    body = indent(latex_table(score_rows(table, places, LATEX)), "  ")
    against = ""
    if about.reference in table.rows.index:
        against = f"; $^{{\\ast}}$ differs significantly from ``{latex(table.rows.label[about.reference])}''"
    title = latex(re.sub(r"^(Table|Figure) \d+: ", "", about.title))
    caption = f"{title}. {latex(subject)}; 95\\% intervals below{against}."
    return (
        f"% Needs \\usepackage{{booktabs}}. Written by `multitask experiments run`; {about.name}.\n"
        "\\begin{table}\n  \\centering\n  \\footnotesize\n  \\setlength{\\tabcolsep}{3pt}\n"
        f"  \\caption{{{caption}}}\n  \\label{{tab:{about.name}}}\n"
        f"{body}\\end{{table}}\n"
    )

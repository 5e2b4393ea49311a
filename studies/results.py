"""Results of tables as data: every score with its labels, in a Parquet file that needs neither runs nor models.

`multitask experiments run` and `multitask report` write the file `report/results.parquet`.

    from studies import Results
    scores = Results.load("report/results.parquet").to_pandas()
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from math import nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from minbert.errors import InputError
from minbert.files import atomic_file
from minbert.settings import read_as
from multitask.evaluation.statistics import LEVEL

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from studies.engine.table import Point

VERSION = 3
"""Of the file's metadata. Version 1 had neither `Spent` nor `Column.alike`, version 2 no `Column.significant_from`."""
METADATA = b"minbert-multitask results"
"""Key of the tables' descriptions in the file's metadata."""
RANDOM_WEIGHTS = "random weights"
"""The start of a row whose first stage trains an encoder from scratch. Settings such as the pooling, and the tokenizer
unless the stage learns one, are those of the preset's start weights."""


@dataclass(frozen=True)
class Line:
    """A line of the file: the score of one seed, with what is known of the mean over all seeds of its row.

    Args:
        preset: name of the preset that was run.
        start: the start weights of the row, or `RANDOM_WEIGHTS`.
        data: folder of the data, or a tasks file.
        study: the folder in `studies/` that has the table; None for tasks of one's own.
        table: the table's key.
        row: the row's key in the table.
        label: the row's name for readers.
        point: the row's parameters as a JSON object.
        seed: None if the row has a published score only, or no score at all.
        task: the task, or the name of a mean over tasks.
        metric: what is measured.
        value: the seed's score; NaN if it is undefined, None if there is none.
        low: lower end of the 95% interval of the row's mean over seeds; None if there is no interval.
        high: its upper end.
        difference: of the means of the row and of the table's reference row; None if they are not compared.
        p: of the hypothesis that there is no difference, corrected for all tests of the table.
        published: the paper's score.
    """

    preset: str
    start: str
    data: str
    study: str | None
    table: str
    row: str
    label: str
    point: str
    seed: int | None
    task: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    difference: float | None
    p: float | None
    published: float | None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        task: the task, or the name of a mean over tasks.
        metric: what is measured.
        heading: for readers.
        pictured: whether the table's picture has a panel for it.
        orderings: pairs of rows with different published scores.
        agree: how many of them have the published order.
        significant: how many of those that agree differ significantly.
        contrary: how many of the others differ significantly.
        alike: whether one variance over seeds describes all rows; otherwise each row has its own.
        significant_from: how large a difference to the reference row must be to be significant, of the row that varies
            least and of the one that varies most; None if no row is tested, or if there is a single seed.
    """

    task: str
    metric: str
    heading: str
    pictured: bool
    orderings: int = 0
    agree: int = 0
    significant: int = 0
    contrary: int = 0
    alike: bool = True
    significant_from: tuple[float, float] | None = None


@dataclass(frozen=True)
class Cell:
    """A row's scores in a column; see `Line`. `values` has one score for each seed."""

    seeds: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    p: float | None = None
    published: float | None = None

    @property
    def mean(self) -> float:
        """Over seeds; NaN without scores."""
        return fmean(self.values) if self.values else nan

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds; None with less than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def significant(self) -> bool:
        """Whether it differs from the reference row's at the 5% level."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True)
class RowScores:
    """A row of a table: its key, name, parameters, start weights, and a cell for each column; None without a score."""

    key: str
    label: str
    point: "Point"
    start: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Spent:
    """What the stages of a table took, those that rows share counted once.

    Args:
        stages: how many there are, of all seeds.
        seconds: of all stages, one after the other.
        machines: names of the processors or GPUs on which stages were finished, where they noted it.
    """

    stages: int = 0
    seconds: float = 0.0
    machines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Description:
    """What the lines of a table do not say.

    Args:
        table: the table's key.
        name: for files and links.
        title: for readers, with the paper's number of the table.
        note: what a reader must know about the rows.
        reference: key of the row that the others are compared with.
        columns: in order.
        spent: what the rows took.
        start: the preset's start weights; None in files of earlier versions, where they are the start of every row.
    """

    table: str
    name: str
    title: str
    note: str
    reference: str | None
    columns: tuple[Column, ...]
    spent: Spent = Spent()
    start: str | None = None


@dataclass(frozen=True)
class TableScores:
    """A table with all its scores. The first three arguments are those of `Line`."""

    preset: str
    data: str
    study: str | None
    description: Description
    rows: tuple[RowScores, ...]

    @property
    def start(self) -> str:
        """The preset's start weights."""
        return self.description.start or self.rows[0].start

    @property
    def pictured(self) -> list[int]:
        """Places of the columns that are pictured."""
        return [place for place, column in enumerate(self.description.columns) if column.pictured]

    @property
    def seeds(self) -> list[int]:
        """The different numbers of seeds that cells have, in order."""
        return sorted({len(cell.seeds) for row in self.rows for cell in row.cells if cell and cell.seeds})

    @property
    def reference(self) -> RowScores | None:
        """The row that the others are compared with."""
        return next((row for row in self.rows if row.key == self.description.reference), None)

    def lines(self) -> Iterator[Line]:
        """The table's lines in the file: one for each score, and one for each cell without any."""
        for row in self.rows:
            for column, cell in zip(self.description.columns, row.cells, strict=True):
                yield from self._lines(row, column, cell or Cell())

    def _lines(self, row: RowScores, column: Column, cell: Cell) -> Iterator[Line]:
        whose = (self.preset, row.start, self.data, self.study, self.description.table, row.key, row.label)
        what = (column.task, column.metric)
        means = (cell.low, cell.high, cell.difference, cell.p, cell.published)
        point = json.dumps(dict(row.point), ensure_ascii=False)
        for seed, value in zip(cell.seeds or (None,), cell.values or (None,), strict=True):
            yield Line(*whose, point, seed, *what, value, *means)


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
        import pyarrow
        import pyarrow.parquet

        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such file; `multitask report` writes results.parquet")
        try:
            found = pyarrow.parquet.read_table(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise _foreign(path, f"not a Parquet file ({str(error).splitlines()[0]:.80})") from None
        about = (found.schema.metadata or {}).get(METADATA)
        if about is None or not found.schema.remove_metadata().equals(_schema()):
            raise _foreign(path, "another Parquet file")
        described: _Descriptions = read_as(_Descriptions, about.decode(errors="replace"), path)
        if described.version != VERSION:
            raise _foreign(path, "written by another version")
        lines = [Line(**line) for line in found.to_pylist()]
        by_table = {key: list(of) for key, of in groupby(lines, key=lambda line: line.table)}
        if by_table.keys() != {one.table for one in described.tables}:
            raise _foreign(path, "lines of other tables than its metadata describe")
        return cls(tuple(_table(one, by_table[one.table], path) for one in described.tables))

    def save(self, path: Path) -> None:
        """Write the file, atomically."""
        import pyarrow.parquet

        descriptions = _Descriptions(VERSION, tuple(table.description for table in self.tables))
        about = json.dumps(asdict(descriptions), ensure_ascii=False).encode()
        with atomic_file(path) as temporary:
            pyarrow.parquet.write_table(self._arrow().replace_schema_metadata({METADATA: about}), temporary)

    def to_pandas(self) -> "pandas.DataFrame":
        """The scores as a table with the columns of `Line`: a line for each score, and for each cell without any.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas; install it with: pip install pandas") from None
        import pyarrow

        whole = {pyarrow.int64(): pandas.Int64Dtype()}  # a missing seed must not turn the others into fractions
        return self._arrow().to_pandas(types_mapper=whole.get)

    def table(self, key: str) -> TableScores:
        """A table. Raises InputError if there is none with this key."""
        found = {one.description.table: one for one in self.tables}
        if key not in found:
            raise InputError(f"no table {key}; there are {', '.join(found)}")
        return found[key]

    def _arrow(self) -> "pyarrow.Table":
        import pyarrow

        lines = [line for table in self.tables for line in table.lines()]
        columns = {field.name: [getattr(line, field.name) for line in lines] for field in fields(Line)}
        return pyarrow.table(columns, _schema())


@dataclass(frozen=True)
class _Descriptions:
    """The file's metadata."""

    version: int
    tables: tuple[Description, ...]


def _schema() -> "pyarrow.Schema":
    """The types of the columns, which are those of `Line`."""
    import pyarrow

    types: dict[Any, Any] = {str: pyarrow.string(), str | None: pyarrow.string(), int | None: pyarrow.int64()}
    return pyarrow.schema([(field.name, types.get(field.type, pyarrow.float64())) for field in fields(Line)])


def _table(description: Description, lines: Sequence[Line], path: Path) -> TableScores:
    """A table from its lines. Raises InputError if a line is of no column."""
    places = {(column.task, column.metric): place for place, column in enumerate(description.columns)}
    if stray := next((line for line in lines if (line.task, line.metric) not in places), None):
        raise _foreign(path, f"table {description.table} has no column {stray.task} {stray.metric}")
    rows = []
    for key, of_row in groupby(lines, key=lambda line: line.row):
        found = list(of_row)
        cells: list[Cell | None] = [None] * len(places)
        for column, of_cell in groupby(found, key=lambda line: (line.task, line.metric)):
            cell = _cell(list(of_cell))
            cells[places[column]] = None if cell == Cell() else cell
        rows.append(RowScores(key, found[0].label, _point(found[0].point, path), found[0].start, tuple(cells)))
    first = lines[0]
    return TableScores(first.preset, first.data, first.study, description, tuple(rows))


def _cell(lines: Sequence[Line]) -> Cell:
    first, scored = lines[0], [line for line in lines if line.seed is not None and line.value is not None]
    seeds, values = tuple(line.seed for line in scored), tuple(line.value for line in scored)
    means = (first.low, first.high, first.difference, first.p, first.published)
    return Cell(seeds, values, *means)  # type: ignore[arg-type]  # none of them is None


def _point(text: str, path: Path) -> Mapping[str, Any]:
    values = read_as(dict[str, Any], text, path)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _foreign(path: Path, what: str) -> InputError:
    return InputError(f"{path}: {what}; expected results that `multitask report` wrote")

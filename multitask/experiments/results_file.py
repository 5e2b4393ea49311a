"""Results of tables as data: every score with its labels, in a Parquet file that needs neither runs nor models.

`multitask experiments run` writes the file `report/results.parquet`.

    from multitask.experiments.results_file import Results
    scores = Results.load("report/results.parquet").to_pandas()
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Self

import pandas
import pyarrow
from pyarrow import parquet

from minbert.errors import InputError
from minbert.files import atomic_file
from minbert.settings import read_as
from multitask.evaluation.statistics import LEVEL
from multitask.evaluation.text_tables import capitalized
from multitask.experiments.compare_rows import TABLE_MEASURES, PresetResults, TableResults
from multitask.experiments.grid_frames import EMBEDDINGS, MEAN, TRAINING, RunResult
from multitask.experiments.table_definitions import Row

RESULTS_VERSION = 6  # of the file
METADATA = b"minbert-multitask results"  # key of the tables' descriptions in the file's metadata
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
    "seen": pyarrow.bool_(),  # whether the row's models are known to have read some of the scored examples
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
    pictured: bool  # whether the table's picture has a panel for it
    orderings: int = 0  # pairs of rows with different published scores; `agree` of them have the published order
    agree: int = 0
    significant: int = 0  # of those that agree, so many differ significantly; of the others, `contrary`
    contrary: int = 0
    # how large a difference to the reference row must be to be significant, of the row that varies least and of the one
    # that varies most; None if no row is tested, or if there is a single seed
    significant_from: tuple[float, float] | None = None
    majority: float | None = None  # the accuracy of always answering the most frequent label
    # the largest share of a row's resamples on which the score is undefined, and which its interval leaves out
    left_out: float = 0.0


@dataclass(frozen=True)
class Description:
    """What the lines of a table do not say."""

    table: str  # the table's key
    name: str  # for files and links
    title: str  # with the paper's number of the table
    note: str
    reference: str | None  # key of the row that the others are compared with
    columns: tuple[Column, ...]
    start: str  # the preset's start weights


@dataclass(frozen=True)
class TableScores:
    """A table with all its scores."""

    description: Description
    lines: pandas.DataFrame  # of the file, those of this table

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
        seeds, values = cells.seed.count(), cells.value.agg(lambda scores: tuple(scores.dropna()))
        undefined = values.map(len) < seeds
        mean, deviation = cells.value.mean().mask(undefined), cells.value.std().mask(undefined)
        found = found.assign(mean=mean, deviation=deviation, seeds=seeds, values=values)
        found = found.reindex([(row, at) for row in self.rows.index for at in range(len(places))])
        values = found["values"].map(lambda scores: scores if isinstance(scores, tuple) else ())
        return found.assign(seeds=found.seeds.fillna(0).astype(int), values=values, significant=found.p < LEVEL)

    def column(self, place: int) -> pandas.DataFrame:
        """The cells of a column by the row's key."""
        return self.cells.xs(place, level="place")

    def has_scores(self, place: int) -> bool:
        """Whether a column has scores. Further measures have neither intervals nor tests."""
        return bool(self.column(place)[["low", "seen"]].notna().any(axis=None))

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


def scores_as_data(results: PresetResults, studies: Mapping[str, str] | None = None) -> Results:
    """The scores of all tables with a finished run, simulations left out. `studies` has the study of each table."""
    record, tables = results.record, []
    for key, found in results.finished_tables.items():
        table, columns, lines = found.table, tuple(_columns(found)), list[dict[str, Any]]()
        for row, column in product(table.rows, columns):
            start = next((run.start for run in found.runs.get(row.key, ())), record.start)
            of_row = {"preset": record.preset, "data": record.data, "study": (studies or {}).get(key), "table": key}
            of_row |= {"start": start, "row": row.key, "label": row.label}
            of_row |= {"point": json.dumps(dict(row.point), ensure_ascii=False)}
            of_cell = {**of_row, "task": column.task, "metric": column.metric}
            lines += [{**of_cell, **line} for line in _cell(found, row, column)]
        about = (key, table.name, table.numbered_title, table.note, table.reference, columns, record.start)
        tables.append(TableScores(Description(*about), frame_of(lines)))
    return Results(tuple(tables))


def _columns(found: TableResults) -> Iterator[Column]:
    """The columns with scores, then those with further measures that a run has a value for.

    Alignment and uniformity describe the embeddings of one dev set; papers on embeddings compare them next to the means
    of SentEval's tasks. The mean reciprocal rank is a second measure of retrieval tasks, which are tested by nDCG.
    """
    table, orderings = found.table, found.orderings
    for name in table.score_columns:
        pairs = orderings[orderings.index.get_level_values(0) == name] if len(orderings) else orderings
        agree = pairs[pairs.agrees.astype(bool)]
        contrary = pairs[~pairs.agrees.astype(bool)]
        counts = (len(pairs), len(agree), int(agree.significant.sum()), int(contrary.significant.sum()))
        pictured, metric = not table.groups or name in table.groups, found.measures.get(name, MEAN)
        heading, size = found.heading(name), found.significant_from(name)
        yield Column(name, metric, heading, pictured, *counts, size, found.majority(name), found.left_out(name))
    geometry = ("alignment", "uniformity")
    further = [Column(EMBEDDINGS, name, name.capitalize(), bool(table.groups)) for name in geometry]
    further += [Column(task, "mrr", f"{task} MRR", False) for task, name in found.measures.items() if name == "ndcg"]
    for task, (_, *others) in table.metrics.items():
        further += [Column(task, name, f"{capitalized(task)} {TABLE_MEASURES[name]}", False) for name in others]
    steps = Column(TRAINING, STEPS, "Steps", False)
    for column in (*further, steps):
        values = {_further(run, column) for runs in found.runs.values() for run in runs} - {None}
        if len(values) > (column is steps):
            yield column


def _further(run: RunResult, column: Column) -> float | None:
    """A further measure of a run; None without one. An ensemble has no embeddings of its own, and no steps."""
    if column.metric == STEPS:
        return run.steps
    return run.numbers.get(column.task, {}).get(column.metric)


def _cell(found: TableResults, row: Row, column: Column) -> list[dict[str, Any]]:
    """A line for each seed, or one with the published score alone."""
    runs = found.runs.get(row.key, ())
    if column.metric != found.measures.get(column.task, MEAN):
        values = {run.seed: value for run in runs if (value := _further(run, column)) is not None}
        return [{"seed": seed, "value": value} for seed, value in values.items()] or [{}]
    tasks, published = found.tasks(column.task), {"published": row.published.get(column.task)}
    runs = found.scored(row.key, tasks) if tasks else ()
    if not runs:
        return [published]
    low, high = found.interval(row.key, column.task)
    defined = (row.key, column.task) in found.scores
    seen = defined and any((row.key, task) in found.overlaps.index for task in tasks)
    of_row = {**published, "low": low, "high": high, "seen": seen}
    if (row.key, column.task) in found.against_reference.index:
        test = found.against_reference.loc[row.key, column.task]
        of_row |= {"difference": test.difference, "p": test.p}
        of_row |= {"difference_low": test.low, "difference_high": test.high}
    return [{"seed": run.seed, "value": fmean(run.scores[task] for task in tasks), **of_row} for run in runs]

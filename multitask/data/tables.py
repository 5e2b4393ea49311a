"""Rows of a table, one at a time: of a csv, tsv, jsonl, parquet, xlsx or text file, or of a data set of the hub.

Delimited text is parsed strictly, and a bad row is named by file and line. Text is kept as written; tasks ignore white
space around it. The course's starter code also lower-cases text and puts spaces before `. ? , '`. The
tokenizer of an uncased BERT does both by itself, so its ids are the same either way (except for a capital sigma that
ends a Greek word).
"""

import codecs
import csv
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas
import pyarrow.compute
import pyarrow.parquet
from pydantic import Field
from pydantic_core import from_json

from minbert.errors import InputError
from minbert.files import refuse_expanding_archive, refuse_expansion
from multitask.data.problems import OnProblem, checked, listed, plain, quote, reason, refuse
from multitask.data.text_lines import MOST_BYTES, suffixes, text_lines
from multitask.runs.run_hash import hash_of_file

HUB = "hf:"
FRAME = "the data frame"
SEPARATORS = {".csv": ",", ".tsv": "\t"}
ROWS_PER_BATCH = 8192
CONFIGURED = ("glue", "super_glue", "tweet_eval", "xtreme", "clue")
"""Data sets of the hub without an owner in their name whose last part is a configuration: `glue/mrpc`."""

EXCHANGED = str.maketrans(",.", ".,")

Row = dict[str, Any]

csv.field_size_limit(MOST_BYTES)  # by default, a sentence of more than 131,072 characters is an error


@dataclass(frozen=True)
class Dialect:
    """How text is written in a file.

    Args:
        separator: between fields; None: a comma in .csv and a tab in .tsv.
        quotes: whether fields may stand in quotes; if not, quotes are ordinary characters.
        line_breaks: whether a quoted field may contain line breaks.
        encoding: of the text, as Python names it: `cp1252` of many spreadsheets, `utf-16`.
        decimal: the decimal mark of labels that are numbers.
        missing: fields that count as empty, such as `n/a`.
    """

    separator: str | None = None
    quotes: bool = True
    line_breaks: bool = False
    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(f"separator is {quote(self.separator)}; expected one character")
        try:
            "\n".encode(codecs.lookup(self.encoding).name)
        except (LookupError, ValueError):
            raise InputError(f"encoding is {quote(self.encoding)}; expected one such as utf-8 or cp1252") from None

    def field(self, value: Any) -> Any:
        """A field of a row; None if it counts as empty."""
        return None if isinstance(value, str) and value.strip() in self.missing else value

    def label(self, value: Any) -> Any:
        """A label's field, with a decimal point if it is a number with this decimal mark."""
        if self.decimal == "," and isinstance(value, str) and re.fullmatch(r"[\d.,eE+-]+", value.strip()):
            value = value.translate(EXCHANGED)  # 1.000 is a thousand there, and no number here
        return self.field(value)

    def of_form(self, form: str) -> "Dialect":
        """What holds for another file too, given its format as a suffix: only delimited text has all of it."""
        if form == ".csv" or form not in FORMATS:
            return self
        if form in SEPARATORS:
            return replace(self, separator=None)
        return Dialect(decimal=self.decimal, missing=self.missing)

    def changed(self) -> dict[str, Any]:
        """What differs from the default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Args:
        file: a file, or `hf:` and a data set of the hub (`hf:OWNER/NAME`, `hf:OWNER/NAME/CONFIGURATION`,
            `hf:glue/mrpc`) or the folder of one that was saved to disk.
        split: of a data set, the split; of a file, the rows whose column `split` has this value. None: all rows.
        dialect: how the file is written, if it has its own table in the tasks file.
    """

    file: Annotated[str, Field(pattern=r"^\P{C}+$")]  # no control characters
    split: str | None = None
    dialect: Dialect | None = None

    def __str__(self) -> str:
        return self.file if self.split is None else f"{self.file} ({self.split})"

    @property
    def path(self) -> Path | None:
        """The file; None for a data set of the hub."""
        return None if self.file.startswith(HUB) else Path(self.file)

    def exists(self) -> bool:
        """Whether the file exists, or a link of its name; True for a data set of the hub."""
        return self.path is None or self.path.exists() or self.path.is_symlink()

    def fingerprint(self) -> str:
        """A hash of the content, 64 hex digits. Raises InputError if there is no such file or data set."""
        if self.path is not None:
            return checked(self.path, hash_of_file)
        return sha256(_hub_data_set(self)._fingerprint.encode()).hexdigest()


@dataclass(frozen=True)
class Table:
    """An open table.

    Args:
        name: of the file or data set, for messages.
        columns: the columns' names; of jsonl those of the first thousands of rows.
        rows: the number of each row (its first line in text files, otherwise counted from 1), and its values by column.
        by_line: whether the numbers are lines.
        schema: the columns' Arrow types; None of text files.
        dialect: how its fields are written.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterator[tuple[int, Row]]
    by_line: bool = True
    schema: Any = None
    dialect: Dialect = Dialect()

    def place(self, number: int) -> str:
        """File and row, as messages begin."""
        return f"{self.name}:{number}" if self.by_line else f"{self.name}: row {number}"

    def refuse_repeated(self) -> None:
        """Raise InputError if a named column occurs twice: a row has one value of a name."""
        if twice := [column for column in self.columns if column and self.columns.count(column) > 1]:
            raise InputError(f"{self.name}: column {plain(twice[0])} is there twice; rename one of them")

    def require(self, columns: Sequence[str]) -> None:
        """Raise InputError unless the table has each of these columns once."""
        for column in columns:
            if (count := self.columns.count(column)) != 1:
                found = f"no column {plain(column)}" if not count else f"column {plain(column)} occurs {count} times"
                named = list(filter(None, self.columns))
                there = f"the columns are {listed(named)}" if named else "the header names no columns"
                if len(self.columns) == 1 and re.search("[,;|\t]", self.columns[0]):
                    there = (
                        f"the only column is {quote(self.columns[0])}; set separator in the tasks file (--tasks-file)"
                    )
                raise InputError(f"{self.name}: {found}; {there}")


def open_table(source: Source, dialect: Dialect = Dialect(), on_problem: OnProblem = refuse, form: str = "") -> Table:
    """Open a table of any format, by its suffix; files of text may also be compressed (.gz).

    Args:
        source: the file or data set, and the split.
        dialect: of text; the source's own comes first.
        on_problem: called for each malformed row, which is then left out; the default raises the first problem.
        form: the format as a suffix such as `.csv`; by default that of the file's name.

    Raises:
        InputError: the file is missing, empty, damaged or of an unknown format.
    """
    if source.path is None:
        return _hub_table(source)
    path, dialect = source.path, source.dialect or dialect
    suffix = form or suffixes(path)[0]
    read = FORMATS.get(suffix)
    if dialect.separator and read in (None, _lines):
        read = _delimited
    if read is None:
        names = ", ".join(FORMATS)
        raise InputError(f"{path}: unknown format; expected a name that ends in {names}, or in one of them and .gz")
    separator = dialect.separator or SEPARATORS.get(suffix)
    table = replace(read(path, replace(dialect, separator=separator), on_problem), dialect=dialect)
    return table if source.split is None else _rows_of_split(table, source.split)


def table_of(frame: pandas.DataFrame) -> Table:
    """The rows of a pandas data frame; missing values are None."""
    columns = tuple(map(str, frame.columns))
    values = (frame.iloc[:, i].astype(object).where(frame.iloc[:, i].notna(), None) for i in range(len(columns)))
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    return Table(FRAME, columns, enumerate(rows, start=1), by_line=False)


def _rows_of_split(table: Table, split: str) -> Table:
    table.require(("split",))

    def rows() -> Iterator[tuple[int, Row]]:
        others: set[str] = set()
        found = False
        for number, row in table.rows:
            if (own := str(row.get("split")).strip()) == split:
                found = True
                yield number, row
            elif not found and len(others) < 20:
                others.add(own)
        if not found:
            raise InputError(f"{table.name}: no row has {quote(split)} in column split, only {listed(sorted(others))}")

    return replace(table, rows=rows())


def _lines(path: Path, dialect: Dialect, _: OnProblem) -> Table:
    """Each line of a text file as the column `text`, without the white space around it; blank lines too."""
    rows = ((number, {"text": line.strip()}) for number, line in enumerate(text_lines(path, dialect.encoding), start=1))
    return Table(str(path), ("text",), rows)


def _delimited(path: Path, dialect: Dialect, on_problem: OnProblem) -> Table:
    """Fields are unquoted as by `csv.DictReader`, which the course's starter code uses."""
    rows = _split_rows(path, dialect, on_problem)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path}: the file is empty; expected a header line and rows")
    header = [name.strip() for name in first[1]]
    between = {"\t": "tabs", ",": "commas"}.get(str(dialect.separator), repr(dialect.separator))

    def by_column() -> Iterator[tuple[int, Row]]:
        for line, row in rows:
            if len(row) == len(header):
                yield line, dict(zip(header, row, strict=True))
            else:
                expected = f"expected {len(header)}, as in the header (separated by {between})"
                on_problem(f"{path}:{line}: the row has {len(row)} fields; {expected}")

    return Table(str(path), tuple(header), by_column())


def _split_rows(path: Path, dialect: Dialect, on_problem: OnProblem) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the line where it starts.

    Not with pyarrow's reader: it takes broken quoting for text, drops rows with an open quote without a word, and does
    not tell the lines of rows.
    """
    reader = csv.reader(
        text_lines(path, dialect.encoding),
        delimiter=str(dialect.separator),
        quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            on_problem(
                f"{path}:{line}: broken quoting ({error}); expected a field that starts with a quote to end with one, "
                "and quotes inside it to be doubled (or set quotes = false in the tasks file (--tasks-file))"
            )
            continue
        if row is None:
            return
        if reader.line_num > line and not dialect.line_breaks:
            on_problem(
                f"{path}:{line}: a quoted field goes on until line {reader.line_num}; close its quote, or set "
                "line_breaks = true in the tasks file (--tasks-file)"
            )
        elif row:
            yield line, row


def _json_lines(path: Path, dialect: Dialect, on_problem: OnProblem) -> Table:
    """Not with pyarrow's reader, in which all values of a column have one type, and text may become a date."""

    def parsed() -> Iterator[tuple[int, Row]]:
        for number, line in enumerate(text_lines(path, dialect.encoding), start=1):
            if not line.strip():
                continue
            try:
                value = from_json(line.strip())
            except ValueError as error:
                on_problem(f"{path}:{number}: not JSON ({str(error).replace('line 1 column', 'character')})")
                continue
            if not isinstance(value, dict):
                on_problem(f"{path}:{number}: {quote(value)} is not an object; expected one object a line")
            elif (twice := _repeated_name(line, value)) is not None:
                on_problem(f"{path}:{number}: the object has {quote(twice)} twice; expected each name once")
            else:
                yield number, value

    rows = parsed()
    first = list(islice(rows, ROWS_PER_BATCH))
    if not first:
        raise InputError(f"{path}: no JSON object; expected one a line")
    return Table(str(path), tuple(dict.fromkeys(column for _, row in first for column in row)), chain(first, rows))


def _repeated_name(line: str, value: Row) -> str | None:
    """A name that an object of JSON has twice, of which parsers drop one value; None if there is none."""
    if len(re.findall(r'"\s*:', line)) == len(value):  # each colon after a text is that of a name
        return None
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        found.extend(name for name in names if names.count(name) > 1)

    json.loads(line, object_pairs_hook=look, parse_int=str)
    return found[0] if found else None


def _parquet(path: Path, *_: object) -> Table:
    """Text is read as indices into its different values: a few values repeated often are a small file."""

    @contextmanager
    def damage() -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # Arrow raises many kinds
            raise _damaged(path, error) from None

    def batches() -> Iterator[list[Row]]:
        size = 0
        with damage():
            for batch in file.iter_batches(ROWS_PER_BATCH):
                size += sum(map(_bytes_of, batch.columns))
                refuse_expansion(path, size)
                yield batch.to_pylist()

    with damage():
        metadata = checked(path, pyarrow.parquet.read_metadata)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        refuse_expansion(path, sum(group.total_byte_size for group in groups))
        texts = [
            column.path
            for column in metadata.schema
            if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
        ]
        schema = pyarrow.parquet.read_schema(path)
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
    rows = enumerate(chain.from_iterable(batches()), start=1)
    return Table(str(path), tuple(schema.names), rows, by_line=False, schema=schema)


def _bytes_of(column: Any) -> int:
    """Bytes of an Arrow array when each of its texts is written out."""
    if pyarrow.types.is_dictionary(column.type):
        lengths = pyarrow.compute.binary_length(column.dictionary).take(column.indices)
        return int(pyarrow.compute.sum(lengths).as_py() or 0)
    if pyarrow.types.is_list(column.type):
        return _bytes_of(column.flatten())
    if pyarrow.types.is_struct(column.type):
        return sum(map(_bytes_of, column.flatten()))
    return int(column.nbytes)


def _spreadsheet(path: Path, dialect: Dialect, _: OnProblem) -> Table:
    """The first sheet of a workbook, whose first row has the columns' names. Every cell is text, as in csv."""
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(f'{path}: needs openpyxl; install it with: pip install -e ".[xlsx]", or save the sheet as csv')
    checked(path, refuse_expanding_archive)
    try:
        sheet = pandas.read_excel(path, header=None, dtype=object, na_values=[""], keep_default_na=False)
    except Exception as error:  # damaged workbooks raise many kinds
        raise _damaged(path, error) from None
    # Cells that are numbers have no decimal mark of their own: they are written as the other cells are.
    sheet = sheet.fillna("").map(
        lambda cell: str(cell).replace(".", dialect.decimal) if isinstance(cell, float) else cell
    )
    cells = sheet.astype(str).to_numpy().tolist()
    if not cells:
        raise InputError(f"{path}: the sheet is empty; expected a row with the columns' names, and rows")
    header = tuple(name.strip() for name in cells[0])
    rows = ((number, dict(zip(header, row, strict=True))) for number, row in enumerate(cells[1:], start=2) if any(row))
    return Table(str(path), header, rows, by_line=False)


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: damaged, or not of the format that its name says ({reason(error)})")


FORMATS: dict[str, Callable[[Path, Dialect, OnProblem], Table]] = {
    ".csv": _delimited,
    ".tsv": _delimited,
    ".jsonl": _json_lines,
    ".jsonlines": _json_lines,
    ".parquet": _parquet,
    ".xlsx": _spreadsheet,
    ".txt": _lines,
}
"""Readers by suffix."""


def _hub_table(source: Source) -> Table:
    """Class numbers become the names that the data set declares."""
    data = _hub_data_set(source)
    names = {name: kind.names for name, kind in data.features.items() if hasattr(kind, "names")}

    def rows() -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(data, start=1):
            codes = ((column, row[column], labels) for column, labels in names.items())
            yield number, row | {c: None if code is None or code < 0 else labels[code] for c, code, labels in codes}

    return Table(str(source), tuple(data.column_names), rows(), by_line=False)


def _hub_data_set(source: Source) -> Any:
    """The split of a data set that was saved to disk, or of the hub."""
    try:
        import datasets
    except ImportError:
        raise InputError(f'{source}: needs the datasets library; install with: pip install -e ".[datasets]"') from None
    name = source.file.removeprefix(HUB)
    owner, _, last = name.rpartition("/")
    try:
        if Path(name).is_dir():
            found = datasets.load_from_disk(name)
        elif owner.count("/") or (owner and owner in CONFIGURED):
            found = datasets.load_dataset(owner, last)
        else:
            found = datasets.load_dataset(name)
    except Exception as error:  # the library raises many kinds: no network, no such name, damaged files
        raise InputError(f"{source}: cannot be loaded ({reason(error)})") from None
    if not isinstance(found, datasets.DatasetDict):
        return found
    if source.split not in found:
        raise InputError(f"{source}: expected a split of {', '.join(found)}")
    return found[source.split]

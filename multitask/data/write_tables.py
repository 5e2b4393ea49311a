"""Write a table block by block, in the format of its name: csv, tsv, jsonl or parquet, text formats also compressed."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.data.problems import plain, reason
from multitask.data.tables import SEPARATORS, Row
from multitask.data.text_lines import suffixes

STANDARD_OUTPUT = Path("-")


class TableWriter(ABC):
    """Adds rows to a table."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Add rows. All rows of a table have the same columns."""


class _Delimited(TableWriter):
    """Lists become one text, with | between their items."""

    def __init__(self, file: IO[str], separator: str, columns: Sequence[str]) -> None:
        self.writer = csv.DictWriter(file, columns, delimiter=separator, lineterminator="\n")
        self.writer.writeheader()

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            _refuse_new_columns(row, self.writer.fieldnames)
            joined = {name: "|".join(map(str, v)) for name, v in row.items() if isinstance(v, list | tuple)}
            self.writer.writerow({**row, **joined} if joined else row)


class _JsonLines(TableWriter):
    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, rows: Sequence[Row]) -> None:
        # JSON has no dates and no decimal numbers, which parquet files may hold.
        self.file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


class _Parquet(TableWriter):
    """The first block's rows decide the columns' types, except for those that `types` gives."""

    def __init__(self, path: Path, columns: Sequence[str], types: Mapping[str, Any]) -> None:
        self.path = path
        self.columns = columns
        self.types = types
        self.schema: Any = None
        self.writer: Any = None

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow
        import pyarrow.parquet

        for row in rows:
            _refuse_new_columns(row, self.columns)
        try:
            if self.writer is None:
                arrays = {name: pyarrow.array([row.get(name) for row in rows]) for name in self.columns}
                known = [(name, self.types.get(name, array.type)) for name, array in arrays.items()]
                self.schema = pyarrow.schema(known)
                self.writer = pyarrow.parquet.ParquetWriter(self.path, self.schema)
            self.writer.write_table(pyarrow.Table.from_pylist(list(rows), self.schema))
        except pyarrow.ArrowException as error:
            raise InputError(
                f"a column's values have no common type in parquet ({reason(error)}); write jsonl"
            ) from None

    def close(self) -> None:
        """End the file; without rows it has only the columns."""
        if self.writer is None:
            self.write([])
        self.writer.close()


def _refuse_new_columns(row: Row, columns: Collection[str]) -> None:
    if new := [name for name in row if name not in columns]:
        raise InputError(f"a row has the column {plain(new[0])}, which the first rows do not have; write jsonl")


@contextmanager
def table_writer(
    path: Path, columns: Sequence[str], types: Mapping[str, Any] | None = None, form: str = ""
) -> Iterator[TableWriter]:
    """Write a table. The file appears when the block ends without an error.

    Args:
        path: the file; `-` for standard output.
        columns: the columns' names, in order.
        types: Arrow types of some columns, for parquet.
        form: the format, as a suffix such as `.csv`, of standard output; in place of parquet, jsonl is written.

    Raises:
        InputError: the name has no known format, or the format cannot hold a row.
    """
    if path == STANDARD_OUTPUT:
        yield _text_writer(sys.stdout, ".jsonl" if form == ".parquet" else form, columns)
        sys.stdout.flush()
        return
    check_output(path)
    suffix, compression = suffixes(path)
    with atomic_file(path) as temporary:
        if suffix == ".parquet":
            writer = _Parquet(temporary, columns, types or {})
            yield writer
            writer.close()
        else:
            with io.TextIOWrapper(_OPEN[compression](temporary), "utf-8", newline="") as file:
                yield _text_writer(file, suffix, columns)


def check_output(path: Path) -> None:
    """Raise InputError unless a table can be written under this name."""
    suffix, compression = suffixes(path)
    if path == STANDARD_OUTPUT:
        return
    if suffix not in (*SEPARATORS, ".jsonl", ".jsonlines", ".parquet") or (compression and suffix == ".parquet"):
        raise InputError(f"{path}: unknown format; expected a name that ends in .csv, .tsv, .jsonl or .parquet")
    if compression not in _OPEN:
        raise InputError(f"{path}: cannot write {compression}; expected .gz, .bz2, .xz or no compression")


def _text_writer(file: IO[str], suffix: str, columns: Sequence[str]) -> TableWriter:
    if suffix in (".jsonl", ".jsonlines"):
        return _JsonLines(file)
    return _Delimited(file, SEPARATORS.get(suffix, "\t"), columns)


_OPEN: dict[str, Callable[[Path], Any]] = {
    "": partial(Path.open, mode="wb"),
    ".gz": partial(gzip.open, mode="wb"),
    ".bz2": partial(bz2.open, mode="wb"),
    ".xz": partial(lzma.open, mode="wb"),
}

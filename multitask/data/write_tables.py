"""Write a table block by block, in the format of its name: csv, tsv, jsonl or parquet, text formats also with .gz."""

import csv
import gzip
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from minbert.errors import InputError
from minbert.files import atomic_file
from multitask.data.messages import plain, reason
from multitask.data.tables import SEPARATORS, FileRow, suffixes

STANDARD_OUTPUT = Path("-")
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""Spreadsheets run a text that begins with one of these as a formula (OWASP, "CSV Injection")."""

WriteRows = Callable[[Sequence[FileRow]], None]
"""Adds rows to a table. Raises InputError if its format cannot hold a row."""


@contextmanager
def table_writer(
    path: Path, columns: Sequence[str], types: Mapping[str, Any] | None = None, form: str = ""
) -> Iterator[WriteRows]:
    """Write a table. The file appears when the block ends without an error.

    Args:
        path: the file; `-` for standard output.
        columns: the columns' names, in order.
        types: Arrow types of some columns, for parquet. The first block's rows decide the other columns' types.
        form: the format, as a suffix such as `.csv`, of standard output. By default, and for text, it is tab-separated;
            in place of parquet, jsonl is written.

    Raises:
        InputError: the name has no known format, or the format cannot hold a row.
    """
    if path == STANDARD_OUTPUT:
        yield TEXT_FORMATS.get(".jsonl" if form == ".parquet" else form, TEXT_FORMATS[".tsv"])(sys.stdout, columns)
        sys.stdout.flush()
        return
    check_output(path)
    suffix, compression = suffixes(path)
    with atomic_file(path) as temporary:
        if suffix == ".parquet":
            with _parquet_writer(temporary, columns, types or {}) as write:
                yield lambda rows: write(_known(rows, columns))
            return
        opener: Any = partial(gzip.GzipFile, mtime=0) if compression else Path.open  # the same rows are the same bytes
        with io.TextIOWrapper(opener(temporary, "wb"), "utf-8", newline="") as file:
            yield TEXT_FORMATS[suffix](file, columns)


@contextmanager
def _parquet_writer(
    path: Path, columns: Sequence[str], types: Mapping[str, Any]
) -> Iterator[Callable[[Sequence[FileRow]], None]]:
    """Writes rows, as `table_writer` says; Arrow types of some columns."""
    import pyarrow.parquet  # takes 0.1 s

    writer: Any = None

    def write(rows: Sequence[FileRow]) -> None:
        nonlocal writer
        try:
            if writer is None:
                found = {n: pyarrow.array([row.get(n) for row in rows]).type for n in columns if n not in types}
                schema = pyarrow.schema([(name, types[name] if name in types else found[name]) for name in columns])
                writer = pyarrow.parquet.ParquetWriter(path, schema)
            table = pyarrow.Table.from_pylist(list(rows), writer.schema)
            for field in writer.schema:
                kept = table.column(field.name).to_pylist()
                if any(_loses(row.get(field.name), copy) for row, copy in zip(rows, kept, strict=True)):
                    type_of_first = f"the type of the first rows ({plain(str(field.type))})"
                    raise InputError(f"{field.name} has a value that {type_of_first} cannot hold; write jsonl")
            writer.write_table(table)
        except (pyarrow.ArrowException, OverflowError) as error:
            raise InputError(
                f"a column's values have no common type in parquet ({reason(error)}); write jsonl"
            ) from None

    yield write
    if writer is None:
        write([])  # only the columns
    writer.close()


def _loses(value: Any, copy: Any) -> bool:
    """Whether a value has a field that its copy lacks, or was cut to a whole number or a date."""
    if isinstance(value, dict):
        return any(part is not None and _loses(part, (copy or {}).get(name, ...)) for name, part in value.items())
    if isinstance(value, list | tuple) and isinstance(copy, list):
        return any(map(_loses, value, copy))
    cut = isinstance(value, float) and isinstance(copy, int) and value != copy
    cut = cut or (isinstance(value, bool) and not isinstance(copy, bool))
    return copy is ... or cut or (isinstance(value, datetime) and not isinstance(copy, datetime))


def check_output(path: Path) -> None:
    """Raise InputError unless a table can be written under this name."""
    if path.is_dir():
        raise InputError(f"{path}: a folder; expected the name of a file")
    suffix, compression = suffixes(path)
    is_known = suffix in TEXT_FORMATS or (suffix == ".parquet" and not compression)
    if path != STANDARD_OUTPUT and not is_known:
        raise InputError(f"{path}: unknown format; expected a name that ends in {', '.join(TEXT_FORMATS)} or .parquet")


def check_new_folder(path: Path) -> None:
    """Raise InputError if a folder to write is there already: nothing is replaced."""
    if path.exists():
        raise InputError(f"{path}: exists already; name another folder, or remove it")


def without_formula(value: Any) -> Any:
    """A value, with an apostrophe in front if a spreadsheet would run it. Numbers stay, and so do other values."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULA):  # texts that differ stay different
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _json_writer(file: IO[str], _columns: Sequence[str]) -> WriteRows:
    numbers = count(1)
    return lambda rows: file.writelines(_json(row, f"row {n}: ") + "\n" for row, n in zip(rows, numbers, strict=False))


def _delimited_writer(separator: str, file: IO[str], columns: Sequence[str]) -> WriteRows:
    # The writer puts quotes around a text with a carriage return only if rows end with one.
    lines = SimpleNamespace(write=lambda row: file.write(row.removesuffix("\r\n") + "\n"))
    writer = csv.DictWriter(lines, columns, delimiter=separator)
    writer.writeheader()

    def write(rows: Sequence[FileRow]) -> None:
        writer.writerows({name: _cell(name, value) for name, value in row.items()} for row in _known(rows, columns))

    return write


TEXT_FORMATS: dict[str, Callable[[IO[str], Sequence[str]], WriteRows]] = {
    **{suffix: partial(_delimited_writer, separator) for suffix, separator in SEPARATORS.items()},
    ".jsonl": _json_writer,
    ".jsonlines": _json_writer,
}
"""Makes the writer of a file and its columns, by the file's suffix."""


def several_labels(names: Iterable[str]) -> str:
    """Several labels in a text that tasks read as these labels: with | between them, or as a JSON list.

    They are a list if one contains this sign, or begins as a list does.
    """
    found = [*names]
    as_list = any("|" in name or name.startswith("[") for name in found)
    return json.dumps(found, ensure_ascii=False) if as_list else "|".join(found)


def _cell(column: str, value: Any) -> Any:
    """A value in delimited text: several labels, which are a tuple, are joined, and what is nested is JSON."""
    if isinstance(value, tuple):
        return several_labels(value)
    return _json(value, f"{column} ") if isinstance(value, list | dict | bytes) else value


def _json(value: Any, place: str) -> str:
    """A row or a column's value as JSON, which has no dates and no decimal numbers, as parquet files may hold."""
    return json.dumps(_finite(value, place), ensure_ascii=False, default=str)


def _finite(value: Any, place: str) -> Any:
    """A value with null in place of NaN, which JSON cannot hold. Raises InputError for Infinity and bytes."""
    if isinstance(value, dict):
        return {name: _finite(part, f"{place}{name} ") for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part, place) for part in value]
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"{place}is {'-' * (value < 0)}Infinity, which JSON cannot hold; write csv or parquet")
    if isinstance(value, bytes):
        raise InputError(f"{place}is binary, which text cannot hold; write parquet")
    return None if isinstance(value, float) and math.isnan(value) else value


def _known(rows: Sequence[FileRow], columns: Sequence[str]) -> Sequence[FileRow]:
    """The rows. Raises InputError if one has another column."""
    for row in rows:
        if new := [name for name in row if name not in columns]:
            raise InputError(f"a row has the column {plain(new[0])}, which the first rows do not have; write jsonl")
    return rows

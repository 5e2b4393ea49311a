"""Rows of a table, one at a time: of a csv, tsv, jsonl, parquet, xlsx or text file, or of a data set of the hub.

Delimited text is parsed strictly, and a bad row is named by file and line. Text is kept as written; tasks ignore white
space around it. The course's starter code also lower-cases text and puts spaces before `. ? , '`. The
tokenizer of an uncased BERT does both by itself, so its ids are the same either way (except for a capital sigma that
ends a Greek word).
"""

import csv
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, time
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from minbert.errors import InputError, did_you_mean, install_with
from minbert.files import refuse_expanding_archive, refuse_expansion
from multitask.base import logger
from multitask.data.messages import OnProblem, damaged, listed, quote, read_or_refuse, refuse, repeated, setting
from multitask.data.read_arrow import read_data_set, read_parquet
from multitask.data.tables import (
    MAX_LINE,
    RETURN,
    ROWS_PER_BATCH,
    SEPARATORS,
    UNSUSPECTED_BYTES,
    FileRow,
    Format,
    MissingSplitError,
    OpenTable,
    RowsFrom,
    suffixes,
    text_lines,
)

csv.field_size_limit(MAX_LINE)  # by default, a sentence of more than 131,072 characters is an error


def open_table(
    source: RowsFrom, file_format: Format | None = None, on_problem: OnProblem = refuse, form: str = ""
) -> OpenTable:
    """Open a table of any format, by its suffix; files of text may also be compressed (.gz).

    Args:
        source: the file or data set, and the split.
        format: of text; the source's own comes first.
        on_problem: called for each malformed row, which is then left out; the default raises the first problem.
        form: the format as a suffix such as `.csv`; by default that of the file's name.

    Raises:
        InputError: the file is missing, empty, damaged or of an unknown format.
    """
    path, file_format = source.path, source.format or file_format or Format()
    suffix = form or (source.form if path else ".parquet")  # data sets of the hub are stored as such files
    if idle := file_format.without_effect(suffix):
        where = 'give it, in a tasks file, to the file that has it, in its table [files."NAME"]'
        raise InputError(f"{source}: has no {listed(idle)}, being of another format; leave this out, or {where}")
    if path is None:
        return replace(read_data_set(source), format=file_format)
    read = FORMATS.get(suffix)
    if file_format.separator and read in (None, _lines):
        read = _delimited
    if read is None:
        raise InputError(
            f"{path}: unknown format; expected a name that ends in {', '.join(FORMATS)}; text may also be .gz"
        )
    if read in (read_parquet, _spreadsheet) and suffixes(path)[1]:
        raise InputError(f"{path}: only formats of text may be compressed; decompress the file")
    separator = file_format.separator or SEPARATORS.get(suffix)
    table = replace(read(path, replace(file_format, separator=separator), on_problem), format=file_format)
    table = replace(table, rows=_without_headers(table, on_problem))
    return table if source.split is None else _rows_of_split(table, source.split)


def open_pairs(source: RowsFrom, file_format: Format, form: str = "") -> OpenTable:
    """Open a text file of pairs: two sentences a line, with a tab between them; the columns sentence1 and sentence2."""
    table, columns = open_table(source, file_format, form=form), ("sentence1", "sentence2")

    def rows() -> Iterator[tuple[int, FileRow]]:
        for number, row in table.rows:
            parts = row["text"].split("\t")
            if len(parts) != 2:
                raise InputError(f"{table.place(number)}: expected two sentences with a tab between them")
            yield number, dict(zip(columns, map(str.strip, parts), strict=True))

    return replace(table, columns=columns, rows=rows())


def _without_headers(table: OpenTable, on_problem: OnProblem) -> Iterator[tuple[int, FileRow]]:
    """A header within a file would be a row with a class of its own."""
    last = table.columns[-1] if table.columns else ""  # tells most rows apart in no time
    for number, row in table.rows:
        if (
            last in str(row.get(last))
            and len(row) > 1
            and all(_name(str(value)) == name for name, value in row.items())
        ):
            on_problem(f"{table.place(number)}: the columns' names again, as where files are joined; remove the row")
        else:
            yield number, row


def _name(text: str) -> str:
    """A column's name as it stands in a file; joined files, and some programs, leave byte order marks there."""
    return text.replace("\ufeff", "").strip()


def _rows_of_split(table: OpenTable, split: str) -> OpenTable:
    table.require(("split",))

    def rows() -> Iterator[tuple[int, FileRow]]:
        found: set[str] = set()
        for number, row in table.rows:
            value = row.get("split")
            found.add(own := "" if value is None else str(value).strip())
            if own == split:
                yield number, row
        if split not in found:
            there = listed(sorted(found))
            raise MissingSplitError(f"{table.name}: no row has {quote(split)} in column split, only {there}")
        none = "" if split == "train" else split  # rows of no split are told of once
        if alike := [other for other in sorted(found - {split}) if other.casefold() in (none, split.casefold())]:
            shown = listed(map(quote, alike))
            logger.warning("%s: rows with %s in column split do not belong to %s", table.name, shown, quote(split))

    return replace(table, rows=rows())


def _lines(path: Path, file_format: Format, _: OnProblem) -> OpenTable:
    """Each line of a text file as the column `text`; blank lines, too."""
    lines = enumerate(text_lines(path, file_format.encoding), start=1)
    return OpenTable(str(path), ("text",), ((number, {"text": line.rstrip("\r\n")}) for number, line in lines))


SPACE_AND_QUOTE = re.compile(' +"')


def _delimited(path: Path, file_format: Format, on_problem: OnProblem) -> OpenTable:
    """Fields are unquoted as by `csv.DictReader`, which the course's starter code uses."""
    rows = _split_rows(path, file_format, on_problem)
    first = next(rows, None)
    if first is None:
        after = f" after {file_format.skip_rows} skipped lines" if file_format.skip_rows else ""
        raise InputError(f"{path}: the file is empty{after}; expected a header line and rows")
    header = [*map(_name, first[1])]
    between = {"\t": "tabs", ",": "commas"}.get(str(file_format.separator), repr(file_format.separator))
    spaced = any(name.startswith(" ") for name in first[1])

    def by_column() -> Iterator[tuple[int, FileRow]]:
        for line, row in rows:
            fits, literal = len(row) == len(header), "a quote after a space does not begin a field in quotes"
            has_literal = file_format.quotes and (spaced or not fits) and any(map(SPACE_AND_QUOTE.match, row))
            if not fits:
                expected = f"expected {len(header)}, as in the header (separated by {between})"
                on_problem(f"{path}:{line}: the row has {len(row)} fields; {expected}{f'; {literal}' * has_literal}")
            elif has_literal:
                remedy = f"remove the space (or {setting('quotes = false', '--no-quotes')})"
                on_problem(f"{path}:{line}: {literal}; {remedy}")
            else:
                yield line, dict(zip(header, row, strict=True))

    return OpenTable(str(path), tuple(header), by_column())


def _split_rows(path: Path, file_format: Format, on_problem: OnProblem) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the line where it starts.

    Not with pyarrow's reader: it takes broken quoting for text, drops rows with an open quote without a word, and does
    not tell the lines of rows.
    """
    reader = csv.reader(
        islice(text_lines(path, file_format.encoding, returns=True), skipped := file_format.skip_rows, None),
        delimiter=str(file_format.separator),
        quoting=csv.QUOTE_MINIMAL if file_format.quotes else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = skipped + reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            if str(error).startswith("new-line character"):  # outside of quotes; further words depend on the version
                raise InputError(f"{path}:{line}: {RETURN}, and quote texts with one") from None
            on_problem(
                f"{path}:{line}: broken quoting ({error}); expected a field that starts with a quote to end with one, "
                f"and quotes inside it to be doubled (or {setting('quotes = false', '--no-quotes')})"
            )
            continue
        if row is None:
            return
        if (end := skipped + reader.line_num) > line and not file_format.line_breaks:
            on_problem(
                f"{path}:{line}: a quoted field goes on until line {end}; close its quote, or "
                f"{setting('line_breaks = true', '--line-breaks')}"
            )
        elif row:
            yield line, row


def _json_lines(path: Path, file_format: Format, on_problem: OnProblem) -> OpenTable:
    """Not with pyarrow's reader, in which all values of a column have one type, and text may become a date."""
    check_names = json.JSONDecoder(object_pairs_hook=_refuse_repeated, parse_int=str).decode
    size = 0

    def parsed() -> Iterator[tuple[int, FileRow]]:
        nonlocal size
        for number, line in enumerate(text_lines(path, file_format.encoding), start=1):
            size += len(line)
            if not line.strip():
                continue
            try:
                if re.search(r"(?<!\\)(\\\\)*\\u0000", line):
                    raise ValueError("a text contains a NUL character")
                value = from_json(line.strip())
                check_names(line)
            except ValueError as error:
                on_problem(f"{path}:{number}: not JSON ({str(error).replace('line 1 column', 'character')})")
                continue
            if isinstance(value, dict):
                yield number, value
            else:
                on_problem(f"{path}:{number}: {quote(value)} is not an object; expected one object a line")

    rows = parsed()
    first = []
    for found in islice(rows, ROWS_PER_BATCH):
        first.append(found)
        if size > MAX_LINE:  # objects may take fifty times the bytes of their lines
            break
    if not first:
        raise InputError(f"{path}: no JSON object; expected one a line")
    columns = tuple(dict.fromkeys(column for _, row in first for column in row))
    return OpenTable(str(path), columns, chain(first, rows), examples=[row for _, row in first])


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    """Parsers drop one of two values of the same name without a word."""
    if len(dict(pairs)) < len(pairs):
        twice = repeated(name for name, _ in pairs)[0]
        raise ValueError(f"an object has {quote(twice)} twice; expected each name once")


def _spreadsheet(path: Path, file_format: Format, on_problem: OnProblem) -> OpenTable:
    """A sheet of a workbook. Every cell is text, as in csv."""
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(f"{path}: needs openpyxl; save the sheet as csv, or {install_with('xlsx')}")
    rows = _rows_of_sheet(path, file_format)
    _, first = next(rows, (0, []))
    if not first:
        raise InputError(f"{path}: the sheet is empty; expected a row with the columns' names, and rows")
    header = tuple(map(_name, first))

    def by_column() -> Iterator[tuple[int, FileRow]]:
        for number, row in rows:
            if any(row[len(header) :]):
                on_problem(f"{path}: row {number} has {len(row):,} cells; expected {len(header):,}, as in the header")
            else:
                yield number, dict(zip_longest(header, row[: len(header)], fillvalue=""))

    return OpenTable(str(path), header, by_column(), by_line=False)


def _rows_of_sheet(path: Path, file_format: Format) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells, up to the last one with a value, of each row of a sheet that is not blank."""
    import openpyxl

    # Styles and the like become objects of a hundred times their bytes.
    read_or_refuse(path, partial(refuse_expanding_archive, unsuspected=UNSUSPECTED_BYTES))
    size = 0
    try:
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)) as book:
            sheets = {sheet.title: sheet for sheet in book.worksheets}
            shown = (title for title, sheet in sheets.items() if sheet.sheet_state == "visible")
            name = file_format.sheet or next(shown, next(iter(sheets)))
            if name not in sheets:
                there = f"there are {listed(map(quote, sheets))}"
                raise InputError(f"{path}: no sheet {quote(name)}; {there}{did_you_mean(name, sheets)}")
            sheet = sheets[name]
            sheet.reset_dimensions()  # what it says of its size may be wrong
            for number, row in enumerate(sheet.rows, start=1):
                size += max(1, len(row))
                refuse_expansion(path, size, unsuspected=UNSUSPECTED_BYTES, unit="cells")
                cells = [_written(cell, file_format.decimal) for cell in row]
                while cells and not cells[-1]:
                    cells.pop()
                if cells and number > file_format.skip_rows:
                    yield number, cells
    except InputError:
        raise
    except Exception as error:  # damaged workbooks raise many kinds
        raise damaged(path, error) from None


def _written(cell: Any, decimal: str) -> str:
    """A cell as text. Numbers have no decimal mark of their own: they are written as the other cells are."""
    value = cell.value
    if isinstance(value, datetime) and value.time() == time() and "h" not in cell.number_format.lower():
        return str(value.date())  # workbooks have no type of their own for a date
    if isinstance(value, float):
        if not value.is_integer():
            return str(value).replace(".", decimal)
        value = int(value)
    if type(value) is int and value >= 0 and re.fullmatch("0+", cell.number_format):
        return str(value).zfill(len(cell.number_format))  # a code such as 00123, which csv would have
    return "" if value is None or cell.data_type == "e" else ESCAPE.sub(lambda sign: chr(int(sign[1], 16)), str(value))


ESCAPE = re.compile("_x(?!0000|[Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")
"""How workbooks write what XML cannot hold, such as _x000D_ for a carriage return; openpyxl leaves it so. NUL and half
surrogate pairs, which no text may have here, stay escaped."""


FORMATS: dict[str, Callable[[Path, Format, OnProblem], OpenTable]] = {
    ".csv": _delimited,
    ".tsv": _delimited,
    ".jsonl": _json_lines,
    ".jsonlines": _json_lines,
    ".parquet": read_parquet,
    ".xlsx": _spreadsheet,
    ".txt": _lines,
}
"""Readers by suffix."""
